"""What holds of every status, however pods, Deployment, faults and metrics come together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.defaults import resolve
from outrider.api.status import EffectiveSettings
from outrider.core.series import Missing
from outrider.errors import InvalidSpec, NotReady, OperatorError
from outrider.reconcile import status
from outrider.reconcile.conditions import NO_SERIES_PASSES
from outrider.reconcile.events import rfc3339
from outrider.reconcile.registry import Service
from outrider.reconcile.troubles import PATIENCE_S
from tests.testbed.kstatus import verdict
from tests.unit.api.bodies import resource
from tests.unit.core.builders import config
from tests.unit.test_docs_conditions import rows

from .builders import UID, World, body, forbidden, pod, unavailable
from .fakes import NOW_S, Manifest
from .test_status import OUTCOME, STATE

DESCRIBED = rows()
PASSED_ON = {
    "Ready": ("EngineReady",),
    "EngineReady": ("Ready",),
    "RolloutProgressing": ("EngineReady",),
    "CapacityLimited": ("EngineReady",),
    "Stalled": ("EngineReady",),
    "AutoscalingReady": ("Ready",),
}
"""Conditions that may bear a reason of another one."""


def at(seconds_ago: float) -> str:
    return rfc3339(NOW_S - seconds_ago)


def pending(words: str, seconds_ago: float) -> Manifest:
    refusal = {"type": "PodScheduled", "status": "False", "message": words, "lastTransitionTime": at(seconds_ago)}
    return {"ready": False, "conditions": [refusal], "container": {"state": {}}}


def waiting(reason: str, message: str = "") -> Manifest:
    return {"ready": False, "container": {"state": {"waiting": {"reason": reason, "message": message}}}}


ENDED = {"terminated": {"exitCode": 1, "reason": "Error", "message": "OSError: gated repo"}}
PODS: list[Manifest] = [
    {},
    {"ready": False},
    {"terminating": True},
    {"ready": False, "terminating": True},
    {"ready": False, "phase": "Failed", "reason": "Evicted"},
    {"ready": False, "restarts": 1, "container": {"state": {"running": {}}, "lastState": ENDED}},
    {"ready": False, "restarts": 4, "container": {"state": ENDED}},
    waiting("CrashLoopBackOff"),
    waiting("ImagePullBackOff"),
    waiting("ContainerCreating"),
    waiting("CreateContainerConfigError", 'secret "hub" not found'),
    waiting("CreateContainerConfigError", "no"),
    pending("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", 1.0),
    pending("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", 2 * PATIENCE_S),
    pending("0/1 nodes are available: 1 node(s) had untolerated taint {x: y}.", 2 * PATIENCE_S),
    pending('persistentvolumeclaim "weights" not found', 0.0),
]
FAULTS: list[OperatorError | None] = [None, None, forbidden(), unavailable(), NotReady("NameTaken", "taken", 10.0)]
METRICS = [None, Missing("NoSeries", "none"), Missing("NoReadyEngine", "none"), Missing("MetricsStale", "old")]


@st.composite
def deployments(draw: st.DrawFn) -> Manifest | None:
    if draw(st.integers(0, 5)) == 0:
        return None
    replicas = draw(st.integers(0, 4))
    found = [{
        "type": "Progressing",
        "status": "True",
        "reason": draw(st.sampled_from(["NewReplicaSetAvailable", "ReplicaSetUpdated", "ProgressDeadlineExceeded"])),
    }]  # fmt: skip
    if draw(st.booleans()):
        found.append(
            {"type": "ReplicaFailure", "status": "True", "message": 'pods "a" is forbidden: exceeded quota: q'}
        )
    return {
        "metadata": {
            "generation": 2,
            "annotations": {"deployment.kubernetes.io/revision": draw(st.sampled_from("12"))},
        },
        "spec": {
            "replicas": draw(st.integers(1, 4)),
            "template": {
                "metadata": {"labels": {"serving.outrider.dev/revision": draw(st.sampled_from(["r1", "r2"]))}}
            },
        },
        "status": {
            "observedGeneration": draw(st.integers(1, 2)),
            "replicas": replicas,
            "updatedReplicas": draw(st.integers(0, replicas)),
            "conditions": found,
        },
    }


def a_service(seen: list[Manifest], live: Manifest | None, frozen: bool, metrics: Missing | None) -> Service:
    world = World()
    service = world.add(generation=5)
    service.resource = resource({"metadata.uid": UID})
    service.config, service.state, service.outcome, service.metrics = config(frozen=frozen), STATE, OUTCOME, metrics
    world.see(*(pod(f"chat-{number}", **one) for number, one in enumerate(seen)))
    service.children.pop("Deployment/chat", None)
    if live is not None:
        service.children["Deployment/chat"] = live
    return service


def described(condition: Manifest) -> bool:
    type_, status_, reason = (condition[part] for part in ("type", "status", "reason"))
    return (type_, status_, reason) in DESCRIBED or any(
        reason == known for other, _, known in DESCRIBED if other in PASSED_ON.get(type_, ())
    )


@given(
    seen=st.lists(st.sampled_from(PODS), max_size=3),
    live=deployments(),
    fault=st.sampled_from(FAULTS),
    frozen=st.booleans(),
    metrics=st.sampled_from(METRICS),
)
def test_whatever_is_found(
    seen: list[Manifest], live: Manifest | None, fault: OperatorError | None, frozen: bool, metrics: Missing | None
) -> None:
    service = a_service(seen, live, frozen, metrics)
    found = status.build(
        service, resolve(resource().spec), EffectiveSettings(), keda=True, fault=fault, warnings=(), generation=5,
        now_s=NOW_S,
    ).as_dict()  # fmt: skip
    told = {one["type"]: one for one in found["conditions"]}
    serving = [one for one in seen if one.get("ready", True) and not one.get("terminating")]
    assert len(told) == len(found["conditions"])
    assert found["observedGeneration"] == 5
    for one in told.values():
        assert described(one), one
        assert one["message"]
        assert one["observedGeneration"] == 5
    assert (told["Ready"]["status"] == "True") == bool(serving and fault is None)
    assert (told["EngineReady"]["status"] == "True") == bool(serving)
    assert {"Reconciling", "Stalled"} - told.keys(), "one of the two at most"
    assert all(told[type_]["status"] == "True" for type_ in ("Reconciling", "Stalled") if type_ in told)
    assert told.get("RolloutProgressing", {"status": "False"})["status"] == "False"
    assert "CapacityLimited" not in told or (told["CapacityLimited"]["status"] == "True" and serving)
    judged = verdict({"metadata": {"generation": 5}, "status": found})
    assert (judged == "Current") == (told["Ready"]["status"] == "True" and {"Reconciling", "Stalled"}.isdisjoint(told))
    assert judged != "Failed" or "Stalled" in told


LOADS, SERVES, CRASHES = {"ready": False}, dict[str, Any](), waiting("CrashLoopBackOff")


def settled(reason: str = "NewReplicaSetAvailable", updated: int = 1, made: str = "2") -> Manifest:
    progress = {"type": "Progressing", "status": "True", "reason": reason}
    return {
        "metadata": {"generation": 1, "annotations": {"deployment.kubernetes.io/revision": made}},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": updated, "conditions": [progress]},
    }


@pytest.mark.parametrize(
    ("seen", "live", "fault", "expected"),
    [
        pytest.param([], None, None, "InProgress", id="the children are being made"),
        pytest.param([LOADS], settled(made="1"), None, "InProgress", id="the first engine loads"),
        pytest.param([SERVES], settled(), None, "Current", id="it serves"),
        pytest.param([SERVES, LOADS], settled(), None, "Current", id="it scales up"),
        pytest.param([SERVES, CRASHES], settled(), None, "Current", id="it serves, and one engine crashes"),
        pytest.param([CRASHES], settled(), None, "InProgress", id="all engines crash"),
        pytest.param([SERVES], settled(updated=0), None, "InProgress", id="it rolls"),
        pytest.param(
            [SERVES, CRASHES],
            settled("ProgressDeadlineExceeded"),
            None,
            "Failed",
            id="an update that is stuck for good",
        ),
        pytest.param([SERVES], settled(), forbidden(), "InProgress", id="a right is missing"),
        pytest.param([SERVES], settled(), unavailable(), "InProgress", id="the API server was away"),
    ],
)
def test_what_generic_tools_make_of_it(
    seen: list[Manifest], live: Manifest | None, fault: OperatorError | None, expected: str
) -> None:
    found = status.build(
        a_service(seen, live, False, None), resolve(resource().spec), None, keda=True, fault=fault, warnings=(),
        generation=5, now_s=NOW_S,
    ).as_dict()  # fmt: skip
    assert verdict({"metadata": {"generation": 5}, "status": found}) == expected
    assert verdict({"metadata": {"generation": 6}, "status": found}) == "InProgress"
    leaving = {"generation": 5, "deletionTimestamp": "2027-01-15T08:00:00Z"}
    assert verdict({"metadata": leaving, "status": found}) == "Terminating"


def test_a_refused_resource_has_failed_until_it_changes() -> None:
    found = status.refused(
        a_service([SERVES], settled(), False, None), InvalidSpec("MethodNotInVersion", "no"), 5, NOW_S
    ).as_dict()
    assert verdict({"metadata": {"generation": 5}, "status": found}) == "Failed"
    assert verdict({"metadata": {"generation": 6}, "status": found}) == "InProgress"


class TestMetrics:
    @pytest.mark.parametrize(("passes", "expected"), [(0.9, "WaitingForMetrics"), (1.0, "NoSeries")])
    async def test_c16_an_empty_answer_is_told_with_the_query_and_nothing_is_decided(
        self, passes: float, expected: str
    ) -> None:
        world = World()
        world.add({"spec.model": {"id": "org/target-32b"}})
        await world.settle()
        patience_s = NO_SERIES_PASSES * world.settings.control_period_s
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": at(passes * patience_s)}
        one = pod()
        one["status"]["conditions"] = [ready]
        world.see(one)
        await world.control.run()
        await world.settle()
        told = world.condition("MetricsAvailable")
        assert told is not None
        assert told[:2] == ("Unknown" if passes < 1 else "False", expected)
        service = world.service()
        assert service.outcome is not None
        assert service.outcome.hold is not None
        assert service.outcome.hold.reason == "NoSeries"
        assert not service.outcome.changes
        if expected == "NoSeries":
            assert 'namespace="ml",serving_outrider_dev_service="chat"' in told[2]
            assert "model_name" not in told[2], "the name that clients ask for is no label that we rely on"

    async def test_an_engine_that_becomes_ready_is_asked_for_its_metrics_at_once(self) -> None:
        world = World()
        world.add()
        world.see(pod(ready=False))
        await world.settle()
        await world.control.run()
        await world.settle()
        told, woken = world.condition("MetricsAvailable"), world.woken
        assert told is not None
        assert told[1] == "NoReadyEngine"
        world.see(pod())
        await world.settle()
        told = world.condition("MetricsAvailable")
        assert told is not None
        assert told[:2] == ("Unknown", "NotAskedYet")
        assert world.woken > woken
        world.measure()
        await world.control.run()
        await world.settle()
        woken = world.woken
        told = world.condition("MetricsAvailable")
        assert told is not None
        assert told[:2] == ("True", "Fresh")
        await world.settle()
        assert world.woken == woken, "once is enough"


async def test_c15_a_secret_that_appears_clears_the_condition_and_its_warning_was_told_once() -> None:
    world = World()
    world.kube.put(body({"spec.model.tokenSecret": {"name": "hub", "key": "token"}}))
    await world.settle()
    world.see(pod(**waiting("CreateContainerConfigError", 'secret "hub" not found')))
    await world.settle()
    told = world.condition("Ready")
    assert told is not None
    assert told[:2] == ("False", "SecretNotFound")
    world.see(pod())
    await world.settle()
    told = world.condition("Ready")
    assert told is not None
    assert told[0] == "True"
    events = [event for event in world.kube.created("Event") if event["reason"] == "SecretNotFound"]
    assert [event["type"] for event in events] == ["Warning"]
    assert not [read for read in world.kube.reads if read.startswith("Secret/") and read != "Secret/chat-admin"]


async def test_c28_a_status_that_tells_of_no_place_posts_its_warning() -> None:
    service = a_service(
        [{}, pending("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", 300.0)], settled(), False, None
    )
    world = World()
    world.add(generation=5)
    found = status.build(
        service, resolve(resource().spec), None, keda=True, fault=None, warnings=(), generation=5, now_s=NOW_S
    )
    await status.write(service, found, world.neighbours)
    (event,) = world.kube.created("Event")
    assert (event["type"], event["reason"]) == ("Warning", "NoFreeGPU")
    assert "has no place for more" in event["message"]
