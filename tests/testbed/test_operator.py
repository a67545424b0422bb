"""The operator on a real control plane, as a user sees it: from `kubectl apply` to changed engines, and back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.failures import Failure
from tests.testbed import operator, rights
from tests.testbed.alerting import alerted, quiet, series
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.load import Load
from tests.testbed.numbers import Numbers
from tests.testbed.service import ServiceView
from tests.testbed.startup import TIMEOUT_S

PATIENTLY = f"--timeout={TIMEOUT_S:.0f}s"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def outrider(start_cluster: StartCluster) -> Iterator[Cluster]:
    """A cluster with Outrider on it."""
    cluster = start_cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5, nodes=4)
    cluster.kubectl("apply", "-f", str(Path(__file__).with_name("pod_monitor_crd.yaml")))
    operator.install(cluster)
    operator.start(cluster)
    yield cluster
    operator.stop(cluster)


@pytest.fixture(scope="module")
def collected(outrider: Cluster) -> Cluster:
    """The garbage collector learns of new kinds every 30 s: what belongs to one made before that stays until then."""
    age = "{.metadata.creationTimestamp}"
    made = outrider.kubectl("get", "namespace", operator.NAMESPACE, "-o", f"jsonpath={age}").stdout
    time.sleep(max(0.0, datetime.fromisoformat(made).timestamp() + 35.0 - time.time()))
    return outrider


def example(namespace: str, **changes: Any) -> dict[str, Any]:
    """The minimal example in a namespace, with top-level fields of its spec replaced."""
    manifest: dict[str, Any] = yaml.safe_load((EXAMPLES / "01-minimal.yaml").read_text())
    manifest["metadata"]["namespace"] = namespace
    manifest["spec"] |= changes
    return manifest


def serve(cluster: Cluster, namespace: str, **changes: Any) -> ServiceView:
    """Apply the example in a namespace of its own and wait until it serves."""
    view = created(cluster, namespace, **changes)
    cluster.wait_until("ready service", lambda: view.is_told("Ready", "True"))
    return view


def created(cluster: Cluster, namespace: str, **changes: Any) -> ServiceView:
    """Apply the example in a namespace of its own."""
    cluster.kubectl("create", "namespace", namespace)
    view = ServiceView(cluster, namespace, "chat")
    view.apply(example(namespace, **changes))
    return view


def event(view: ServiceView, which: str, words: str = "") -> None:
    """Wait for an event that has these words; one that tells of a status comes after it."""
    asked = ("get", "events", "-n", view.namespace, f"--field-selector={which}", "-o", "json")

    def told() -> bool:
        return any(words in json.dumps(one) for one in json.loads(view.cluster.kubectl(*asked).stdout)["items"])

    view.cluster.wait_until(f"event {which} {words}", told)


def test_a_resource_becomes_a_running_service_and_its_status_says_so(outrider: Cluster) -> None:
    view = serve(outrider, "first")
    kinds = {
        "deployment", "service", "serviceaccount", "configmap", "secret", "poddisruptionbudget", "scaledobject",
        "podmonitor", "pod",
    }  # fmt: skip
    outrider.wait_until("all children", lambda: {child.split("/")[0] for child in view.children()} >= kinds)
    outrider.wait_until("acknowledged schedule", lambda: view.is_told("ScheduleApplied", "True", "Acknowledged"))
    outrider.wait_until("scaling", lambda: view.is_told("AutoscalingReady", "True"))
    resource = view.resource()
    assert resource["status"]["observedGeneration"] == resource["metadata"]["generation"] == 1
    assert resource["metadata"].get("finalizers") is None
    assert list(resource["metadata"].get("annotations", {})) == ["kubectl.kubernetes.io/last-applied-configuration"]
    table = outrider.kubectl("get", "sis", "-n", "first").stdout.splitlines()
    assert table[0].split() == ["NAME", "READY", "MODE", "K", "TOKENS/STEP", "REPLICAS", "CANDIDATE", "AGE"]
    assert table[1].split()[:4] == ["chat", "True", "Adaptive", "3"]


def test_the_operator_owns_the_status_of_a_resource_and_nothing_else_of_it(outrider: Cluster) -> None:
    view = serve(outrider, "owners")
    done = outrider.kubectl("get", "sis", "chat", "-n", "owners", "-o", "yaml", "--show-managed-fields")
    owners = {entry["manager"]: entry for entry in yaml.safe_load(done.stdout)["metadata"]["managedFields"]}
    assert set(owners["outrider"]["fieldsV1"]) == {"f:status"}
    assert view.resource()["metadata"]["generation"] == 1


def test_under_autoscaling_the_number_of_replicas_is_not_ours(outrider: Cluster) -> None:
    serve(outrider, "unowned")
    done = outrider.kubectl("get", "deployment", "chat", "-n", "unowned", "-o", "yaml", "--show-managed-fields")
    ours = [e for e in yaml.safe_load(done.stdout)["metadata"]["managedFields"] if e["manager"] == "outrider"]
    assert all("f:replicas" not in entry["fieldsV1"]["f:spec"] for entry in ours)


def test_a_drop_of_acceptance_changes_k_on_the_running_engines_and_the_target_in_place(outrider: Cluster) -> None:
    view = serve(outrider, "tuned", autoscaling={"minReplicas": 2, "maxReplicas": 2})
    outrider.wait_until("two engines", lambda: len(view.ready_addresses()) == 2)
    outrider.wait_until("scaling", lambda: view.is_told("AutoscalingReady", "True", "Scaling"))
    pods = {pod["metadata"]["uid"] for pod in view.pods()}
    before = {
        "so": view.get("scaledobject")["metadata"]["uid"],
        "hpa": view.get("hpa", "keda-hpa-chat")["metadata"]["uid"],
    }
    target = view.target()
    with Load(outrider, "tuned", "chat", concurrency=64, acceptance=0.85) as load:
        outrider.wait_until("first change", lambda: view.memory()["generation"] > 1)
        outrider.wait_until("deep drafts", lambda: view.status()["tuning"]["speculativeTokens"] >= 3)
        load.acceptance = 0.2
        outrider.wait_until("short drafts", lambda: view.status()["tuning"]["speculativeTokens"] <= 1)
        outrider.wait_until("acknowledgement", lambda: view.status()["tuning"]["acknowledged"] == "2/2")
        for address in view.ready_addresses():
            # Steps under way when the schedule came still verify what they drafted, and a look at another K may come.
            outrider.wait_until(f"drafts of one token by {address}", partial(drafts_one_token, view, address))
        outrider.wait_until("another target", lambda: view.target() != target)
    assert load.outcomes.keys() == {"200"}
    assert {pod["metadata"]["uid"] for pod in view.pods()} == pods
    assert all(pod["status"]["containerStatuses"][0]["restartCount"] == 0 for pod in view.pods())
    after = {
        "so": view.get("scaledobject")["metadata"]["uid"],
        "hpa": view.get("hpa", "keda-hpa-chat")["metadata"]["uid"],
    }
    assert after == before
    assert view.resource()["metadata"]["generation"] == 1
    event(view, "reason=ScheduleChanged")
    event(view, "reason=TargetChanged")


def drafts_one_token(view: ServiceView, address: str) -> bool:
    """Whether an engine drafts for two seconds, and no deeper than K 1."""
    before = view.drafted_per_position(address)
    time.sleep(2.0)
    drafted = [b - a for a, b in zip(before, view.drafted_per_position(address), strict=True)]
    return drafted[0] > 0 and not any(drafted[2:])


@pytest.mark.failure(
    "Ourselves",
    "killed in the middle of a change",
    k="the change is completed; no engine jumps back",
    replicas="target and pods stay",
    alerts=["OutriderOperatorRestarts"],
    ends="start-up",
    guard="reconcile/persistence.py:load",
)
def test_killed_in_mid_change_it_completes_the_change_and_forgets_nothing(outrider: Cluster) -> None:
    """The decision is on record before any engine hears of it: whoever comes after carries it out."""
    view = serve(outrider, "killed", autoscaling={"minReplicas": 2, "maxReplicas": 2})
    outrider.wait_until("two engines", lambda: len(view.ready_addresses()) == 2)
    pods = {pod["metadata"]["uid"] for pod in view.pods()}
    with Load(outrider, "killed", "chat", concurrency=32, acceptance=0.85) as load:
        outrider.wait_until("first change", lambda: view.memory()["generation"] > 1)
        generation = view.memory()["generation"]
        load.acceptance = 0.2
        outrider.wait_until("decision on record", lambda: view.memory()["generation"] > generation)
        operator.kill(outrider)
        decided = view.memory()
        seen: list[Any] = []
        operator.start(outrider)

        def carried_out() -> bool:
            engines = [view.engine(address) for address in view.ready_addresses()]
            seen.extend(engine["schedule"] for engine in engines)
            return all(engine["generation"] >= decided["generation"] for engine in engines)

        outrider.wait_until("decision on the engines", carried_out)
        # No target moves within a minute of a change of schedule.
        outrider.wait_until("target of the decision", lambda: view.target() == str(decided["target"]))
        for _ in range(40):
            assert carried_out()
            time.sleep(0.25)
    assert decided["schedule"] != [[1, 256, 3]]
    assert [[1, 256, 3]] not in seen, "an engine fell back to the initial schedule"
    assert view.memory()["generation"] >= decided["generation"]
    assert {pod["metadata"]["uid"] for pod in view.pods()} == pods
    assert all(pod["status"]["containerStatuses"][0]["restartCount"] == 0 for pod in view.pods())


@pytest.mark.failure(
    "The cluster and its people",
    "the resource is deleted",
    replicas="all children go",
    ends="with the garbage collector's next look, without the operator too",
    guard="manifests/meta.py:metadata",
)
@pytest.mark.parametrize("running", [True, False], ids=["operator running", "operator stopped"])
def test_deleting_a_resource_takes_every_child_along(collected: Cluster, running: bool) -> None:
    outrider = collected
    view = serve(outrider, f"deleted-{str(running).lower()}")
    if not running:
        operator.stop(outrider)
    try:
        outrider.kubectl("delete", "sis", "chat", "-n", view.namespace, "--wait=true", PATIENTLY)
        outrider.wait_until("empty namespace", lambda: not view.children())
    finally:
        if not running:
            operator.start(outrider)


@pytest.mark.failure(
    "Prometheus",
    "gone",
    k="held",
    replicas="held",
    conditions=["MetricsAvailable False PrometheusUnreachable", "Ready True"],
    alerts=["OutriderMetricsMissing"],
    ends="with the first answer",
    guard="reconcile/control.py:ControlPass._fetch",
)
def test_without_prometheus_everything_stays_as_it_is_and_status_says_why(outrider: Cluster) -> None:
    view = serve(outrider, "blind")
    with Load(outrider, "blind", "chat", concurrency=8, acceptance=0.8):
        outrider.wait_until("metrics", lambda: view.condition("MetricsAvailable")[0] == "True")
        outrider.stop_process("prometheus")
        try:
            outrider.wait_until("condition", lambda: view.is_told("MetricsAvailable", "False", "PrometheusUnreachable"))
            held = view.status()["tuning"]["schedule"], view.target(), view.get("deployment")["spec"]["replicas"]
            time.sleep(6.0)
            now = view.status()["tuning"]["schedule"], view.target(), view.get("deployment")["spec"]["replicas"]
            assert now == held
            assert view.condition("Ready")[0] == "True"
        finally:
            outrider.restart_process("prometheus")
        outrider.wait_until("metrics again", lambda: view.condition("MetricsAvailable")[0] == "True")


@pytest.mark.failure(
    "Engines",
    "cannot start",
    conditions=["Ready False EngineCrashLoop"],
    status="with its last words",
    alerts=["OutriderServiceNotReady", "OutriderEngineRestarts"],
    ends="the kubelet's back-off",
    guard="reconcile/troubles.py:_ended",
)
def test_an_engine_that_cannot_start_is_never_called_ready_and_its_own_words_are_passed_on(
    outrider: Cluster, failure: Failure
) -> None:
    view = created(outrider, "crashing", engine={"extraArgs": ["--no-such-flag"]})
    # While it starts again for the first time it has crashed, and is in no loop yet.
    outrider.wait_until("crash loop", lambda: view.is_told("Ready", *failure.condition("Ready")))
    alerted(view, failure.alerts, ServiceView(outrider, "first", "chat"))
    view.says("Ready", "--no-such-flag")


def test_a_missing_token_is_named_and_the_service_starts_when_it_appears(outrider: Cluster) -> None:
    model = {"id": "org/gated", "servedName": "chat", "tokenSecret": {"name": "hub", "key": "token"}}
    view = created(outrider, "gated", model=model)
    outrider.wait_until("condition", lambda: view.is_told("Ready", "False", "SecretNotFound"))
    view.says("Ready", "hub")
    outrider.kubectl("create", "secret", "generic", "hub", "-n", "gated", "--from-literal=token=t")
    outrider.wait_until("ready service", lambda: view.is_told("Ready", "True"))


def test_autoscaling_turned_off_and_on_again_never_drops_replicas(outrider: Cluster) -> None:
    scaled = {"minReplicas": 3, "maxReplicas": 4}
    view = serve(outrider, "handover", autoscaling=scaled)
    outrider.wait_until("three engines", lambda: len(view.ready_addresses()) == 3)
    with Numbers(outrider, "handover", "chat") as numbers:
        for scaling, kept in (({"mode": "Off"}, False), (scaled, True)):
            view.apply(example("handover", autoscaling=scaling))
            outrider.wait_until("ScaledObject or none", lambda: bool(view.get("scaledobject")) == kept)  # noqa: B023
            time.sleep(6.0)
        assert set(numbers.seen) == {3}
    assert len(view.ready_addresses()) == 3


def test_a_paused_service_is_left_as_it_is(outrider: Cluster) -> None:
    view = serve(outrider, "paused")
    uid = view.get("deployment")["metadata"]["uid"]
    view.apply(example("paused", paused=True, engine={"maxNumSeqs": 128}))
    outrider.wait_until("second generation", lambda: view.status()["observedGeneration"] == 2)
    deployment = view.get("deployment")
    assert (deployment["metadata"]["uid"], deployment["metadata"]["generation"]) == (uid, 1)
    assert view.status()["effective"]["maxNumSeqs"] == 256, "what runs, and not what waits"
    row = outrider.kubectl("get", "sis", "chat", "-n", "paused", "--no-headers").stdout.split()
    assert row[:3] == ["chat", "True", "Paused"]
    view.apply(example("paused", engine={"maxNumSeqs": 128}))
    outrider.wait_until("third generation", lambda: view.status()["observedGeneration"] == 3)
    event(view, "reason=EnginesRolling", "--max-num-seqs")


@pytest.mark.failure(
    "The cluster and its people",
    "a child's name is taken",
    conditions=["Ready False NameTaken"],
    alerts=["OutriderServiceNotReady"],
    ends="when it is gone",
    guard="reconcile/children.py:_refuse_foreign",
)
def test_an_object_that_belongs_to_someone_else_is_not_taken(outrider: Cluster, failure: Failure) -> None:
    outrider.kubectl("create", "namespace", "taken")
    outrider.kubectl("create", "service", "clusterip", "chat", "-n", "taken", "--tcp=80")
    view = ServiceView(outrider, "taken", "chat")
    view.apply(example("taken"))
    outrider.wait_until("condition", lambda: view.is_told("Ready", "False", "NameTaken"))
    told = {one["type"]: one for one in view.status()["conditions"]}
    for type_ in ("Ready", "EngineReady", "AutoscalingReady"):
        assert told[type_]["reason"] == "NameTaken"
        assert "Service/chat exists and belongs to someone else" in told[type_]["message"]
    assert "Reconciling" not in told
    alerted(view, failure.alerts, ServiceView(outrider, "first", "chat"))
    event(view, "type=Warning", "NameTaken")
    assert "serving.outrider.dev/service" not in view.get("service")["metadata"].get("labels", {})
    outrider.kubectl("delete", "service", "chat", "-n", "taken")
    outrider.wait_until("ready service", lambda: view.is_told("Ready", "True"))
    quiet(view, failure.alerts)


def test_a_monitor_that_is_no_longer_wanted_goes(outrider: Cluster) -> None:
    view = serve(outrider, "monitored")
    outrider.wait_until("monitor", lambda: bool(view.get("podmonitor")))
    view.apply(example("monitored", monitoring={"podMonitor": False}))
    outrider.wait_until("end of the monitor", lambda: not view.get("podmonitor"))


def test_a_policy_comes_is_mended_and_goes_with_its_field(outrider: Cluster) -> None:
    view = serve(outrider, "closed", networkPolicy={"enabled": True})
    outrider.wait_until("policy", lambda: bool(view.get("networkpolicy")))
    change = '{"spec": {"ingress": []}}'
    outrider.kubectl("patch", "networkpolicy", "chat", "-n", "closed", "--type=merge", "-p", change)
    outrider.wait_until("rules", lambda: len(view.get("networkpolicy")["spec"].get("ingress", [])) == 2)
    view.apply(example("closed"))
    outrider.wait_until("end of the policy", lambda: not view.get("networkpolicy"))


def test_what_the_api_server_refuses_of_a_users_own_template_is_named(outrider: Cluster) -> None:
    view = serve(outrider, "refused")
    before = view.get("deployment")["spec"]["template"]
    view.apply(example("refused", podTemplate={"spec": {"containers": [{"name": "guard"}]}}))
    outrider.wait_until("condition", lambda: view.is_told("Ready", "False", "FieldRefused"))
    view.says("Ready", "spec.podTemplate.spec")
    view.says("Ready", "spec.template.spec.containers[1].image: Required value")
    assert view.get("deployment")["spec"]["template"] == before, "nothing restarts"
    view.apply(example("refused"))
    outrider.wait_until("ready service", lambda: view.is_told("Ready", "True"))


@pytest.mark.failure(
    "The cluster and its people",
    "a child is deleted or edited",
    ends="mended at once",
    guard="reconcile/registry.py:Registry.child_event",
)
def test_a_child_that_somebody_deletes_or_edits_is_mended(outrider: Cluster) -> None:
    view = serve(outrider, "mended")
    before = view.get("service")["spec"]["selector"]
    outrider.kubectl("delete", "poddisruptionbudget", "chat", "-n", "mended")
    outrider.kubectl(
        "patch", "service", "chat", "-n", "mended", "--type=merge", "-p", '{"spec": {"selector": {"a": "b"}}}'
    )
    outrider.wait_until("budget", lambda: bool(view.get("poddisruptionbudget")))
    outrider.wait_until("selector", lambda: view.get("service")["spec"]["selector"] == before)


@pytest.mark.failure(
    "The cluster and its people",
    "another field manager takes a field of a child",
    status="ours is ours again; what we never set stays theirs",
    ends="mended at once",
    guard="adapters/kube.py:Kube.apply",
)
def test_a_field_that_another_manager_takes_is_taken_back_and_its_own_stay(outrider: Cluster) -> None:
    view = ServiceView(outrider, "mended", "chat")
    if not view.resource():
        view = serve(outrider, "mended")
    ours = view.get("service")["spec"]["selector"]
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat", "namespace": "mended", "annotations": {"team": "ml"}},
        "spec": {"selector": {"app": "theirs"}},
    }
    asked = ("apply", "--server-side", "--force-conflicts", "--field-manager=gitops", "-f", "-")
    outrider.kubectl(*asked, input=yaml.safe_dump(theirs))
    outrider.wait_until("our selector", lambda: view.get("service")["spec"]["selector"] == ours)
    assert view.get("service")["metadata"]["annotations"]["team"] == "ml"


@pytest.mark.failure(
    "The cluster and its people",
    "the namespace is deleted",
    replicas="all children go, and none is made again",
    conditions=["Ready False NamespaceTerminating"],
    status="until the resource goes; its series are exported no more; other services do not notice",
    ends="with the namespace",
    guard="reconcile/registry.py:Registry.resource_event",
)
def test_a_namespace_that_is_deleted_goes_and_nothing_is_made_again_in_it(outrider: Cluster) -> None:
    view, beside = serve(outrider, "ending"), ServiceView(outrider, "first", "chat")
    outrider.wait_until("series", lambda: ("ending", "chat") in known(outrider))
    outrider.kubectl("delete", "namespace", "ending", "--wait=true", PATIENTLY)
    outrider.wait_until("end of its series", lambda: ("ending", "chat") not in known(outrider))
    assert view.children() == []
    assert beside.condition("Ready")[0] == "True"
    errors = [line for line in operator.log(outrider).splitlines() if "internal error" in line]
    assert errors == []


def known(cluster: Cluster) -> set[tuple[str, str]]:
    """Services that the operator exports a condition of."""
    return series(cluster, 'outrider_condition{type="Ready"}')


@pytest.mark.failure(
    "API server",
    "restarts",
    k="stays",
    replicas="stay",
    conditions=["Ready True"],
    ends="a change is applied with its return; where it takes longer than the Lease, after a start",
    guard="reconcile/election.py:Election.keep",
)
def test_an_api_server_that_restarts_costs_nothing_and_is_heard_again(outrider: Cluster, failure: Failure) -> None:
    view = serve(outrider, "restarted")
    outrider.wait_until("acknowledgement", lambda: view.condition("ScheduleApplied")[0] == "True")
    before = view.memory()["generation"], {pod["metadata"]["uid"] for pod in view.pods()}
    outrider.stop_process("kube-apiserver")
    time.sleep(2.0)
    outrider.restart_process("kube-apiserver")
    outrider.wait_ready()
    view.apply(example("restarted", monitoring={"podMonitor": False}))

    def applied() -> bool:
        if outrider.exit_status(operator.PROCESS) is not None:  # a busy machine took longer than the Lease allows
            operator.stop(outrider)
            operator.start(outrider)
        return not view.get("podmonitor")

    outrider.wait_until("the change applied", applied)
    outrider.wait_until("ready service", lambda: view.is_told("Ready", failure.condition("Ready")[0]))
    assert (view.memory()["generation"], {pod["metadata"]["uid"] for pod in view.pods()}) == before


MODULE_TESTS = 21
UNUSED_HERE = {
    ("update", "speculativeinferenceservices/finalizers"),  # the API server asks for it, we never call it
    *(("delete", "deployments"), ("create", "jobs"), ("get", "jobs")),  # of candidates, which other modules try
}


def test_every_call_was_allowed_and_every_right_was_used(outrider: Cluster, request: pytest.FixtureRequest) -> None:
    """Runs last in this module, over all that the tests before made the operator do."""
    here = [item for item in request.session.items if item.path == request.path]
    if len(here) < MODULE_TESTS:
        pytest.skip(
            f"{len(here)} of the module's {MODULE_TESTS} tests run: rights that the others need would look unused"
        )
    made = list(rights.calls(outrider.logs / "audit.log"))
    assert not [call for call in made if call.denied]
    used = {(call.right.verb, call.right.resource) for call in made}
    role = yaml.safe_load(outrider.kubectl("get", "clusterrole", "outrider", "-o", "yaml").stdout)
    granted = {(verb, resource) for rule in role["rules"] for verb in rule["verbs"] for resource in rule["resources"]}
    assert granted - used == UNUSED_HERE
