"""Scaling while something on its way is broken or gone, and services of which none runs: on a real control plane with
KEDA, the HPA's controller and Prometheus."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from outrider.manifests.scaled_object import keeps
from tests.failures import Failure
from tests.testbed import kstatus
from tests.testbed.alerting import alerted, quiet
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.gateway import Gateway
from tests.testbed.numbers import Numbers
from tests.testbed.policy import denied
from tests.testbed.scaling import (
    GONE_BY_NOW_S,
    HPA_SYNC_S,
    between,
    create,
    demand,
    hpa_targets,
    named_after,
    outrider_behind,
    remove,
    replicas,
    scale,
    scale_to,
    serve,
    trigger,
    uids,
    wait,
    wait_replicas,
)
from tests.testbed.service import ServiceView
from tests.testbed.startup import TIMEOUT_S
from tests.testbed.store import Store

REQUEST_TIMEOUT_S = 15.0
"""Of the API server; a real one waits four times as long for each metric of a KEDA that does not answer."""
BUDGET = {"startup": {"budgetSeconds": 60}}
SLEEPY: dict[str, Any] = {
    "minReplicas": 0,
    "maxReplicas": 4,
    "idle": {"afterSeconds": 5, "wakeQuery": 'sum(gateway_requests{service="sleepy"})'},
}
SCALES = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["deployments/scale"]}
"""The number of replicas, through the scale subresource."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster with Outrider on it, its way to Prometheus, and a gateway in front of its services."""

    cluster: Cluster
    store: Store
    gateway: Gateway


@pytest.fixture(scope="module")
def scene(start_cluster: StartCluster) -> Iterator[Scene]:
    parts = {"keda", "prometheus", "engines"}
    cluster = start_cluster(
        parts, scrape_interval_s=0.5, nodes=4, hpa_sync_s=HPA_SYNC_S, request_timeout_s=REQUEST_TIMEOUT_S
    )
    with (
        Store(cluster.prometheus_url, cluster.port("store")) as store,
        Gateway(cluster) as gateway,
        outrider_behind(store, cluster),
    ):
        gateway.requests["sleepy"] = 1
        scale(create(cluster, "sleepy"), SLEEPY, **BUDGET)
        yield Scene(cluster, store, gateway)


@pytest.fixture
def sleepy(scene: Scene) -> ServiceView:
    """A service of which none runs while nothing asks; it is made first, since its start-up budget has to pass."""
    return ServiceView(scene.cluster, "sleepy", "chat")


@pytest.fixture
def chat(scene: Scene, request: pytest.FixtureRequest) -> Iterator[ServiceView]:
    """A namespace for a service `chat`, which gives its GPUs back when the test ends."""
    view = create(scene.cluster, named_after(request))
    yield view
    remove(view)


@pytest.mark.failure(
    "Prometheus",
    "empty, then gone",
    k="held",
    replicas="none goes",
    conditions=["MetricsAvailable False NoSeries", "AutoscalingReady False Fallback"],
    status="then `PrometheusUnreachable`",
    alerts=["OutriderMetricsMissing", "OutriderAutoscalingNotReady"],
    ends="with the first answer",
    guard="manifests/scaled_object.py:_trigger",
)
def test_c20_a_blind_and_then_absent_prometheus_costs_no_replica(
    scene: Scene, chat: ServiceView, failure: Failure
) -> None:
    store = scene.store
    scale_to(chat, 6)
    wait(chat, "MetricsAvailable", "True")
    schedule = chat.status()["tuning"]["schedule"]
    with Numbers(scene.cluster, chat.namespace, "chat") as numbers:
        try:
            store.empty = True
            wait(chat, "MetricsAvailable", "False", "NoSeries")
            wait(chat, "AutoscalingReady", "False", "Fallback")
            alerted(chat, failure.alerts)
            time.sleep(GONE_BY_NOW_S)
            store.close()
            wait(chat, "MetricsAvailable", "False", "PrometheusUnreachable")
            time.sleep(GONE_BY_NOW_S)
            assert chat.status()["tuning"]["schedule"] == schedule
            wait(chat, "Ready", "True")
        finally:
            store.empty = False
            if not store.listens:
                store.open()
        wait(chat, "MetricsAvailable", "True")
        wait(chat, "AutoscalingReady", "True", "Scaling")
        quiet(chat, failure.alerts)
        assert min(numbers.seen) == 6


@pytest.mark.failure(
    "Prometheus",
    "empty, and a service is new",
    k="the initial schedule",
    replicas="the minimum starts",
    conditions=["Ready True EnginesServe"],
    guard="reconcile/replicas.py:start_at_minimum",
)
def test_c20_a_new_service_starts_though_prometheus_knows_nothing(scene: Scene, chat: ServiceView) -> None:
    scene.store.empty = True
    try:
        scale(chat, {"minReplicas": 2, "maxReplicas": 4})
        serve(chat, 2)
        wait(chat, "Ready", "True", "EnginesServe")
    finally:
        scene.store.empty = False


@pytest.mark.failure(
    "KEDA and the HPA",
    "the HPA may not write",
    k="as usual",
    replicas="stay",
    conditions=["AutoscalingReady False HPAUnable"],
    status="in the server's words",
    alerts=["OutriderAutoscalingNotReady"],
    ends="when it may",
    guard="reconcile/scaling_path.py:autoscaling_ready",
)
def test_an_hpa_that_may_not_write_is_told_in_its_own_words(
    scene: Scene, chat: ServiceView, sleepy: ServiceView, failure: Failure
) -> None:
    scale(chat, between(1, 4, triggers=[demand(2)]))
    serve(chat, 2)
    wait(chat, "AutoscalingReady", "True", "Scaling")
    attempt = ("scale", "deployment/chat", "--replicas=3")
    with denied(scene.cluster, chat.namespace, SCALES, "replicas are frozen", *attempt):
        scale(chat, between(1, 4, triggers=[demand(3)]))
        wait(chat, "AutoscalingReady", "False", "HPAUnable")
        chat.says("AutoscalingReady", "replicas are frozen")
        alerted(chat, failure.alerts, sleepy)
        assert replicas(chat) == 2
    serve(chat, 3)
    wait(chat, "AutoscalingReady", "True", "Scaling")


@pytest.mark.failure(
    "KEDA and the HPA",
    "KEDA's operator is gone",
    k="as usual",
    replicas="none goes",
    conditions=["AutoscalingReady False HPAInactive"],
    alerts=["OutriderAutoscalingNotReady"],
    ends="with its return; a target that moved is taken up",
    guard="reconcile/scaling_path.py:autoscaling_ready",
)
def test_while_kedas_operator_is_gone_no_replica_goes_and_its_return_is_enough(
    scene: Scene, chat: ServiceView, failure: Failure
) -> None:
    """A target that moves meanwhile is taken up then."""
    cluster = scene.cluster
    asking = trigger("load", 'sum(gateway_requests{service="busy"})')
    scene.gateway.holds("busy", 3)
    scale(chat, {"minReplicas": 1, "maxReplicas": 6, "triggers": [asking]})
    serve(chat, 3)
    wait(chat, "AutoscalingReady", "True", "Scaling")
    before = uids(chat)
    with Numbers(cluster, chat.namespace, "chat") as numbers:
        cluster.stop_process("keda-operator", signal.SIGKILL)
        try:
            scene.gateway.holds("busy", 0)
            changed = {"minReplicas": 1, "maxReplicas": 6, "triggers": [asking], "kvCacheTargetPercent": 60}
            scale(chat, changed)
            wait(chat, "AutoscalingReady", "False", "HPAInactive", timeout_s=2 * TIMEOUT_S)
            chat.says("AutoscalingReady", "KEDA's operator")
            alerted(chat, failure.alerts)
            time.sleep(GONE_BY_NOW_S)
            assert set(numbers.seen) == {3}
            assert "60" not in hpa_targets(chat)
        finally:
            scene.gateway.holds("busy", 3)  # or KEDA, on its return, would see that nobody asks
            cluster.restart_process("keda-operator")
        wait(chat, "AutoscalingReady", "True", "Scaling")
        cluster.wait_until("new target", lambda: "60" in hpa_targets(chat))
        scene.gateway.requests["busy"] = 4
        serve(chat, 4)
        assert sorted(set(numbers.seen)) == [3, 4]
    assert uids(chat) == before


def test_none_runs_while_nothing_asks_and_a_request_at_the_gateway_wakes_one(scene: Scene, sleepy: ServiceView) -> None:
    """The gateway's metric is one that the test sets: a stand-in for what a router in front exports."""
    cluster, asked = scene.cluster, scene.gateway.requests
    serve(sleepy, 1)
    wait(sleepy, "Ready", "True", "EnginesServe")
    uid = sleepy.get("scaledobject")["metadata"]["uid"]
    for _ in range(2):
        asked["sleepy"] = 0
        wait(sleepy, "Ready", "True", "Idle")
        assert replicas(sleepy) == 0
        assert kstatus.verdict(sleepy.resource()) == "Current"
        time.sleep(10.0)  # three polls of KEDA, with engine triggers that have no answer
        assert replicas(sleepy) == 0, "triggers of engines that are not there wake nobody"
        asked["sleepy"] = 3
        wait_replicas(sleepy, 1)
        wait(sleepy, "Ready", "True", "EnginesServe")
    assert sleepy.get("scaledobject")["metadata"]["uid"] == uid
    assert (
        cluster.kubectl("get", "events", "-n", "sleepy", "--field-selector=type=Warning,reason=Starting").stdout == ""
    )


@pytest.mark.failure(
    "Prometheus",
    "gone, and the service may sleep",
    replicas="what runs stays, what sleeps sleeps on",
    conditions=["Ready True Idle"],
    ends="with the first answer",
    guard="reconcile/autoscaler.py:keeps_last",
)
def test_without_prometheus_one_that_sleeps_sleeps_on_and_the_last_one_that_runs_stays(
    scene: Scene, sleepy: ServiceView
) -> None:
    """A store that takes a second to fail lets KEDA lose nearly every failure, and one that refuses only some."""
    cluster, store = scene.cluster, scene.store
    try:
        scene.gateway.holds("sleepy", 1)
        rest(sleepy, 600)  # longer than the operator may take to see that the store fails
        wait(sleepy, "AutoscalingReady", "True", "Scaling")
        serve(sleepy, 1)
        with Numbers(cluster, "sleepy", "chat") as numbers:
            store.cuts_after_s = 1.0
            cluster.wait_until("word to keep replicas", lambda: keeps(sleepy.get("scaledobject")))
            rest(sleepy, SLEEPY["idle"]["afterSeconds"])
            scene.gateway.holds("sleepy", 0)
            time.sleep(15.0)  # three times as long as it would run without a request
            assert set(numbers.seen) == {1}
            store.cuts_after_s = None
            wait(sleepy, "Ready", "True", "Idle")
            store.close()
            scene.gateway.holds("sleepy", 1)
            time.sleep(10.0)
            assert numbers.seen[-1] == 0
            wait(sleepy, "Ready", "True", "Idle")
    finally:
        store.cuts_after_s = None
        if not store.listens:
            store.open()
    serve(sleepy, 1)


def rest(view: ServiceView, after_s: int) -> None:
    """Have the service fall asleep after another time without a request, and wait until KEDA has been told."""
    scale(view, SLEEPY | {"idle": SLEEPY["idle"] | {"afterSeconds": after_s}}, **BUDGET)
    view.cluster.wait_until("cooldown", lambda: view.get("scaledobject")["spec"]["cooldownPeriod"] == after_s)
