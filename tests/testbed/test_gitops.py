"""Outrider under a GitOps tool: all manifests forced on the API server again and again while K and target move.

The tool is `kubectl apply --server-side --force-conflicts` under a field manager of its own, which is what a sync of
Argo CD with ServerSideApply and a reconciliation of Flux send; `kubectl diff` in the same form is what they compare by.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml

from tests.testbed import operator
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.helm import Helm
from tests.testbed.load import Load
from tests.testbed.service import PATHS, ServiceView
from tests.testbed.state import read_state
from tests.testbed.test_operator import example
from tests.unit.gitops.health import PAGE, ROOT, argo_cd

TOOL = "argocd-controller"
TOOL_OF_CHART = "argocd-controller-of-chart"
"""Another manager, for the chart puts an annotation on the definition that the plain manifests do not have."""
TRACKING = {"argocd.argoproj.io/tracking-id": "llm:serving.outrider.dev/SpeculativeInferenceService:synced/chat"}
INSTANCE = {"app.kubernetes.io/instance": "llm", "kustomize.toolkit.fluxcd.io/name": "llm"}
INSTALLED = ("crds", "deploy")
OURS = ("serving.outrider.dev/", "app.kubernetes.io/component", "app.kubernetes.io/managed-by")
WRITTEN_BY_OTHERS = (
    "kubectl.kubernetes.io/",
    "deployment.kubernetes.io/",
    "pod-template-hash",
    "scaledobject.keda.sh/",
)
"""What Kubernetes and KEDA put on objects that they keep up."""


def manifest() -> dict[str, Any]:
    """The resource as it stands in Git, with what the tools write on it to know it again."""
    body = example("synced", autoscaling={"minReplicas": 2, "maxReplicas": 2})
    body["metadata"] |= {"labels": INSTANCE, "annotations": TRACKING}
    return body


def sync(cluster: Cluster, *arguments: str, tool: str = TOOL, **options: Any) -> subprocess.CompletedProcess[str]:
    """One sync, or one comparison, of manifests by force."""
    by_force = ("--server-side", "--force-conflicts", f"--field-manager={tool}")
    return cluster.kubectl(*arguments, *by_force, **options)


class Tool:
    """Syncs everything without a pause, in a thread of its own; use it as a context manager."""

    def __init__(self, cluster: Cluster, chart: str) -> None:
        self._cluster, self._chart, self._stop = cluster, chart, threading.Event()
        self._thread = threading.Thread(target=self._run, name="gitops", daemon=True)
        self.rounds = 0
        """Syncs of everything, the chart last."""
        self.faults: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=60)

    def _run(self) -> None:
        text = yaml.safe_dump(manifest())
        folders = [argument for folder in INSTALLED for argument in ("-f", str(ROOT / folder))]
        while not self._stop.wait(0.5):
            done = [
                sync(self._cluster, "apply", "-f", "-", input=text, check=False),
                sync(self._cluster, "apply", *folders, check=False),
                sync_chart(self._cluster, "apply", self._chart, check=False),
            ]
            self.faults += [one.stderr for one in done if one.returncode]
            self.rounds += 1

    def go_round(self) -> None:
        """Return when everything was synced again, from the first to the last, since the call."""
        wanted = self.rounds + 2  # the one that runs may have passed the resource
        self._cluster.wait_until("syncs of everything", lambda: self.rounds >= wanted)


def sync_chart(cluster: Cluster, verb: str, text: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return sync(cluster, verb, "-f", "-", tool=TOOL_OF_CHART, input=text, **options)


@pytest.fixture(scope="module")
def chart(helm: Helm) -> str:
    """The chart as a tool renders it."""
    return helm.template("--set", "networkPolicy.enabled=true,dashboards.enabled=true")


@pytest.fixture(scope="module")
def outrider(start_cluster: StartCluster, chart: str) -> Iterator[Cluster]:
    """A cluster on which the tool has installed Outrider."""
    cluster = start_cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5, nodes=4)
    cluster.kubectl("apply", "-f", str(Path(__file__).with_name("pod_monitor_crd.yaml")))
    for folder in INSTALLED:
        sync(cluster, "apply", "-f", str(ROOT / folder))
    operator.install(cluster)
    sync_chart(cluster, "apply", chart)
    available = ("--for=condition=Available", "deployment/outrider", "--timeout=180s")
    cluster.kubectl("wait", *available, "-n", operator.NAMESPACE)
    operator.start(cluster)
    cluster.kubectl("create", "namespace", "synced")
    yield cluster
    operator.stop(cluster)


@pytest.fixture(scope="module")
def view(outrider: Cluster) -> ServiceView:
    """The service, synced once, with both its engines ready and all its children made."""
    view = ServiceView(outrider, "synced", "chat")
    sync(outrider, "apply", "-f", "-", input=yaml.safe_dump(manifest()))
    outrider.wait_until("two engines", lambda: len(view.ready_addresses()) == 2)
    outrider.wait_until("its children", lambda: bool(view.get("scaledobject")) and len(kept(view)) >= 8)
    outrider.wait_until("its K", lambda: speculative_tokens(view) is not None)
    return view


def kept(view: ServiceView) -> list[dict[str, Any]]:
    """The children that the operator keeps up."""
    return [body for kind in PATHS if kind not in ("sis", "pod", "replicaset", "hpa") for body in view.list(kind)]


def speculative_tokens(view: ServiceView) -> int | None:
    """K as status has it; None before the operator has looked."""
    found: int | None = view.status().get("tuning", {}).get("speculativeTokens")
    return found


def owners(body: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Who owns what of an object, by manager and subresource."""
    return {
        (entry["manager"], entry.get("subresource", "")): entry["fieldsV1"]
        for entry in body["metadata"].get("managedFields", [])
    }


def installed(cluster: Cluster) -> dict[str, str]:
    """Versions of the definition, the rights and the operator: they change with every write, whoever writes."""
    whole = "crd/speculativeinferenceservices.serving.outrider.dev clusterrole/outrider clusterrolebinding/outrider"
    inside = ("get", "deployment,service,serviceaccount,networkpolicy,configmap", "-n", operator.NAMESPACE)
    told = [cluster.kubectl(*which, "-o", "yaml").stdout for which in (("get", *whole.split()), inside)]
    return {key(body): body["metadata"]["resourceVersion"] for text in told for body in yaml.safe_load(text)["items"]}


def test_syncs_by_force_all_through_tuning_find_nothing_to_change_and_disturb_nothing(
    outrider: Cluster, view: ServiceView, chart: str
) -> None:
    before, pods, target = view.resource(), {pod["metadata"]["uid"] for pod in view.pods()}, view.target()
    deployment, setup = view.get("deployment")["metadata"], installed(outrider)
    with Tool(outrider, chart) as tool, Load(outrider, "synced", "chat", concurrency=64, acceptance=0.85) as load:
        outrider.wait_until("deep drafts", lambda: (speculative_tokens(view) or 0) >= 4)
        tool.go_round()
        load.acceptance = 0.2
        outrider.wait_until("short drafts", lambda: speculative_tokens(view) in (0, 1))
        tool.go_round()
        outrider.wait_until("another target", lambda: view.target() != target, 240)
        tool.go_round()
        assert view.condition("Ready")[0] == "True"
    assert tool.faults == []
    assert load.outcomes.keys() == {"200"}

    after = view.resource()
    assert (after["metadata"]["generation"], before["metadata"]["generation"]) == (1, 1)
    assert after["spec"] == before["spec"] == manifest()["spec"]
    assert (after["metadata"]["labels"], after["metadata"]["annotations"]) == (INSTANCE, TRACKING)
    assert owners(after)[(TOOL, "")] == owners(before)[(TOOL, "")]
    assert {owner for owner in owners(after) if owner[0] != TOOL} == {("outrider", "status")}
    assert set(owners(after)[("outrider", "status")]) == {"f:status"}

    def differs() -> str:
        return sync(outrider, "diff", "-f", "-", input=yaml.safe_dump(manifest()), check=False).stdout

    # It reads the resource twice; a status that is written in between looks like a difference, once.
    outrider.wait_until("a comparison that finds nothing", lambda: differs() == "")

    assert {pod["metadata"]["uid"] for pod in view.pods()} == pods
    assert view.get("deployment")["metadata"]["generation"] == deployment["generation"]
    assert installed(outrider) == setup
    assert {"Deployment/outrider", "NetworkPolicy/outrider", "ServiceAccount/outrider"} < setup.keys()
    assert sync_chart(outrider, "diff", chart, check=False).stdout == ""


def test_children_bear_our_labels_and_none_of_the_tools(view: ServiceView) -> None:
    for body in kept(view):
        found = [*body["metadata"].get("labels", {}), *body["metadata"].get("annotations", {})]
        foreign = [name for name in found if not name.startswith((*OURS, *WRITTEN_BY_OTHERS))]
        assert foreign == [], body["metadata"]["name"]
        assert TOOL not in {manager for manager, _ in owners(body)}


def test_what_runs_is_healthy_for_argo_cd(outrider: Cluster, view: ServiceView) -> None:
    outrider.wait_until("ready service", lambda: view.condition("Ready")[0] == "True")
    outrider.wait_until("health", lambda: argo_cd(view.resource())[0] == "Healthy")


def test_the_kustomization_is_what_is_installed_and_nothing_else(outrider: Cluster) -> None:
    rendered = list(yaml.safe_load_all(outrider.kubectl("kustomize", str(ROOT)).stdout))
    files = [path for folder in INSTALLED for path in (ROOT / folder).glob("*.yaml")]
    written = [body for path in files for body in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
    assert sorted(map(key, rendered)) == sorted(map(key, written))
    assert all(body in written for body in rendered)


def key(body: dict[str, Any]) -> str:
    return f"{body['kind']}/{body['metadata']['name']}"


def test_the_command_of_the_page_teaches_argo_cd_and_leaves_its_other_settings(outrider: Cluster) -> None:
    outrider.kubectl("create", "namespace", "argocd")
    outrider.kubectl("create", "configmap", "argocd-cm", "-n", "argocd", "--from-literal=url=https://cd.example.com")
    command = next(
        block.split("```")[0]
        for block in PAGE.read_text(encoding="utf-8").split("```sh\n")[1:]
        if "argocd-cm" in block.split("```")[0]
    )
    state = read_state(outrider.run_dir)
    assert state is not None
    environment = os.environ | {
        "KUBECONFIG": str(outrider.kubeconfig),
        "PATH": f"{Path(state.kubectl).parent}{os.pathsep}{os.environ['PATH']}",
    }
    subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=ROOT, env=environment, check=True, timeout=180)
    found = yaml.safe_load(outrider.kubectl("get", "configmap", "argocd-cm", "-n", "argocd", "-o", "yaml").stdout)
    key = "resource.customizations.health.serving.outrider.dev_SpeculativeInferenceService"
    assert found["data"].keys() == {"url", key}
    assert "mends_itself" in found["data"][key]
