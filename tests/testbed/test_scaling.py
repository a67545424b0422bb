"""Who sets the number of replicas, on a real control plane with KEDA, the HPA's controller and Prometheus."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
import yaml

from tests.testbed import operator
from tests.testbed.cluster import Cluster
from tests.testbed.errors import ClusterError
from tests.testbed.fixtures import StartCluster
from tests.testbed.load import Load
from tests.testbed.numbers import Numbers
from tests.testbed.scaling import (
    HPA_SYNC_S,
    MINIMAL,
    SEEN_BY_THE_HPA_S,
    between,
    create,
    demand,
    hpa,
    hpa_targets,
    named_after,
    outrider_behind,
    remove,
    replicas,
    scale,
    scale_to,
    serve,
    through,
    uids,
    wait,
    wait_replicas,
)
from tests.testbed.service import ServiceView
from tests.testbed.store import Store


@pytest.fixture(scope="module")
def started(start_cluster: StartCluster) -> Iterator[tuple[Cluster, Store]]:
    """A cluster with Outrider on it, and the way to its Prometheus."""
    parts = {"keda", "prometheus", "engines"}
    cluster = start_cluster(parts, scrape_interval_s=0.5, nodes=6, hpa_sync_s=HPA_SYNC_S)
    with Store(cluster.prometheus_url, cluster.port("store")) as store, outrider_behind(store, cluster):
        yield cluster, store


@pytest.fixture
def outrider(started: tuple[Cluster, Store]) -> Cluster:
    return started[0]


@pytest.fixture
def store(started: tuple[Cluster, Store]) -> Store:
    return started[1]


@pytest.fixture
def chat(outrider: Cluster, request: pytest.FixtureRequest) -> Iterator[ServiceView]:
    """A namespace for a service `chat`, which gives its GPUs back when the test ends."""
    view = create(outrider, named_after(request))
    yield view
    remove(view)


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
            outrider.wait_until("ScaledObject or none", lambda: bool(chat.get("scaledobject")) == (mode == "KEDA"))  # noqa: B023
            time.sleep(SEEN_BY_THE_HPA_S)
        assert set(numbers.seen) == {12}
    assert {pod["metadata"]["uid"] for pod in chat.pods()} == pods


def test_an_autoscaler_of_the_users_own_is_left_alone(outrider: Cluster, chat: ServiceView) -> None:
    """Whichever way the user resolves it, nobody fights, and no replica goes."""
    plain_hpa(outrider, chat, 3)
    scale(chat, between(1, 6))
    serve(chat, 3)
    wait(chat, "AutoscalingReady", "False", "ForeignAutoscaler")
    chat.says("AutoscalingReady", "HorizontalPodAutoscaler/by-hand scales the same Deployment")
    assert not chat.get("scaledobject")
    with Numbers(outrider, chat.namespace, "chat") as numbers:
        scale(chat, {"mode": "External"})
        wait(chat, "AutoscalingReady", "True", "ExternalAutoscaler")
        plain_hpa(outrider, chat, 4)
        wait_replicas(chat, 4)
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
    chat.says("AutoscalingReady", "ScaledObject/chat scales the same Deployment")
    assert chat.get("scaledobject")["spec"] == before
    with Numbers(outrider, chat.namespace, "chat") as numbers:
        outrider.kubectl("delete", "scaledobject", "chat", "-n", chat.namespace)
        wait(chat, "AutoscalingReady", "True", "Scaling")
        time.sleep(SEEN_BY_THE_HPA_S)
        assert set(numbers.seen) == {2}


def test_scaled_by_desired_replicas_and_without_the_operator_none_goes(
    outrider: Cluster, store: Store, chat: ServiceView
) -> None:
    look_back_s = 30  # a test that stands still sends no requests, and the operator, while it runs, then wants fewer
    scaling = {"minReplicas": 1, "maxReplicas": 4, "scaleBy": "DesiredReplicas"}
    scale(chat, scaling | {"scaleDownStabilizationSeconds": look_back_s})
    serve(chat, 1)
    wait(chat, "AutoscalingReady", "True", "Scaling")
    before = chat.get("scaledobject"), hpa(chat)
    target = chat.memory()["target"]
    with Load(outrider, chat.namespace, "chat", concurrency=200, acceptance=0.8) as load:
        serve(chat, 4)
        outrider.wait_until("another capacity", lambda: chat.memory()["target"] != target)
        wait_replicas(chat, 4)
        serve(chat, 4)
        load.outcomes.clear()  # Whom a replica leaves that goes is another question.
        with Numbers(outrider, chat.namespace, "chat") as numbers:
            operator.stop(outrider)
            time.sleep(look_back_s + SEEN_BY_THE_HPA_S)  # and KEDA's polls until it falls back
            assert set(numbers.seen) == {4}
            operator.start(outrider, through(store))
            wait(chat, "AutoscalingReady", "True", "Scaling")
            assert set(numbers.seen) == {4}
    assert set(load.outcomes) == {"200"}
    after = chat.get("scaledobject"), hpa(chat)
    assert [one["spec"] for one in after] == [one["spec"] for one in before], "KEDA was never given another target"
    assert [one["metadata"]["uid"] for one in after] == [one["metadata"]["uid"] for one in before]


@pytest.mark.failure(
    "KEDA and the HPA",
    "somebody else writes the number",
    k="as usual",
    replicas="the HPA's again",
    conditions=["ReplicasContended True"],
    ends="a quarter of an hour later",
    guard="reconcile/contention.py:judge",
)
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
        outrider.wait_until("other bounds", lambda: chat.get("scaledobject")["spec"]["maxReplicaCount"] == 7)
        time.sleep(SEEN_BY_THE_HPA_S)
        assert set(numbers.seen) == {4}
        assert chat.condition("ReplicasContended") == ("", "")
        change = '{"spec": {"replicas": 1}}'
        command = ("patch", "deployment", "chat", "-n", chat.namespace, "--field-manager=from-git", "--type=merge")
        outrider.kubectl(*command, "-p", change)
        wait(chat, "ReplicasContended", "True", "ForeignWriter")
        falls = [(before, one) for before, one in pairwise(numbers.seen) if one < before]
        assert falls == [(4, 1)], "the other writer's; what the HPA makes of it only rises"
    chat.says("ReplicasContended", "field manager from-git set replicas from 4 to 1")
    wait(chat, "Ready", "True")


def test_c23_a_target_that_moves_takes_no_replica_and_remakes_no_object(
    outrider: Cluster, store: Store, chat: ServiceView
) -> None:
    """Six replicas are wanted throughout; in mode Observe the target stays what the memory says."""
    tuning = yaml.safe_load(MINIMAL.read_text())["spec"]["speculation"] | {"tuning": {"mode": "Observe"}}
    scale_to(chat, 6, speculation=tuning)
    before = uids(chat)
    chat.memory()  # engines may serve before the first pass of the operator that is ended here
    with Numbers(outrider, chat.namespace, "chat") as numbers:
        for target in (5, 8, 5):
            operator.stop(outrider)
            remember(chat, target)
            operator.start(outrider, through(store))
            outrider.wait_until("target", lambda: chat.target() == str(target))  # noqa: B023
            averages = {str(target), str(max(1, target // 8)), "80", "1"}
            outrider.wait_until("target of the HPA", lambda: averages == hpa_targets(chat))  # noqa: B023
            time.sleep(SEEN_BY_THE_HPA_S)
        assert set(numbers.seen) == {6}
    assert uids(chat) == before
    with pytest.raises(ClusterError, match="minReplicas 10 is above maxReplicas 4"):
        scale(chat, {"minReplicas": 10, "maxReplicas": 4})


def remember(view: ServiceView, target: int) -> None:
    """Put another target into the memory document of an operator that does not run."""
    text = json.dumps(view.memory() | {"target": target})
    patch = json.dumps({"data": {"memory.json": text}})
    view.cluster.kubectl("patch", "configmap", "chat-memory", "-n", view.namespace, "--type=merge", "-p", patch)
