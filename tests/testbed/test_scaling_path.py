"""The way from load to replicas, broken at each of its joints on a real control plane with the real KEDA."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed import operator, rights
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.keda import API_SERVICE
from tests.testbed.load import Load
from tests.testbed.service import ServiceView

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
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
    manifest: dict[str, Any] = yaml.safe_load((EXAMPLES / "01-minimal.yaml").read_text())
    manifest["metadata"]["namespace"] = "ml"
    manifest["spec"]["autoscaling"] = {"minReplicas": 1, "maxReplicas": 4}
    found.apply(manifest)
    until(found, SCALING)
    yield found
    operator.stop(cluster)


def until(view: ServiceView, expected: tuple[str, str]) -> None:
    """Wait for status and reason of AutoscalingReady; whatever they are, the service answers."""
    view.cluster.wait_until(f"AutoscalingReady {expected}", lambda: view.condition("AutoscalingReady") == expected, 120)
    assert view.condition("Ready") == ("True", "EnginesServe")


def replicas(view: ServiceView) -> int:
    return int(view.get("deployment")["spec"]["replicas"])


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
def test_an_adapter_that_takes_the_hpas_questions_is_named_and_no_replica_goes(view: ServiceView) -> None:
    """KEDA goes on to call its ScaledObject ready, and does not fall back (kedacore/keda#6475)."""
    cluster = view.cluster
    with Load(cluster, "ml", "chat", concurrency=96, acceptance=0.8):
        cluster.wait_until("more replicas", lambda: replicas(view) > 1, 90)
        kept = stored(cluster, "apiservice", API_SERVICE)
        other = '{"spec": {"service": {"namespace": "monitoring", "name": "prometheus-adapter"}}}'
        cluster.kubectl("patch", "apiservice", API_SERVICE, "--type=merge", "-p", other)
        until(view, ("False", "ExternalMetricsTaken"))
        view.says("AutoscalingReady", "monitoring/prometheus-adapter")
        before = replicas(view)
    time.sleep(20.0)  # twice as long as the HPA looks back before it takes a replica away
    assert replicas(view) == before > 1
    cluster.kubectl("delete", "apiservice", API_SERVICE)
    until(view, ("False", "ExternalMetricsUnavailable"))
    assert replicas(view) == before
    cluster.kubectl("create", "-f", "-", input=kept)
    until(view, SCALING)


@pytest.mark.failure(
    "KEDA and the HPA",
    "KEDA's adapter is gone",
    k="as usual",
    conditions=["AutoscalingReady False ExternalMetricsUnavailable"],
    alerts=["OutriderAutoscalingNotReady"],
    ends="with its return",
    guard="reconcile/scaling_path.py:adapter",
)
def test_an_adapter_that_is_gone_is_told_in_the_words_of_the_api_server(view: ServiceView) -> None:
    view.cluster.stop_process("keda-adapter")
    try:
        until(view, ("False", "ExternalMetricsUnavailable"))
        view.says("AutoscalingReady", "keda/keda-metrics-apiserver does not answer: FailedDiscoveryCheck")
    finally:
        view.cluster.restart_process("keda-adapter")
    until(view, SCALING)


@pytest.mark.failure(
    "KEDA and the HPA",
    "KEDA cannot keep replicas without metrics",
    k="as usual",
    conditions=["AutoscalingReady False KEDATooOld"],
    alerts=["OutriderAutoscalingNotReady"],
    ends="when it can",
    guard="reconcile/scaling_path.py:too_old",
)
def test_a_keda_that_cannot_keep_replicas_is_told_to_be_too_old(view: ServiceView) -> None:
    kept = stored(view.cluster, "crd", DEFINITION)
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/fallback/properties/behavior"
    patch = json.dumps([{"op": "remove", "path": path}])
    view.cluster.kubectl("patch", "crd", DEFINITION, "--type=json", "-p", patch)
    until(view, ("False", "KEDATooOld"))
    view.cluster.kubectl("replace", "-f", "-", input=kept)
    until(view, SCALING)


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
def test_definitions_that_go_leave_the_replicas_and_bring_scaling_back_with_them(view: ServiceView) -> None:
    cluster, before = view.cluster, replicas(view)
    kept = stored(cluster, "crd", DEFINITION)
    cluster.kubectl("delete", "crd", DEFINITION, "--timeout=60s")
    until(view, ("False", "KEDAMissing"))
    assert replicas(view) == before
    cluster.kubectl("create", "-f", "-", input=kept)
    cluster.wait_for_definition(DEFINITION)
    until(view, SCALING)


def test_nothing_of_it_was_denied(view: ServiceView) -> None:
    denied = [call for call in rights.calls(view.cluster.logs / "audit.log") if call.denied]
    assert not denied
