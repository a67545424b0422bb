"""One table a condition: what was found, and what is said about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.api.conditions import Condition, condition
from outrider.api.defaults import resolve
from outrider.core.acceptance import AcceptanceState
from outrider.core.series import Missing
from outrider.core.survival import Counts
from outrider.core.trend import BASELINE_S, SlowCounts
from outrider.errors import NotReady, OperatorError
from outrider.reconcile import conditions
from outrider.reconcile.registry import EnginePod
from tests.unit.api.bodies import resource

from .builders import forbidden, pod, unavailable
from .fakes import Manifest

RESOLVED = resolve(resource().spec)
SERVES = condition("EngineReady", True, "EnginesServe", "1 of 1 engine serves", 3)
WAITING = ("Unknown", "WaitingForKEDA", "KEDA has not taken up the ScaledObject yet")
KEDA_STARTS = (
    "Unknown",
    "Starting",
    "KEDA's query has not answered yet: it does once Prometheus has the first engine's metrics",
)
LOADS = condition("EngineReady", False, "Starting", "engines are loading", 3)


def said(found: Condition | None) -> tuple[str, str, str]:
    """Status, reason and message; every condition tells the generation that it was found under."""
    assert found is not None
    assert found.observed_generation == 3
    return found.status, found.reason, found.message


def pods(*bodies: Manifest) -> list[EnginePod]:
    return [EnginePod.of(one) for one in bodies]


def waiting(reason: str, message: str = "", name: str = "chat-a", restarts: int = 0) -> Manifest:
    state = {"state": {"waiting": {"reason": reason, "message": message}}}
    return pod(name, ready=False, restarts=restarts, container=state)


@pytest.mark.parametrize(
    ("fault", "engine", "status", "reason"),
    [
        pytest.param(None, SERVES, "True", "EnginesServe", id="no fault, and an engine is ready"),
        pytest.param(None, LOADS, "False", "Starting", id="no fault, and none is ready"),
        pytest.param(forbidden(), LOADS, "False", "Forbidden", id="a fault, and none is ready"),
        pytest.param(forbidden(), SERVES, "False", "Forbidden", id="a fault, although one is ready"),
        pytest.param(NotReady("NameTaken", "taken", 10.0), SERVES, "False", "NameTaken", id="something is in the way"),
        pytest.param(unavailable(), SERVES, "Unknown", "APIServerUnreachable", id="the API server did not answer"),
    ],
)
def test_ready(fault: OperatorError | None, engine: Condition, status: str, reason: str) -> None:
    assert said(conditions.ready(fault, engine, 3))[:2] == (status, reason)


def test_ready_uses_the_words_of_what_it_stands_on() -> None:
    assert conditions.ready(None, LOADS, 3).message == LOADS.message
    assert conditions.ready(forbidden(), SERVES, 3).message == "cannot patch deployments"


def unscheduled(message: str) -> Manifest:
    """A pod that no node takes."""
    refusal = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return pod(ready=False, conditions=[refusal], container={"state": {}})


def scaled_object(**states: str) -> Manifest:
    """A ScaledObject whose conditions have these states; ``_message`` goes to Ready."""
    message = states.pop("_message", "")
    trigger = {"metadata": {"threshold": "40"}}
    return {
        "spec": {"triggers": [trigger], "minReplicaCount": 1, "maxReplicaCount": 6},
        "status": {
            "conditions": [{"type": type_, "status": status, "message": message} for type_, status in states.items()]
        },
    }


def deployment(*, replicas: int, updated: int, desired: int = 3, seen: int = 2) -> Manifest:
    return {
        "metadata": {"generation": 2},
        "spec": {"replicas": desired},
        "status": {"observedGeneration": seen, "replicas": replicas, "updatedReplicas": updated},
    }


@pytest.mark.parametrize(
    ("found", "pods_ready", "reason", "message"),
    [
        pytest.param(None, 0, "Creating", "the children are being made", id="nothing is there yet"),
        pytest.param(
            {"metadata": {"generation": 1}, "spec": {}}, 0, "RollingOut", "0 of 1 engine run the new template",
            id="the Deployment was just made",
        ),
        pytest.param(
            deployment(replicas=3, updated=3, seen=1), 3, "RollingOut", "3 of 3 engines run the new template",
            id="its controller has not looked at the change yet",
        ),
        pytest.param(
            deployment(replicas=3, updated=1), 3, "RollingOut", "1 of 3 engines runs the new template",
            id="one of three is replaced",
        ),
        pytest.param(
            deployment(replicas=1, updated=1, desired=1), 0, "Starting", "the first engine is starting",
            id="the first engine loads",
        ),
    ],
)  # fmt: skip
def test_reconciling(found: Manifest | None, pods_ready: int, reason: str, message: str) -> None:
    assert said(conditions.reconciling(found, pods_ready, None, 3)) == ("True", reason, message)


@pytest.mark.parametrize(
    ("found", "pods_ready"),
    [
        pytest.param(deployment(replicas=3, updated=3), 3, id="all are up to date"),
        pytest.param(deployment(replicas=2, updated=2, desired=6), 2, id="the autoscaler has asked for more"),
        pytest.param(deployment(replicas=6, updated=6, desired=6), 2, id="more engines load beside those that serve"),
    ],
)
def test_daily_business_is_no_reconciliation(found: Manifest, pods_ready: int) -> None:
    assert conditions.reconciling(found, pods_ready, None, 3) is None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param([], ("False", "NoPods", "no engine pod exists yet"), id="no pod"),
        pytest.param(
            pods(pod(), pod("chat-b", ready=False)), ("True", "EnginesServe", "1 of 3 engines serves"), id="one serves"
        ),
        pytest.param(
            pods(pod(), waiting("CrashLoopBackOff", name="chat-b")),
            ("True", "EnginesServe", "1 of 3 engines serves"),
            id="one serves beside one that crashes",
        ),
        pytest.param(
            pods(pod(ready=False)),
            ("False", "Starting", "engines are loading; each has 1800 s (startup.budgetSeconds)"),
            id="one loads",
        ),
        pytest.param(
            pods(pod(terminating=True)),
            ("False", "Starting", "engines are loading; each has 1800 s (startup.budgetSeconds)"),
            id="the only one is on its way out",
        ),
        pytest.param(
            pods(waiting("ImagePullBackOff", "no such image")),
            ("False", "ImageNotPulled", "pod chat-a: no such image"),
            id="no image",
        ),
        pytest.param(
            pods(waiting("CreateContainerConfigError", 'secret "hub" not found')),
            ("False", "ConfigurationMissing", 'pod chat-a: secret "hub" not found'),
            id="a Secret is missing",
        ),
        pytest.param(
            pods(waiting("CrashLoopBackOff", "back-off 40s", restarts=4)),
            ("False", "EngineCrashLoop", "pod chat-a after 4 restarts: back-off 40s"),
            id="it crashes",
        ),
        pytest.param(
            pods(waiting("CrashLoopBackOff")),
            ("False", "EngineCrashLoop", "pod chat-a: CrashLoopBackOff"),
            id="it crashes without a word",
        ),
        pytest.param(
            pods(pod(ready=False), waiting("ErrImagePull", "timeout", name="chat-b")),
            ("False", "ImageNotPulled", "pod chat-b: timeout"),
            id="one loads, one is stuck: what is stuck needs somebody",
        ),
        pytest.param(
            pods(waiting("ContainerCreating")),
            ("False", "Starting", "engines are loading; each has 1800 s (startup.budgetSeconds)"),
            id="a wait that is none",
        ),
        pytest.param(
            pods(unscheduled("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")),
            ("False", "NoFreeGPU", "pod chat-a: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu."),
            id="no GPU is free",
        ),
        pytest.param(
            pods(unscheduled("0/2 nodes are available: 2 node(s) had untolerated taint(s).")),
            ("False", "Unschedulable", "pod chat-a: 0/2 nodes are available: 2 node(s) had untolerated taint(s)."),
            id="no node will have it",
        ),
    ],
)
def test_engine_ready(found: list[EnginePod], expected: tuple[str, str, str]) -> None:
    assert said(conditions.engine_ready(found, deployment(replicas=3, updated=3), RESOLVED, None, 3)) == expected


def test_engines_that_outlive_their_budget_name_the_field_to_raise() -> None:
    late = deployment(replicas=1, updated=1, desired=1)
    late["status"]["conditions"] = [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]
    found = conditions.engine_ready(pods(pod(ready=False)), late, RESOLVED, None, 3)
    assert (found.status, found.reason) == ("False", "StartupTimeout")
    assert "startup.budgetSeconds" in found.message


@pytest.mark.parametrize(
    ("by_spec", "found", "live", "message"),
    [
        pytest.param(
            True,
            scaled_object(Ready="True"),
            deployment(replicas=3, updated=3),
            "paused by spec.paused: changes of the spec wait; the autoscaler goes on with the last target (40) and"
            " bounds 1-6; set paused: false to continue",
            id="under an autoscaler, which nobody pauses",
        ),
        pytest.param(
            True,
            None,
            deployment(replicas=1, updated=1, desired=1),
            "paused by spec.paused: changes of the spec wait; it keeps 1 replica; set paused: false to continue",
            id="a fixed number of replicas",
        ),
        pytest.param(
            False,
            None,
            None,
            "paused by OUTRIDER_PAUSED for the whole fleet: changes of the spec wait; nothing was made of it so far;"
            " unset it where the operator runs to continue",
            id="made while the fleet is paused",
        ),
    ],
)
def test_a_pause_names_who_asked_for_it_what_goes_on_and_how_it_ends(
    by_spec: bool, found: Manifest | None, live: Manifest | None, message: str
) -> None:
    reason = "PausedBySpec" if by_spec else "PausedByOperator"
    assert said(conditions.paused(by_spec, found, live, 3)) == ("True", reason, message)


@pytest.mark.parametrize(
    ("missing", "known", "expected"),
    [
        pytest.param(
            None, False, ("Unknown", "NotAskedYet", "the first control pass has not run yet"), id="nobody has looked"
        ),
        pytest.param(None, True, ("True", "Fresh", "engine metrics arrive"), id="they arrive"),
        pytest.param(
            Missing("MetricsStale", "the newest sample is 45 s old"),
            True,
            (
                "False",
                "MetricsStale",
                "the newest sample is 45 s old; speculation and replicas are held as they are",
            ),
            id="they stopped",
        ),
        pytest.param(
            Missing("NoSeries"),
            True,
            ("False", "NoSeries", "NoSeries; speculation and replicas are held as they are"),
            id="there are none, and no sentence either",
        ),
    ],
)
def test_metrics_available(missing: Missing | None, known: bool, expected: tuple[str, str, str]) -> None:
    assert said(conditions.metrics_available(missing, (), known, 3)) == expected


def test_metrics_available_tells_of_engines_that_decisions_go_without() -> None:
    left_out = [Missing("StaleGauges", "pod chat-b: gauges stand still"), Missing("MetricsStale", "pod chat-c: old")]
    assert said(conditions.metrics_available(None, left_out, True, 3)) == (
        "True",
        "Fresh",
        "engine metrics arrive; without 2 engines: pod chat-b: gauges stand still",
    )


SINKING = SlowCounts(
    baseline=Counts((10_000.0,) * 3, (8_000.0, 6_000.0, 4_000.0)),
    baseline_s=BASELINE_S,
    recent=Counts((10_000.0,) * 3, (7_000.0, 5_000.0, 3_000.0)),
    declining=True,
)
BUSY = AcceptanceState(drafted=(10_000.0,) * 3, accepted=(7_000.0, 5_000.0, 3_000.0))


@pytest.mark.parametrize(
    ("acceptance", "status", "reason", "words"),
    [
        pytest.param(AcceptanceState(), "Unknown", "InsufficientData", "too few drafts", id="no drafts were made"),
        pytest.param(BUSY, "True", "DraftsAccepted", "drafts are accepted", id="in the first half hour"),
        pytest.param(
            replace(BUSY, slow=replace(SINKING, declining=False)), "True", "DraftsAccepted", "accepted",
            id="a small loss is no news",
        ),
        pytest.param(
            replace(BUSY, slow=SINKING), "True", "AcceptanceDeclining",
            "with K 3 a step yields 2.50 tokens, 2.80 in the first half hour",
            id="a slow decline is told, and speculation still pays",
        ),
        pytest.param(
            replace(BUSY, slow=SINKING, rejected_windows=1), "True", "AcceptanceDeclining", "declines",
            id="one rejected window may be chance",
        ),
        pytest.param(
            AcceptanceState(rejected_windows=2), "False", "AcceptanceCollapsed", "every draft is rejected",
            id="a collapse stays after drafts have ended",
        ),
    ],
)  # fmt: skip
def test_speculation_healthy(acceptance: AcceptanceState, status: str, reason: str, words: str) -> None:
    found = said(conditions.speculation_healthy(acceptance, 3))
    assert found[:2] == (status, reason)
    assert words in found[2]


@pytest.mark.parametrize(
    ("acknowledged", "ready", "refusals", "expected"),
    [
        pytest.param(0, 0, [], ("Unknown", "NoReadyEngine", "no engine is ready to take a schedule"), id="no engine"),
        pytest.param(
            1, 1, [], ("True", "Acknowledged", "the engine acknowledged schedule 17"), id="the only one has it"
        ),
        pytest.param(3, 3, [], ("True", "Acknowledged", "all 3 engines acknowledged schedule 17"), id="all have it"),
        pytest.param(1, 3, [], ("False", "Delivering", "1 of 3 engines acknowledged schedule 17"), id="under way"),
        pytest.param(
            2,
            3,
            ["engine 10.0.0.3: no answer", "engine 10.0.0.4: no answer"],
            ("False", "EngineRefused", "2 of 3 engines acknowledged schedule 17; engine 10.0.0.3: no answer"),
            id="some did not take it: the first one is named",
        ),
    ],
)
def test_schedule_applied(acknowledged: int, ready: int, refusals: list[str], expected: tuple[str, str, str]) -> None:
    assert said(conditions.schedule_applied(17, acknowledged, ready, refusals, 3)) == expected


@pytest.mark.parametrize(
    ("keda", "found", "answered", "expected"),
    [
        pytest.param(
            False,
            None,
            False,
            (
                "False",
                "KEDAMissing",
                "KEDA is not installed in this cluster; install it, or turn autoscaling off. Replicas stay as they are",
            ),
            id="no KEDA",
        ),
        pytest.param(True, None, False, WAITING, id="just made"),
        pytest.param(True, {"status": {}}, False, WAITING, id="not looked at yet"),
        pytest.param(True, scaled_object(Ready="True"), False, KEDA_STARTS, id="it has asked nobody yet"),
        pytest.param(
            True, scaled_object(Ready="True", Fallback="True"), False, KEDA_STARTS, id="the first engine still starts"
        ),
        pytest.param(
            True, scaled_object(Ready="True"), True, ("True", "Scaling", "the ScaledObject is ready"), id="it scales"
        ),
        pytest.param(
            True,
            scaled_object(Ready="False", _message="no scaler for trigger"),
            False,
            ("False", "ScaledObjectNotReady", "no scaler for trigger"),
            id="KEDA cannot use it",
        ),
        pytest.param(
            True,
            scaled_object(Ready="True", Fallback="True"),
            True,
            ("False", "Fallback", "KEDA has no metrics and keeps the replicas, or raises them to the minimum"),
            id="KEDA has lost its metrics",
        ),
        pytest.param(
            True,
            scaled_object(Ready="True", Fallback="False"),
            True,
            ("True", "Scaling", "the ScaledObject is ready"),
            id="and found them again",
        ),
    ],
)
def test_autoscaling_ready(keda: bool, found: Manifest | None, answered: bool, expected: tuple[str, str, str]) -> None:
    assert said(conditions.autoscaling_ready(keda, found, answered, None, 3)) == expected


@pytest.mark.parametrize(("replicas", "kept"), [(1, "1 replica"), (3, "3 replicas")])
def test_a_fixed_number_of_replicas(replicas: int, kept: str) -> None:
    expected = ("True", "FixedReplicas", f"autoscaling is off; the service keeps {kept}")
    assert said(conditions.fixed_replicas(replicas, 3)) == expected


def test_what_a_fault_keeps_from_being_made_waits_for_the_same_remedy() -> None:
    fault = NotReady("NameTaken", "Service/chat belongs to someone else; delete it", 10.0)
    engine = conditions.engine_ready([], None, RESOLVED, fault, 3)
    scaling = conditions.autoscaling_ready(True, None, False, fault, 3)
    assert said(engine) == ("False", "NameTaken", f"no engine can be made: {fault.message}")
    assert said(scaling) == ("Unknown", "NameTaken", f"no ScaledObject can be made: {fault.message}")
    assert conditions.reconciling(None, 0, fault, 3) is None


def test_what_is_there_already_is_told_as_it_is_whatever_the_fault() -> None:
    fault, live = NotReady("NameTaken", "taken", 10.0), deployment(replicas=3, updated=3)
    assert conditions.engine_ready(pods(pod()), live, RESOLVED, fault, 3).reason == "EnginesServe"
    assert conditions.autoscaling_ready(True, scaled_object(Ready="True"), True, fault, 3).reason == "Scaling"
