"""The chart on a real control plane: installed by the real Helm, and the operator run with what the chart gives it.

The operator's pod has no kubelet here, so the process is started beside it: with a token of the chart's service
account, the chart's rights, and the environment of the chart's Deployment. The tests run in the file's order, as a
release lives.
"""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from outrider.api import GROUP, PLURAL
from outrider.reconcile.definition import NAME as DEFINITION
from tests.testbed import operator, rights
from tests.testbed.cluster import Cluster
from tests.testbed.errors import ClusterError
from tests.testbed.fixtures import StartCluster
from tests.testbed.helm import CHART, Helm
from tests.testbed.service import ServiceView
from tests.testbed.test_operator import example

HISTORY = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/history"
"""Where the definition has a field of status that every version writes."""
NEXT = "99.0.0"
"""A version after every other: the chart that is upgraded to is this one under another name, for it is the first."""
RELEASE = ("outrider", "--namespace", operator.NAMESPACE)
PATIENCE = ("--wait", "--timeout", "300s")
BESIDE = ("OUTRIDER_METRICS_PORT", "OUTRIDER_OPERATOR_NAMESPACE")
"""Not taken from the Deployment: the port that the test-bed gives, and what only a pod knows."""
FINALIZERS = f"{PLURAL}/finalizers"
OF_THE_NAMESPACE = {"serviceaccount/default", "configmap/kube-root-ca.crt"}
STRICT = "pod-security.kubernetes.io/enforce=restricted"


class Release:
    """Outrider as Helm installed it."""

    def __init__(self, cluster: Cluster, helm: Helm, folder: Path) -> None:
        self.cluster, self.helm, self.folder = cluster, helm.on(cluster.kubeconfig), folder
        self.values = folder / "values.yaml"
        self.write(watchNamespaces=[])

    def write(self, **changes: Any) -> None:
        """Values for the next install or upgrade."""
        values: dict[str, Any] = {
            "prometheus": {"url": self.cluster.prometheus_url},
            "control": {"periodSeconds": 2, "scrapeIntervalSeconds": 0.5, "scaleDownStabilizationSeconds": 10},
            "logLevel": "DEBUG",
            "metrics": {"podMonitor": {"enabled": True}},
            "dashboards": {"enabled": True},
            "networkPolicy": {"enabled": True},
            **changes,
        }
        self.values.write_text(yaml.safe_dump(values))

    def package(self, version: str = "") -> Path:
        """The chart as it is published, in a folder of its own."""
        chart = self.folder / "source" / (version or "own") / "outrider"
        if not chart.exists():
            shutil.copytree(CHART, chart)
        given = ("--version", version, "--app-version", version) if version else ()
        told = self.helm.run("package", chart, "--destination", self.folder, *given).stdout
        return Path(told.strip().rsplit(": ", 1)[1])

    def install(self) -> None:
        self.helm.run("install", *RELEASE[:1], self.package(), *RELEASE[1:], "--values", self.values, *PATIENCE)

    def upgrade(self, version: str = "", *options: str) -> None:
        arguments = (*RELEASE[:1], self.package(version), *RELEASE[1:], "--values", self.values, *PATIENCE)
        self.helm.run("upgrade", *arguments, *options)

    def uninstall(self) -> None:
        self.helm.run("uninstall", *RELEASE, *PATIENCE)

    def environment(self) -> dict[str, str]:
        """What the chart's Deployment tells the operator."""
        deployment = self.cluster.api.get(f"/apis/apps/v1/namespaces/{operator.NAMESPACE}/deployments/outrider")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        return {one["name"]: one["value"] for one in container["env"] if "value" in one and one["name"] not in BESIDE}

    def start(self) -> None:
        operator.start(self.cluster, self.environment())

    def restart(self) -> None:
        operator.stop(self.cluster)
        self.start()


@pytest.fixture(scope="module")
def release(start_cluster: StartCluster, helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """A namespace that takes restricted pods alone, and Outrider in it."""
    cluster = start_cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5, nodes=4)
    cluster.kubectl("apply", "-f", str(Path(__file__).with_name("pod_monitor_crd.yaml")))
    cluster.kubectl("create", "namespace", operator.NAMESPACE)
    cluster.kubectl("label", "namespace", operator.NAMESPACE, STRICT)
    release = Release(cluster, helm, tmp_path_factory.mktemp("release"))
    release.install()
    release.start()
    yield release
    operator.stop(cluster)


def serve(release: Release, namespace: str, **changes: Any) -> ServiceView:
    """A service in a namespace that takes restricted pods alone; ready on return."""
    release.cluster.kubectl("create", "namespace", namespace)
    release.cluster.kubectl("label", "namespace", namespace, STRICT)
    view = ServiceView(release.cluster, namespace, "chat")
    view.apply(example(namespace, **changes))
    ready(view)
    return view


def ready(view: ServiceView) -> None:
    view.cluster.wait_until("ready service", lambda: view.condition("Ready")[0] == "True")


def engines(view: ServiceView) -> dict[str, str]:
    """UID and hash of the template of each pod that is not on its way out."""
    return {
        pod["metadata"]["uid"]: pod["metadata"]["labels"]["pod-template-hash"]
        for pod in view.pods()
        if "deletionTimestamp" not in pod["metadata"]
    }


def give_rules(cluster: Cluster, role: dict[str, Any], rules: list[dict[str, Any]]) -> None:
    """Set the rules of the operator's role in Helm's name, so that they stay Helm's."""
    meta = {name: role["metadata"][name] for name in ("name", "labels", "annotations")}
    changed = {"apiVersion": role["apiVersion"], "kind": role["kind"], "metadata": meta, "rules": rules}
    arguments = ("--server-side", "--field-manager=helm", "--force-conflicts", "-f", "-")
    cluster.kubectl("apply", *arguments, input=yaml.safe_dump(changed))


def may(cluster: Cluster, verb: str, resource: str, namespace: str = "") -> bool:
    """Whether the API server gives the operator a right to our kind: it takes rules up a moment after they were
    written."""
    name, _, subresource = resource.partition("/")
    asked = {"verb": verb, "group": GROUP, "resource": name, "subresource": subresource, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": rights.OPERATOR, "resourceAttributes": asked},
    }
    answer = cluster.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def denied(cluster: Cluster) -> set[str]:
    return {f"{call.right} {call.uri}" for call in rights.calls(cluster.logs / "audit.log") if call.denied}


def test_the_chart_is_accepted_and_its_pod_runs_in_a_restricted_namespace(release: Release) -> None:
    status = json.loads(release.helm.run("status", *RELEASE, "--output", "json").stdout)
    assert status["info"]["status"] == "deployed"
    assert "kubectl -n outrider-system rollout status deployment/outrider" in status["info"]["notes"]
    assert "was not found" not in status["info"]["notes"]
    pods = release.cluster.api.get(f"/api/v1/namespaces/{operator.NAMESPACE}/pods")["items"]
    assert [pod["metadata"]["labels"]["app.kubernetes.io/name"] for pod in pods] == ["outrider"]
    assert pods[0]["status"]["phase"] == "Running"
    found = release.cluster.kubectl("get", "podmonitor,networkpolicy,service", "-n", operator.NAMESPACE, "-o", "name")
    assert len(found.stdout.split()) == 3


def test_the_api_server_warns_of_nothing_in_what_is_rendered(release: Release) -> None:
    """An unknown field, an old API or a pod that breaks the profile would be a warning."""
    text = release.helm.template("--values", release.values, "--api-versions", "monitoring.coreos.com/v1/PodMonitor")
    arguments = ("--dry-run=server", "--server-side", "--force-conflicts", "--validate=strict", "-f", "-")
    done = release.cluster.kubectl("apply", *arguments, input=text)
    assert "Warning" not in done.stderr


def test_the_probe_tells_of_control_passes_and_of_the_watch(release: Release) -> None:
    url = f"http://127.0.0.1:{release.cluster.port('outrider-health')}/healthz"

    def answers() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                told = json.load(answer)
        except OSError:
            return False
        # Before it is the active one, an operator makes no pass and has no age to tell.
        return "control_pass_age_seconds" in told and told["control_pass_age_seconds"] < 60 and told["watch"] == "tells"

    release.cluster.wait_until("answer of the probe", answers)


def test_restricted_namespaces_take_the_engines_and_the_service_is_scaled(release: Release) -> None:
    view = serve(release, "first")
    release.cluster.wait_until("scaling", lambda: view.condition("AutoscalingReady")[0] == "True")


def test_every_kind_of_child_comes_and_goes_with_the_charts_rights(release: Release) -> None:
    """Uses the rights that an ordinary service does not."""
    view = serve(release, "all", networkPolicy={"enabled": True})
    view.cluster.wait_until("policy", lambda: bool(view.get("networkpolicy")))
    view.cluster.wait_until("monitor", lambda: bool(view.get("podmonitor")))
    view.cluster.wait_until("scaled object", lambda: bool(view.get("scaledobject")))
    view.apply(example("all", monitoring={"podMonitor": False}, autoscaling={"mode": "Off", "minReplicas": 1}))
    for kind in ("networkpolicy", "podmonitor", "scaledobject"):
        view.cluster.wait_until(f"end of the {kind}", lambda kind=kind: not view.get(kind))  # type: ignore[misc]


def test_without_the_right_to_block_deletion_no_child_can_be_made(release: Release) -> None:
    """No call uses this right; the API server asks for it while it admits one."""
    (name,) = rights.ASKED_WITHIN_A_CALL
    kept = release.cluster.api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/outrider")
    less = [rule for rule in kept["rules"] if rule["resources"] != [FINALIZERS]]
    assert name.endswith(FINALIZERS)
    assert len(less) == len(kept["rules"]) - 1
    give_rules(release.cluster, kept, less)
    release.cluster.wait_until("end of the right", lambda: not may(release.cluster, "update", FINALIZERS))
    release.cluster.kubectl("create", "namespace", "blocked")
    view = ServiceView(release.cluster, "blocked", "chat")
    view.apply(example("blocked"))
    release.cluster.wait_until("refusal", lambda: view.condition("Ready") == ("False", "Forbidden"))
    give_rules(release.cluster, kept, kept["rules"])
    release.cluster.wait_until("the right again", lambda: may(release.cluster, "update", FINALIZERS))
    release.cluster.kubectl("delete", "sis", "chat", "-n", "blocked")


def test_an_upgrade_leaves_running_engines_as_they_are(release: Release) -> None:
    view = serve(release, "upgraded", autoscaling={"minReplicas": 2, "maxReplicas": 2})
    release.cluster.wait_until("two engines", lambda: len(view.ready_addresses()) == 2)
    release.cluster.wait_until("a schedule in status", lambda: "generation" in view.status().get("tuning", {}))
    before = engines(view)
    assert len(set(before.values())) == 1
    release.upgrade(NEXT)
    release.restart()
    seen = view.status()["tuning"]
    release.cluster.wait_until("the next version alone", lambda: versions(release.cluster) == {NEXT})
    view.apply(example("upgraded", autoscaling={"minReplicas": 2, "maxReplicas": 3}))
    release.cluster.wait_until("look of the new operator", lambda: view.status()["observedGeneration"] == 2)
    ready(view)
    assert engines(view).items() >= before.items()
    assert view.status()["tuning"]["generation"] >= seen["generation"]


def versions(cluster: Cluster) -> set[str]:
    """Those of the operator's pods that are not on their way out: Helm waits for the new one alone."""
    return {
        pod["metadata"]["labels"]["app.kubernetes.io/version"]
        for pod in cluster.api.get(f"/api/v1/namespaces/{operator.NAMESPACE}/pods")["items"]
        if "deletionTimestamp" not in pod["metadata"]
    }


def test_with_named_namespaces_the_operator_serves_those_with_rights_in_them_alone(release: Release) -> None:
    operator.stop(release.cluster)  # in the cluster the new rights meet the old operator, which is then denied
    release.write(watchNamespaces=["upgraded", "first"])
    release.upgrade(NEXT)
    wanted = {"upgraded": True, "first": True, "all": False}
    release.cluster.wait_until(
        "rights in two namespaces", lambda: {one: may(release.cluster, "list", PLURAL, one) for one in wanted} == wanted
    )
    release.start()
    role = release.cluster.api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/outrider")
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    inside, outside = (ServiceView(release.cluster, namespace, "chat") for namespace in ("upgraded", "all"))
    inside.apply(example("upgraded", autoscaling={"minReplicas": 2, "maxReplicas": 4}))
    outside.apply(example("all", autoscaling={"mode": "Off", "minReplicas": 2}))
    release.cluster.wait_until("look within", lambda: inside.status()["observedGeneration"] == 3)
    ready(inside)
    assert outside.status()["observedGeneration"] < outside.resource()["metadata"]["generation"]
    assert denied(release.cluster) == set()


@pytest.mark.failure(
    "Ourselves",
    "the definition is older than the operator",
    status="the operator ends before it writes",
    ends="with the definition",
    guard="reconcile/definition.py:misfit",
)
def test_an_operator_does_not_write_for_an_older_definition_and_one_edited_by_hand_takes_force_to_upgrade(
    release: Release,
) -> None:
    operator.stop(release.cluster)
    release.write()
    view = ServiceView(release.cluster, "upgraded", "chat")
    written = view.resource()["metadata"]["resourceVersion"]
    less = [{"op": "remove", "path": HISTORY}]
    release.cluster.kubectl("patch", "crd", DEFINITION, "--type=json", "-p", json.dumps(less))
    release.start()
    release.cluster.wait_until("end of the operator", lambda: not alive(release.cluster))
    assert "it lacks status.history; apply crds/ of this version" in operator.log(release.cluster)
    assert release.cluster.stop_process(operator.PROCESS) == 3
    assert view.resource()["metadata"]["resourceVersion"] == written

    with pytest.raises(ClusterError, match="conflict"):
        release.upgrade(NEXT)
    release.upgrade(NEXT, "--force-conflicts")  # what the documentation says
    release.cluster.wait_until("rights everywhere", lambda: may(release.cluster, "list", PLURAL))
    release.start()
    view.apply(example("upgraded", autoscaling={"minReplicas": 2, "maxReplicas": 2}))
    release.cluster.wait_until("look of the operator", lambda: view.status()["observedGeneration"] == 4)


def alive(cluster: Cluster) -> bool:
    return any(process.name == operator.PROCESS for process in cluster.processes())


def test_uninstalling_leaves_services_and_their_definition(release: Release) -> None:
    view = ServiceView(release.cluster, "upgraded", "chat")
    before = engines(view)
    operator.stop(release.cluster)
    release.uninstall()
    # Helm waits for the Deployment's end; its pods are collected after it.
    release.cluster.wait_until("end of all", lambda: left(release.cluster) <= OF_THE_NAMESPACE)
    assert release.cluster.kubectl("get", "clusterrole,clusterrolebinding", "-o", "name").stdout.count("/outrider") == 0
    assert release.cluster.kubectl("get", "crd", DEFINITION, "-o", "name").stdout.strip().endswith(DEFINITION)
    assert view.condition("Ready")[0] == "True"
    assert engines(view) == before
    release.install()
    release.start()
    view.apply(example("upgraded", autoscaling={"minReplicas": 2, "maxReplicas": 3}))
    release.cluster.wait_until("look of the operator", lambda: view.status()["observedGeneration"] == 5)
    assert engines(view).items() >= before.items()


def left(cluster: Cluster) -> set[str]:
    """What is in the operator's namespace."""
    listed = cluster.kubectl("get", "all,serviceaccount,configmap", "-n", operator.NAMESPACE, "-o", "name").stdout
    return set(listed.split())


def test_every_call_was_allowed_and_every_right_was_used(release: Release, request: pytest.FixtureRequest) -> None:
    """Runs last, over all that the tests before made the operator do."""
    assert denied(release.cluster) == set()
    names = [item.name for item in request.session.items if item.path == request.path]
    if len(names) < MODULE_TESTS:
        pytest.skip(f"{len(names)} of the module's {MODULE_TESTS} tests run: rights of the others would look unused")
    # Some are used once in several control passes, and a call is written down after it was answered.
    release.cluster.reading("right that is used", lambda: unused(release.cluster), lambda found: found == OF_CANDIDATES)


def unused(cluster: Cluster) -> list[str]:
    return [str(right) for right in rights.unused(rights.granted(), rights.calls(cluster.logs / "audit.log"))]


MODULE_TESTS = 11
OF_CANDIDATES = ["create batch/jobs", "delete apps/deployments", "get batch/jobs"]
"""Their trials are other modules' tests; over the whole suite every right must be used."""
