"""Who sets the number of replicas, on a real control plane with KEDA, the HPA's controller and Prometheus."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed import kstatus, operator
from tests.testbed.cluster import Cluster
from tests.testbed.errors import ClusterError
from tests.testbed.fixtures import StartCluster
from tests.testbed.gateway import Gateway
from tests.testbed.load import Load
from tests.testbed.numbers import Numbers
from tests.testbed.service import ServiceView
from tests.testbed.store import Store

MINIMAL = Path(__file__).resolve().parents[2] / "examples" / "01-minimal.yaml"
LOOK_BACK_S = 600
"""Longer than a test: the HPA then gives no replica up, and one that goes was taken by somebody else."""
SEEN_BY_THE_HPA_S = 10.0
"""Three of its looks on this cluster."""


@pytest.fixture(scope="module")
def started(start_cluster: StartCluster) -> Iterator[tuple[Cluster, Store]]:
    """A cluster with Outrider on it, and the way to its Prometheus."""
    cluster = start_cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5, nodes=6)
    cluster.kubectl("apply", "-f", str(Path(__file__).with_name("pod_monitor_crd.yaml")))
    operator.install(cluster)
    with Store(cluster.prometheus_url, cluster.port("store")) as store:
        operator.start(cluster, through(store))
        yield cluster, store
        operator.stop(cluster)


@pytest.fixture
def outrider(started: tuple[Cluster, Store]) -> Cluster:
    return started[0]


@pytest.fixture
def store(started: tuple[Cluster, Store]) -> Store:
    return started[1]


@pytest.fixture
def chat(outrider: Cluster, request: pytest.FixtureRequest) -> Iterator[ServiceView]:
    """A namespace for a service `chat`, which gives its GPUs back when the test ends."""
    namespace = request.node.name.split("[")[0].removeprefix("test_")[:50].replace("_", "-").strip("-")
    outrider.kubectl("create", "namespace", namespace)
    yield ServiceView(outrider, namespace, "chat")
    outrider.kubectl("delete", "hpa,scaledobject,sis", "--all", "-n", namespace, "--wait=false")
    outrider.kubectl("delete", "deployment", "chat", "-n", namespace, "--ignore-not-found", "--wait=false")


def through(store: Store) -> dict[str, str]:
    """Settings of an operator that reaches Prometheus through the store, and so does KEDA."""
    return {"OUTRIDER_PROMETHEUS_URL": store.url}


def scale(view: ServiceView, scaling: dict[str, Any] | None, **changes: Any) -> None:
    """Apply the minimal example with another autoscaling block."""
    manifest = yaml.safe_load(MINIMAL.read_text())
    manifest["metadata"]["namespace"] = view.namespace
    manifest["spec"] |= {"autoscaling": scaling, **changes}
    if scaling is None:
        del manifest["spec"]["autoscaling"]
    view.apply(manifest)


def wait(view: ServiceView, type_: str, *expected: str, timeout_s: float = 90) -> None:
    """Wait for status, and reason where one is given, of a condition."""
    what = f"{type_} {' '.join(expected)}"
    view.cluster.wait_until(what, lambda: view.condition(type_)[: len(expected)] == expected, timeout_s)


def serve(view: ServiceView, replicas: int) -> None:
    """Wait for so many engines that serve."""
    view.cluster.wait_until(f"{replicas} engines", lambda: len(view.ready_addresses()) == replicas, 90)


def message(view: ServiceView, type_: str) -> str:
    """What a condition says."""
    return next((str(one["message"]) for one in view.status()["conditions"] if one["type"] == type_), "")


def replicas(view: ServiceView) -> int:
    """The number that the Deployment has."""
    return int(view.get("deployment")["spec"]["replicas"])


def between(least: int, most: int, **more: Any) -> dict[str, Any]:
    """KEDA between bounds, without giving a replica up."""
    return {"minReplicas": least, "maxReplicas": most, "scaleDownStabilizationSeconds": LOOK_BACK_S, **more}


def demand(number: int) -> dict[str, Any]:
    """A trigger that wants so many replicas."""
    return {"name": "demand", "query": f"vector({number})", "metricType": "AverageValue", "target": 1}


def plain_hpa(outrider: Cluster, view: ServiceView, number: int) -> None:
    """An HPA of the user's own that wants a number of replicas, whatever its metric says."""
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
        "minReplicas": number,
        "maxReplicas": number,
        "metrics": [cpu],
    }
    manifest = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "by-hand", "namespace": view.namespace},
        "spec": spec,
    }
    outrider.kubectl("apply", "-f", "-", input=yaml.safe_dump(manifest))


def test_twelve_replicas_change_hands_between_all_modes_without_a_dip(outrider: Cluster, chat: ServiceView) -> None:
    scale(chat, {"mode": "Off", "minReplicas": 12})
    serve(chat, 12)
    pods = {pod["metadata"]["uid"] for pod in chat.pods()}
    keda, external, nobody = between(1, 14), {"mode": "External"}, {"mode": "Off"}
    reasons = {"KEDA": "Scaling", "External": "ExternalAutoscaler", "Off": "FixedReplicas"}
    with Numbers(outrider, chat.namespace, "chat") as numbers:
        for scaling in (keda, nobody, external, keda, external, nobody, None, keda):
            scale(chat, scaling)
            mode = "Off" if scaling is None else scaling.get("mode", "KEDA")
            wait(chat, "AutoscalingReady", "True", reasons[mode])
            outrider.wait_until("ScaledObject or none", lambda: bool(chat.get("scaledobject")) == (mode == "KEDA"), 30)  # noqa: B023
            time.sleep(SEEN_BY_THE_HPA_S)
        assert set(numbers.seen) == {12}
    assert {pod["metadata"]["uid"] for pod in chat.pods()} == pods


def test_an_autoscaler_of_the_users_own_is_left_alone(outrider: Cluster, chat: ServiceView) -> None:
    """Whichever way the user resolves it, nobody fights, and no replica goes."""
    plain_hpa(outrider, chat, 3)
    scale(chat, between(1, 6))
    serve(chat, 3)
    wait(chat, "AutoscalingReady", "False", "ForeignAutoscaler")
    assert "HorizontalPodAutoscaler/by-hand scales the same Deployment" in message(chat, "AutoscalingReady")
    assert not chat.get("scaledobject")
    with Numbers(outrider, chat.namespace, "chat") as numbers:
        scale(chat, {"mode": "External"})
        wait(chat, "AutoscalingReady", "True", "ExternalAutoscaler")
        plain_hpa(outrider, chat, 4)
        outrider.wait_until("the HPA's number", lambda: replicas(chat) == 4, 30)
        scale(chat, between(1, 6))
        wait(chat, "AutoscalingReady", "False", "ForeignAutoscaler")
        outrider.kubectl("delete", "hpa", "by-hand", "-n", chat.namespace)
        wait(chat, "AutoscalingReady", "True", "Scaling")
        time.sleep(SEEN_BY_THE_HPA_S)
        assert sorted(set(numbers.seen)) == [3, 4]
        assert replicas(chat) == 4


def test_a_scaled_object_of_the_users_own_is_left_alone(outrider: Cluster, chat: ServiceView) -> None:
    """Of the very name that ours would have."""
    metadata = {"serverAddress": outrider.prometheus_url, "query": "vector(2)", "threshold": "1"}
    trigger = {"type": "prometheus", "metadata": metadata}
    spec = {"scaleTargetRef": {"name": "chat"}, "minReplicaCount": 1, "maxReplicaCount": 6, "triggers": [trigger]}
    meta = {"name": "chat", "namespace": chat.namespace}
    manifest = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": meta, "spec": spec}
    outrider.kubectl("apply", "-f", "-", input=yaml.safe_dump(manifest))
    before = chat.get("scaledobject")["spec"]
    scale(chat, between(1, 6, triggers=[demand(2)]))
    serve(chat, 2)
    wait(chat, "AutoscalingReady", "False", "ForeignAutoscaler")
    wait(chat, "Ready", "True")
    assert "ScaledObject/chat scales the same Deployment" in message(chat, "AutoscalingReady")
    assert chat.get("scaledobject")["spec"] == before
    with Numbers(outrider, chat.namespace, "chat") as numbers:
        outrider.kubectl("delete", "scaledobject", "chat", "-n", chat.namespace)
        wait(chat, "AutoscalingReady", "True", "Scaling")
        time.sleep(SEEN_BY_THE_HPA_S)
        assert set(numbers.seen) == {2}


def test_scaled_by_desired_replicas_and_without_the_operator_none_goes(
    outrider: Cluster, store: Store, chat: ServiceView
) -> None:
    scale(chat, {"minReplicas": 1, "maxReplicas": 4, "scaleBy": "DesiredReplicas"})
    serve(chat, 1)
    wait(chat, "AutoscalingReady", "True", "Scaling")
    before = chat.get("scaledobject"), chat.get("hpa", "keda-hpa-chat")
    target = chat.memory()["target"]
    with Load(outrider, chat.namespace, "chat", concurrency=200, acceptance=0.8) as load:
        serve(chat, 4)
        outrider.wait_until("another capacity", lambda: chat.memory()["target"] != target, 120)
        with Numbers(outrider, chat.namespace, "chat") as numbers:
            operator.stop(outrider)
            time.sleep(30.0)  # three times what the HPA looks back here, and KEDA's polls until it falls back
            assert set(numbers.seen) == {4}
            operator.start(outrider, through(store))
            wait(chat, "AutoscalingReady", "True", "Scaling")
            assert set(numbers.seen) == {4}
    assert set(load.outcomes) == {"200"}
    after = chat.get("scaledobject"), chat.get("hpa", "keda-hpa-chat")
    assert [one["spec"] for one in after] == [one["spec"] for one in before], "KEDA was never given another target"
    assert [one["metadata"]["uid"] for one in after] == [one["metadata"]["uid"] for one in before]


def test_c21_a_second_writer_is_named_and_nobody_else_moves_the_number(
    outrider: Cluster, store: Store, chat: ServiceView
) -> None:
    scale(chat, {"minReplicas": 1, "maxReplicas": 6, "triggers": [demand(4)]})
    serve(chat, 4)
    wait(chat, "AutoscalingReady", "True", "Scaling")
    with Numbers(outrider, chat.namespace, "chat") as numbers:
        for number in range(10):
            outrider.kubectl("label", "sis", "chat", "-n", chat.namespace, "--overwrite", f"n={number}")
        operator.stop(outrider)
        operator.start(outrider, through(store))
        scale(chat, {"minReplicas": 1, "maxReplicas": 7, "triggers": [demand(4)]})  # a full pass
        outrider.wait_until("other bounds", lambda: chat.get("scaledobject")["spec"]["maxReplicaCount"] == 7, 60)
        time.sleep(SEEN_BY_THE_HPA_S)
        assert set(numbers.seen) == {4}
        assert chat.condition("ReplicasContended") == ("", "")
        change = '{"spec": {"replicas": 1}}'
        command = ("patch", "deployment", "chat", "-n", chat.namespace, "--field-manager=from-git", "--type=merge")
        outrider.kubectl(*command, "-p", change)
        wait(chat, "ReplicasContended", "True", "ForeignWriter")
        falls = [(before, one) for before, one in pairwise(numbers.seen) if one < before]
        assert falls == [(4, 1)], "the other writer's; what the HPA makes of it only rises"
    assert "field manager from-git set replicas from 4 to 1" in message(chat, "ReplicasContended")
    wait(chat, "Ready", "True")


def test_c20_a_blind_and_then_absent_prometheus_costs_no_replica(
    outrider: Cluster, store: Store, chat: ServiceView
) -> None:
    """The HPA looks back 10 s here: had silence counted as zero, replicas would have begun to go."""
    scale(chat, {"minReplicas": 1, "maxReplicas": 8, "triggers": [demand(6)]})
    serve(chat, 6)
    wait(chat, "AutoscalingReady", "True", "Scaling")
    wait(chat, "MetricsAvailable", "True")
    schedule = chat.status()["tuning"]["schedule"]
    with Numbers(outrider, chat.namespace, "chat") as numbers:
        try:
            store.empty = True
            wait(chat, "MetricsAvailable", "False", "NoSeries")
            wait(chat, "AutoscalingReady", "False")
            time.sleep(SEEN_BY_THE_HPA_S)
            store.close()
            wait(chat, "MetricsAvailable", "False", "PrometheusUnreachable")
            time.sleep(20.0)
            assert chat.status()["tuning"]["schedule"] == schedule
            assert chat.condition("Ready")[0] == "True"
        finally:
            store.empty = False
            if not store.listens:
                store.open()
        wait(chat, "MetricsAvailable", "True")
        wait(chat, "AutoscalingReady", "True", "Scaling")
        assert min(numbers.seen) == 6


def test_c20_a_new_service_starts_though_prometheus_knows_nothing(store: Store, chat: ServiceView) -> None:
    store.empty = True
    try:
        scale(chat, {"minReplicas": 2, "maxReplicas": 4})
        serve(chat, 2)
        wait(chat, "Ready", "True", "EnginesServe")
    finally:
        store.empty = False


def test_c23_a_target_that_moves_takes_no_replica_and_remakes_no_object(
    outrider: Cluster, store: Store, chat: ServiceView
) -> None:
    """Six replicas are wanted throughout; in mode Observe the target stays what the memory says."""
    tuning = yaml.safe_load(MINIMAL.read_text())["spec"]["speculation"] | {"tuning": {"mode": "Observe"}}
    scaling = {"minReplicas": 1, "maxReplicas": 8, "triggers": [demand(6)]}
    scale(chat, scaling, speculation=tuning)
    serve(chat, 6)
    wait(chat, "AutoscalingReady", "True", "Scaling")
    before = [chat.get("scaledobject"), chat.get("hpa", "keda-hpa-chat")]
    with Numbers(outrider, chat.namespace, "chat") as numbers:
        for target in (5, 8, 5):
            operator.stop(outrider)
            remember(chat, target)
            operator.start(outrider, through(store))
            outrider.wait_until("target", lambda: chat.target() == str(target), 60)  # noqa: B023
            averages = {str(target), str(max(1, target // 8)), "80", "1"}
            outrider.wait_until("target of the HPA", lambda: averages == hpa_targets(chat), 30)  # noqa: B023
            time.sleep(SEEN_BY_THE_HPA_S)
        assert set(numbers.seen) == {6}
    after = [chat.get("scaledobject"), chat.get("hpa", "keda-hpa-chat")]
    assert [one["metadata"]["uid"] for one in after] == [one["metadata"]["uid"] for one in before]
    with pytest.raises(ClusterError, match="minReplicas 10 is above maxReplicas 4"):
        scale(chat, {"minReplicas": 10, "maxReplicas": 4})


def test_none_runs_while_nothing_asks_and_a_request_at_the_gateway_wakes_one(
    outrider: Cluster, chat: ServiceView
) -> None:
    """The gateway's metric is one that the test sets: a stand-in for what a router in front exports."""
    with Gateway(outrider) as gateway:
        gateway.requests = 1
        query = "sum(gateway_requests)"
        idle = {"minReplicas": 0, "maxReplicas": 4, "idle": {"afterSeconds": 5, "wakeQuery": query}}
        scale(chat, idle, startup={"budgetSeconds": 60})
        serve(chat, 1)
        wait(chat, "Ready", "True", "EnginesServe")
        uids = chat.get("scaledobject")["metadata"]["uid"]
        for _ in range(2):
            gateway.requests = 0
            wait(chat, "Ready", "True", "Idle", timeout_s=120)
            assert replicas(chat) == 0
            assert kstatus.verdict(chat.resource()) == "Current"
            time.sleep(35.0)  # two polls of KEDA, with engine triggers that have no answer
            assert replicas(chat) == 0, "triggers of engines that are not there wake nobody"
            gateway.requests = 3
            outrider.wait_until("a replica", lambda: replicas(chat) == 1, 60)
            wait(chat, "Ready", "True", "EnginesServe")
        assert chat.get("scaledobject")["metadata"]["uid"] == uids


def remember(view: ServiceView, target: int) -> None:
    """Put another target into the memory document of an operator that does not run."""
    text = json.dumps(view.memory() | {"target": target})
    patch = json.dumps({"data": {"memory.json": text}})
    view.cluster.kubectl("patch", "configmap", "chat-memory", "-n", view.namespace, "--type=merge", "-p", patch)


def hpa_targets(view: ServiceView) -> set[str]:
    """The targets that the HPA has."""
    metrics = view.get("hpa", "keda-hpa-chat")["spec"]["metrics"]
    return {one["external"]["target"]["averageValue"] for one in metrics}
