"""The way from load to replicas, broken at each of its joints on a real control plane with the real KEDA."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.failures import Failure
from tests.testbed import operator, rights
from tests.testbed.alerting import alerted, quiet
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.keda import API_SERVICE
from tests.testbed.load import Load
from tests.testbed.scaling import hpa, replicas, scale, serve, wait
from tests.testbed.service import ServiceView
from tests.testbed.startup import TIMEOUT_S

DEFINITION = "scaledobjects.keda.sh"
SCALING = ("True", "Scaling")


@pytest.fixture(scope="module")
def view(start_cluster: StartCluster) -> Iterator[ServiceView]:
    """A service with two to four replicas that scales."""
    cluster = start_cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5)
    operator.install(cluster)
    operator.start(cluster)
    cluster.kubectl("create", "namespace", "ml")
    found = ServiceView(cluster, "ml", "chat")
    scale(found, {"minReplicas": 1, "maxReplicas": 4})
    until(found, SCALING)
    yield found
    operator.stop(cluster)


def until(view: ServiceView, expected: tuple[str, ...]) -> None:
    """Wait for status and reason of AutoscalingReady; whatever they are, the service answers."""
    wait(view, "AutoscalingReady", *expected)
    wait(view, "Ready", "True", "EnginesServe")


def bounds(view: ServiceView) -> tuple[int, int]:
    """Fewest and most replicas, by the HPA."""
    spec = hpa(view)["spec"]
    return spec["minReplicas"], spec["maxReplicas"]


def stored(cluster: Cluster, kind: str, name: str) -> str:
    """An object as it can be applied again."""
    found = json.loads(cluster.kubectl("get", kind, name, "-o", "json").stdout)
    kept = {key: value for key, value in found["metadata"].items() if key in ("name", "labels", "annotations")}
    return json.dumps({**{key: value for key, value in found.items() if key != "status"}, "metadata": kept})


@pytest.mark.failure(
    "KEDA and the HPA",
    "another adapter takes KEDA's questions",
    k="as usual",
    replicas="stay",
    conditions=["AutoscalingReady False ExternalMetricsTaken"],
    status="with its name",
    alerts=["OutriderAutoscalingNotReady"],
    ends="when KEDA has them back",
    guard="reconcile/scaling_path.py:adapter",
)
def test_an_adapter_that_takes_the_hpas_questions_is_named_and_no_replica_goes(
    view: ServiceView, failure: Failure
) -> None:
    """KEDA goes on to call its ScaledObject ready, and does not fall back (kedacore/keda#6475)."""
    cluster = view.cluster
    with Load(cluster, "ml", "chat", concurrency=96, acceptance=0.8):
        cluster.wait_until("more replicas", lambda: replicas(view) > 1)
        kept = stored(cluster, "apiservice", API_SERVICE)
        other = '{"spec": {"service": {"namespace": "monitoring", "name": "prometheus-adapter"}}}'
        cluster.kubectl("patch", "apiservice", API_SERVICE, "--type=merge", "-p", other)
        until(view, failure.condition("AutoscalingReady"))
        alerted(view, failure.alerts)
        view.says("AutoscalingReady", "monitoring/prometheus-adapter")
        before = replicas(view)
    time.sleep(20.0)  # twice as long as the HPA looks back before it takes a replica away
    assert replicas(view) == before > 1
    cluster.kubectl("delete", "apiservice", API_SERVICE)
    until(view, ("False", "ExternalMetricsUnavailable"))
    assert replicas(view) == before
    cluster.kubectl("create", "-f", "-", input=kept)
    until(view, SCALING)
    quiet(view, failure.alerts)


@pytest.mark.failure(
    "KEDA and the HPA",
    "KEDA's adapter is gone",
    k="as usual",
    conditions=["AutoscalingReady False ExternalMetricsUnavailable"],
    alerts=["OutriderAutoscalingNotReady"],
    ends="with its return",
    guard="reconcile/scaling_path.py:adapter",
)
def test_an_adapter_that_is_gone_is_told_in_the_words_of_the_api_server(view: ServiceView, failure: Failure) -> None:
    view.cluster.stop_process("keda-adapter")
    try:
        until(view, failure.condition("AutoscalingReady"))
        alerted(view, failure.alerts)
        view.says("AutoscalingReady", "keda/keda-metrics-apiserver does not answer: FailedDiscoveryCheck")
    finally:
        view.cluster.restart_process("keda-adapter")
    until(view, SCALING)
    quiet(view, failure.alerts)


@pytest.mark.failure(
    "KEDA and the HPA",
    "KEDA cannot keep replicas without metrics",
    k="as usual",
    conditions=["AutoscalingReady False KEDATooOld"],
    alerts=["OutriderAutoscalingNotReady"],
    ends="when it can",
    guard="reconcile/scaling_path.py:too_old",
)
def test_a_keda_that_cannot_keep_replicas_is_told_to_be_too_old(view: ServiceView, failure: Failure) -> None:
    kept = stored(view.cluster, "crd", DEFINITION)
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/fallback/properties/behavior"
    patch = json.dumps([{"op": "remove", "path": path}])
    view.cluster.kubectl("patch", "crd", DEFINITION, "--type=json", "-p", patch)
    until(view, failure.condition("AutoscalingReady"))
    alerted(view, failure.alerts)
    view.cluster.kubectl("replace", "-f", "-", input=kept)
    until(view, SCALING)
    quiet(view, failure.alerts)


@pytest.mark.failure(
    "KEDA and the HPA",
    "KEDA's definitions go",
    k="as usual",
    replicas="stay",
    conditions=["AutoscalingReady False KEDAMissing"],
    alerts=["OutriderAutoscalingNotReady"],
    ends="when they are back",
    guard="reconcile/objects.py:ObjectsPass._keda",
)
def test_definitions_that_go_leave_the_replicas_and_bring_scaling_back_with_them(
    view: ServiceView, failure: Failure
) -> None:
    cluster = view.cluster
    scale(view, {"minReplicas": 2, "maxReplicas": 2})  # the HPA may be giving up what a load before had made it ask for
    serve(view, 2)
    cluster.wait_until("bounds of the HPA", lambda: bounds(view) == (2, 2))
    until(view, SCALING)
    kept = stored(cluster, "crd", DEFINITION)
    cluster.kubectl("delete", "crd", DEFINITION, f"--timeout={TIMEOUT_S:.0f}s")
    until(view, failure.condition("AutoscalingReady"))
    alerted(view, failure.alerts)
    assert replicas(view) == 2
    cluster.kubectl("create", "-f", "-", input=kept)
    cluster.wait_for_definition(DEFINITION)
    until(view, SCALING)
    quiet(view, failure.alerts)


def test_nothing_of_it_was_denied(view: ServiceView) -> None:
    denied = [call for call in rights.calls(view.cluster.logs / "audit.log") if call.denied]
    assert not denied
