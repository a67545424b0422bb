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
from outrider.reconcile.conditions import Query
from outrider.reconcile.engine_pod import EnginePod
from outrider.reconcile.troubles import Trouble
from tests.unit.api.bodies import resource

from .builders import forbidden, pod, unavailable
from .fakes import Manifest

QUERY = Query("sum(x)", 120.0)
RESOLVED = resolve(resource().spec)
SERVES = condition("EngineReady", True, "EnginesServe", "1 of 1 engine serves", 3)
LOADS = condition("EngineReady", False, "Starting", "engines are loading", 3)


def said(found: Condition | None) -> tuple[str, str, str]:
    """Status, reason and message; every condition tells the generation that it was found under."""
    assert found is not None
    assert found.observed_generation == 3
    return found.status, found.reason, found.message


def pods(*bodies: Manifest) -> list[EnginePod]:
    return [EnginePod.of(one) for one in bodies]


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


def deployment(
    *,
    replicas: int,
    updated: int,
    desired: int = 3,
    seen: int = 2,
    revision: str = "r1",
    progressing: str = "NewReplicaSetAvailable",
    made: int = 2,
    unavailable: int = 0,
) -> Manifest:
    """A Deployment at its second generation; ``made`` counts its templates so far, ``progressing`` is why."""
    return {
        "metadata": {"generation": 2, "annotations": {"deployment.kubernetes.io/revision": str(made)}},
        "spec": {
            "replicas": desired,
            "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": unavailable}},
            "template": {"metadata": {"labels": {"serving.outrider.dev/revision": revision}}},
        },
        "status": {
            "observedGeneration": seen,
            "replicas": replicas,
            "updatedReplicas": updated,
            "conditions": [{"type": "Progressing", "status": "True", "reason": progressing}],
        },
    }


LOADING = pods(pod(ready=False))
SERVING = pods(pod("chat-a"), pod("chat-b"), pod("chat-c"))
CRASHES = Trouble("EngineCrashLoop", "pod chat-a: it crashes", "r1")
NO_GPU = Trouble("NoFreeGPU", "pod chat-d: no GPU", "r1")
DRAINS = Trouble("Replacing", "pod chat-b starts when pod chat-a has ended", "r1", passing=True)
INTERRUPTS = (
    "; an update interrupts the service, since it ends the only engine before another one is ready (spec.rollout)"
)


@pytest.mark.parametrize(
    ("found", "seen", "matters", "reason", "message"),
    [
        pytest.param(None, [], [], "Creating", "the children are being made", id="nothing is there yet"),
        pytest.param(
            {"metadata": {"generation": 1}, "spec": {}}, [], [], "Starting", "no engine is ready yet",
            id="the Deployment was just made",
        ),
        pytest.param(
            deployment(replicas=3, updated=3, seen=1, revision="r2"), SERVING, [], "RollingOut",
            "3 of 3 engines run the new template", id="its controller has not looked at the new template yet",
        ),
        pytest.param(
            deployment(replicas=3, updated=1), SERVING, [], "RollingOut", "1 of 3 engines runs the new template",
            id="one of three is replaced",
        ),
        pytest.param(
            deployment(replicas=3, updated=1), SERVING, [NO_GPU], "RollingOut", "1 of 3 engines runs the new template",
            id="one of three cannot be replaced",
        ),
        pytest.param(
            deployment(replicas=3, updated=3, progressing="ReplicaSetUpdated"), SERVING, [], "RollingOut",
            "3 of 3 engines run the new template", id="the last one loads",
        ),
        pytest.param(
            deployment(replicas=1, updated=1, desired=1, progressing="ReplicaSetUpdated", unavailable=1), LOADING,
            [DRAINS], "RollingOut", f"1 of 1 engine runs the new template{INTERRUPTS}", id="the only one is replaced",
        ),
        pytest.param(
            deployment(replicas=1, updated=1, desired=1), LOADING, [], "Starting", "no engine is ready yet",
            id="the first engine loads",
        ),
    ],
)  # fmt: skip
def test_reconciling(
    found: Manifest | None, seen: list[EnginePod], matters: list[Trouble], reason: str, message: str
) -> None:
    assert said(conditions.reconciling(found, seen, matters, None, 3)) == ("True", reason, message)


@pytest.mark.parametrize(
    ("found", "seen", "matters"),
    [
        pytest.param(deployment(replicas=3, updated=3), SERVING, [], id="all are up to date"),
        pytest.param(
            deployment(replicas=2, updated=2, desired=6), SERVING[:2], [], id="the autoscaler has asked for more"
        ),
        pytest.param(
            deployment(replicas=2, updated=2, desired=6, seen=1), SERVING[:2], [], id="and nobody has looked at it yet"
        ),
        pytest.param(
            deployment(replicas=6, updated=6, desired=6), SERVING[:2], [], id="more load beside those that serve"
        ),
        pytest.param(
            deployment(replicas=1, updated=1, desired=1), LOADING, [CRASHES], id="what is stuck is not on its way"
        ),
        pytest.param(
            deployment(replicas=3, updated=3, progressing="ReplicaSetUpdated", made=1), SERVING, [],
            id="the first template is no update",
        ),
    ],
)  # fmt: skip
def test_daily_business_is_no_reconciliation(found: Manifest, seen: list[EnginePod], matters: list[Trouble]) -> None:
    assert conditions.reconciling(found, seen, matters, None, 3) is None


LATE = deployment(replicas=3, updated=1, progressing="ProgressDeadlineExceeded")


def test_what_has_made_no_progress_for_its_time_is_stalled_with_the_reason() -> None:
    expected = ("True", "EngineCrashLoop", "no progress any more: pod chat-a: it crashes")
    assert said(conditions.stalled(LATE, [DRAINS, CRASHES], RESOLVED, 3)) == expected
    found = said(conditions.stalled(LATE, [], RESOLVED, 3))
    assert found[:2] == ("True", "StartupTimeout")
    assert "raise spec.startup.budgetSeconds" in found[2]


@pytest.mark.parametrize("found", [None, deployment(replicas=3, updated=1)])
def test_what_has_time_left_is_not_stalled(found: Manifest | None) -> None:
    assert conditions.stalled(found, [CRASHES], RESOLVED, 3) is None


@pytest.mark.parametrize(
    ("found", "matters", "expected"),
    [
        pytest.param(
            deployment(replicas=3, updated=1), [NO_GPU],
            ("False", "NoFreeGPU", "the update is stuck (1 of 3 engines runs the new template): pod chat-d: no GPU"),
            id="c12: no GPU for the next engine",
        ),
        pytest.param(
            deployment(replicas=3, updated=1), [Trouble("QuotaExceeded", "quota")],
            ("False", "QuotaExceeded", "the update is stuck (1 of 3 engines runs the new template): quota"),
            id="no pod can be made",
        ),
        pytest.param(deployment(replicas=3, updated=1), [], None, id="it goes on"),
        pytest.param(deployment(replicas=3, updated=1), [DRAINS], None, id="the old engine drains"),
        pytest.param(
            deployment(replicas=3, updated=1, revision="r2"), [CRASHES], None, id="an engine of the old template ends"
        ),
        pytest.param(deployment(replicas=3, updated=3), [NO_GPU], None, id="there is no update"),
        pytest.param(None, [NO_GPU], None, id="there is nothing"),
    ],
)  # fmt: skip
def test_rollout_progressing(
    found: Manifest | None, matters: list[Trouble], expected: tuple[str, str, str] | None
) -> None:
    told = conditions.rollout_progressing(found, SERVING, matters, 3)
    assert told is None if expected is None else said(told) == expected


@pytest.mark.parametrize(
    ("found", "seen", "matters", "expected"),
    [
        pytest.param(
            deployment(replicas=7, updated=7, desired=7), SERVING, [NO_GPU],
            ("True", "NoFreeGPU", "3 of 7 engines serve, and the cluster has no place for more: pod chat-d: no GPU"),
            id="c28: no GPU for one more",
        ),
        pytest.param(deployment(replicas=7, updated=7, desired=7), SERVING, [], None, id="all have their place"),
        pytest.param(
            deployment(replicas=7, updated=7), SERVING, [replace(NO_GPU, passing=True)], None, id="it waits a moment"
        ),
        pytest.param(deployment(replicas=7, updated=7), SERVING, [CRASHES], None, id="a crash is no want of place"),
        pytest.param(deployment(replicas=7, updated=1), SERVING, [NO_GPU], None, id="an update tells it itself"),
        pytest.param(deployment(replicas=1, updated=1), LOADING, [NO_GPU], None, id="none serves: EngineReady tells"),
    ],
)  # fmt: skip
def test_capacity_limited(
    found: Manifest, seen: list[EnginePod], matters: list[Trouble], expected: tuple[str, str, str] | None
) -> None:
    told = conditions.capacity_limited(found, seen, matters, 3)
    assert told is None if expected is None else said(told) == expected


LOADS_STILL = ("False", "Starting", "engines are loading; each has 1800 s (spec.startup.budgetSeconds)")


@pytest.mark.parametrize(
    ("seen", "matters", "expected"),
    [
        pytest.param([], [], ("False", "NoPods", "no engine pod exists yet"), id="no pod"),
        pytest.param(
            [], [Trouble("QuotaExceeded", "quota")], ("False", "QuotaExceeded", "quota"), id="no pod can be made"
        ),
        pytest.param(
            [*SERVING[:1], *LOADING], [], ("True", "EnginesServe", "1 of 3 engines serves"), id="one serves"
        ),
        pytest.param(
            SERVING[:1], [CRASHES], ("True", "EnginesServe", "1 of 3 engines serves; pod chat-a: it crashes"),
            id="one serves beside one that crashes",
        ),
        pytest.param(LOADING, [], LOADS_STILL, id="one loads"),
        pytest.param(pods(pod(terminating=True)), [], LOADS_STILL, id="the only one is on its way out"),
        pytest.param(LOADING, [CRASHES], ("False", CRASHES.reason, CRASHES.message), id="it crashes"),
        pytest.param(
            LOADING, [DRAINS, CRASHES], ("False", CRASHES.reason, CRASHES.message),
            id="what needs somebody comes before what passes",
        ),
        pytest.param(LOADING, [DRAINS], ("False", "Replacing", DRAINS.message), id="what passes is told all the same"),
    ],
)  # fmt: skip
def test_engine_ready(seen: list[EnginePod], matters: list[Trouble], expected: tuple[str, str, str]) -> None:
    found = deployment(replicas=3, updated=3)
    assert said(conditions.engine_ready(seen, found, RESOLVED, matters, None, 3)) == expected


def rolling(surge: int, unavailable: int) -> Manifest:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


@pytest.mark.parametrize(
    ("desired", "strategy", "ended"),
    [
        pytest.param(1, rolling(0, 1), "the only engine", id="no spare GPU"),
        pytest.param(1, rolling(1, 1), "the only engine", id="a spare GPU that nobody waits for"),
        pytest.param(1, rolling(1, 0), None, id="a spare GPU"),
        pytest.param(2, rolling(0, 1), None, id="one of two stays"),
        pytest.param(2, rolling(0, 2), "all engines", id="none of two stays"),
        pytest.param(2, {"type": "Recreate"}, "all engines", id="Recreate"),
    ],
)
def test_c12_status_says_that_an_update_interrupts_the_service(
    desired: int, strategy: Manifest, ended: str | None
) -> None:
    live = deployment(replicas=desired, updated=desired, desired=desired)
    live["spec"]["strategy"] = strategy
    message = conditions.engine_ready(SERVING[:desired], live, RESOLVED, [], None, 3).message
    assert ("an update interrupts the service" in message) == (ended is not None)
    assert ended is None or f"it ends {ended} before another one is ready" in message


def test_engines_that_outlive_their_budget_name_the_field_to_raise() -> None:
    late = deployment(replicas=1, updated=1, desired=1, progressing="ProgressDeadlineExceeded")
    found = conditions.engine_ready(pods(pod(ready=False)), late, RESOLVED, [], None, 3)
    assert (found.status, found.reason) == ("False", "StartupTimeout")
    assert "spec.startup.budgetSeconds" in found.message


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
            Missing("MetricsStale"),
            True,
            ("False", "MetricsStale", "MetricsStale; speculation and replicas are held as they are"),
            id="without a sentence",
        ),
    ],
)
def test_metrics_available(missing: Missing | None, known: bool, expected: tuple[str, str, str]) -> None:
    assert said(conditions.metrics_available(missing, (), known, 500.0, QUERY, 3)) == expected


@pytest.mark.parametrize(
    ("missing", "ready_for_s", "expected"),
    [
        pytest.param(
            Missing("NoSeries", "no series"), 119.0,
            ("Unknown", "WaitingForMetrics", "an engine is ready, and Prometheus has 120 s to find it"),
            id="it still has time",
        ),
        pytest.param(
            Missing("NoSeries", "no series"), 120.0,
            (
                "False", "NoSeries",
                "an engine is ready and the answer to sum(x) is empty: see whether Prometheus scrapes the pods and"
                " keeps these labels (spec.monitoring; without its operator, the scrape configuration); speculation"
                " and replicas are held as they are",
            ),
            id="its time is over",
        ),
        pytest.param(
            Missing("NoReadyEngine", "no engine is ready"), None,
            ("False", "NoReadyEngine", "no engine is ready; speculation and replicas are held as they are"),
            id="no engine is ready",
        ),
        pytest.param(
            Missing("NoReadyEngine", "no engine is ready"), 0.0,
            (
                "Unknown", "NotAskedYet",
                "an engine has become ready; the next control pass asks for its metrics",
            ),
            id="one has become ready since",
        ),
    ],
)  # fmt: skip
def test_c16_an_empty_answer_is_told_with_the_query_once_it_should_not_be_empty(
    missing: Missing, ready_for_s: float | None, expected: tuple[str, str, str]
) -> None:
    assert said(conditions.metrics_available(missing, (), True, ready_for_s, QUERY, 3)) == expected


def test_metrics_available_tells_of_engines_that_decisions_go_without() -> None:
    left_out = [Missing("StaleGauges", "pod chat-b: gauges stand still"), Missing("MetricsStale", "pod chat-c: old")]
    assert said(conditions.metrics_available(None, left_out, True, 500.0, QUERY, 3)) == (
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
    ("acknowledged", "ready", "refusals", "reason"),
    [
        pytest.param(0, 1, ["started without a table"], "NothingToChoose", id="an engine that takes no schedule"),
        pytest.param(1, 1, [], "Acknowledged", id="one that takes the only one"),
        pytest.param(0, 1, [], "Delivering", id="one that was not asked yet"),
        pytest.param(0, 0, [], "NoReadyEngine", id="none"),
    ],
)
def test_engines_with_one_k_have_nothing_to_apply(
    acknowledged: int, ready: int, refusals: list[str], reason: str
) -> None:
    found = conditions.schedule_applied(17, acknowledged, ready, refusals, 3, only=3)
    assert found.reason == reason
    if reason == "NothingToChoose":
        words = "engines are started with 3 speculative tokens a step and no choice: nothing is to apply"
        assert said(found) == ("True", reason, words)


@pytest.mark.parametrize(("replicas", "kept"), [(1, "1 replica"), (3, "3 replicas")])
def test_a_fixed_number_of_replicas(replicas: int, kept: str) -> None:
    expected = ("True", "FixedReplicas", f"autoscaling is off; the service keeps {kept}")
    assert said(conditions.fixed_replicas(replicas, 3)) == expected


def test_what_a_fault_keeps_from_being_made_waits_for_the_same_remedy() -> None:
    fault = NotReady("NameTaken", "Service/chat belongs to someone else; delete it", 10.0)
    engine = conditions.engine_ready([], None, RESOLVED, [], fault, 3)
    assert said(engine) == ("False", "NameTaken", f"no engine can be made: {fault.message}")
    assert conditions.reconciling(None, [], [], fault, 3) is None


def test_what_is_there_already_is_told_as_it_is_whatever_the_fault() -> None:
    fault, live = NotReady("NameTaken", "taken", 10.0), deployment(replicas=3, updated=3)
    assert conditions.engine_ready(pods(pod()), live, RESOLVED, [], fault, 3).reason == "EnginesServe"
