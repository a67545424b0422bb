"""The plugin's rules for a schedule from outside."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.core.engine_metrics import SCHEDULE_GENERATION, SCHEDULE_INITIAL, SCHEDULE_LEASE_SECONDS
from outrider.core.schedule import parse_text
from outrider.simulator.admin import AdminPort
from outrider.simulator.engine import SimulatedEngine
from outrider.simulator.metrics import Exposition
from outrider.simulator.settings import EngineSettings, Plugin, Speculation
from tests.unit.simulator.builders import engine, profile, request, settings, speculation, steps

INITIAL = parse_text("1-256:2")
FIVE = [[1, 24, 5], [25, 256, 3]]
ONE = [[1, 256, 1]]


def document(generation: object = 7, schedule: object = FIVE, lease: object = 60) -> dict[str, object]:
    return {"generation": generation, "schedule": schedule, "leaseSeconds": lease}


def port(**changes: Any) -> AdminPort:
    """An engine with K in {0, 1, 2, 3, 5} that begins with K = 2."""
    chosen: dict[str, Any] = {
        "speculation": speculation("1-1:0 2-2:1 3-3:2 4-4:3 5-256:5", ceiling=5, named=(0, 1, 2, 3, 5)),
        "plugin": Plugin(initial_schedule=INITIAL),
    }
    return AdminPort(SimulatedEngine(settings(**(chosen | changes)), profile()))


def test_before_a_delivery_the_initial_schedule_runs() -> None:
    admin = port()
    body = admin.get(0.0).body
    assert admin.engine.schedule == INITIAL
    assert (body["generation"], body["initial"], body["leaseSecondsLeft"]) == (-1, True, None)
    assert body["schedule"] == [[1, 256, 2]]
    assert body["speculativeTokens"] == [0, 1, 2, 3, 5]
    assert body["controllable"] is True


def test_a_schedule_is_taken_over_with_its_effective_table() -> None:
    admin = port()
    reply = admin.put(document(), 0.0)
    assert reply.status == 200
    assert reply.body == {"generation": 7, "schedule": FIVE, "effective": [5] * 24 + [3] * 232}
    assert admin.engine.schedule.at(10) == 5
    assert admin.get(10.0).body["leaseSecondsLeft"] == 50.0


@pytest.mark.parametrize(
    ("second", "status", "runs"),
    [
        pytest.param(document(8, ONE), 200, ONE, id="a newer generation is taken over"),
        pytest.param(document(7, FIVE), 200, FIVE, id="the same again renews the lease"),
        pytest.param(document(7, ONE), 409, FIVE, id="the same generation with another schedule is refused"),
        pytest.param(document(6, ONE), 409, FIVE, id="an older generation is refused"),
        pytest.param(document(6, FIVE), 409, FIVE, id="an older generation is refused with the same schedule too"),
        pytest.param(document(8, []), 422, FIVE, id="a faulty schedule leaves the present one"),
    ],
)
def test_a_second_delivery(second: dict[str, object], status: int, runs: list[list[int]]) -> None:
    admin = port()
    admin.put(document(7, FIVE), 0.0)
    reply = admin.put(second, 1.0)
    assert reply.status == status
    assert admin.engine.schedule.as_lists() == runs
    if status == 409:
        assert reply.body["generation"] == 7


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        pytest.param(None, "not a JSON object", id="no JSON"),
        pytest.param([1, 2], "not a JSON object", id="a list"),
        pytest.param(document(generation="7"), "generation", id="a generation that is text"),
        pytest.param(document(generation=True), "generation", id="a generation that is a truth value"),
        pytest.param(document(generation=-1), "generation", id="a negative generation"),
        pytest.param(document(generation=2**63), "generation", id="a generation of more than 64 bits"),
        *(
            pytest.param(document(lease=lease), "leaseSeconds", id=f"a lease of {name}")
            for lease, name in (
                (0, "nothing"),
                (-60, "less than nothing"),
                (float("inf"), "all time"),
                (float("nan"), "no number"),
                (True, "a truth value"),
                ("60", "text"),
                (None, "null"),
                (8 * 86400, "more than a week"),
                (10**400, "more than a float holds"),
            )
        ),
        pytest.param(document(schedule=[[1, 256, 6]]), "above the ceiling 5", id="K above the ceiling"),
        pytest.param(document(schedule=[[1, 256, 4]]), "no CUDA graphs", id="K without graphs"),
        pytest.param(document(schedule=[[1, 300, 1]]), "largest batch", id="past the largest batch"),
        pytest.param(document(schedule=[[2, 9, 1]]), "must start at 1", id="a gap at the start"),
        pytest.param(document(schedule=[[1, 9, 1], [9, 20, 0]]), "overlap", id="an overlap"),
    ],
)
def test_a_faulty_document_is_refused_with_every_fault(sent: Any, words: str) -> None:
    reply = port().put(sent, 0.0)
    assert reply.status == 422
    assert any(words in fault for fault in reply.body["faults"]), reply.body


def test_all_faults_are_named_at_once() -> None:
    reply = port().put(document(-3, [[1, 9, 6], [5, 300, 1]], "long"), 0.0)
    named = " ".join(reply.body["faults"])
    assert all(word in named for word in ("generation", "leaseSeconds", "overlap", "ceiling", "largest batch"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"speculation": None}, "without speculation", id="no drafter"),
        pytest.param({"speculation": Speculation("eagle3", 5, None)}, "without a table", id="no table at the start"),
    ],
)
def test_an_engine_that_cannot_vary_k_says_why(changes: dict[str, object], reason: str) -> None:
    admin = port(**changes)
    reply = admin.put(document(), 0.0)
    assert reply.status == 503
    assert reply.body["error"] == "not controllable"
    assert reason in reply.body["reason"]
    assert admin.get(0.0).body["controllable"] is False


def test_when_the_lease_runs_out_the_initial_schedule_returns_and_the_generation_stays() -> None:
    admin = port()
    admin.put(document(7, FIVE, 60), 0.0)
    admin.expire(59.9)
    assert not admin.initial
    admin.expire(60.0)
    assert admin.initial
    assert admin.engine.schedule == INITIAL
    assert admin.generation == 7
    assert admin.put(document(6, ONE), 61.0).status == 409
    assert admin.put(document(7, FIVE), 62.0).status == 200
    assert admin.engine.schedule.as_lists() == FIVE


def test_the_gauge_of_the_initial_schedule_follows_the_lease() -> None:
    admin = port()
    exposition = Exposition(admin.engine, admin, 0.0)

    def gauges(now_s: float) -> list[float]:
        admin.expire(now_s)
        wanted = (SCHEDULE_INITIAL[0], SCHEDULE_GENERATION[0], SCHEDULE_LEASE_SECONDS[0])
        found = {name: value for name, _, value in exposition.samples(now_s, wanted)}
        return [found[name] for name in wanted]

    assert gauges(0.0) == [1, -1, 0]
    admin.put(document(7, FIVE, 60), 0.0)
    assert gauges(20.0) == [0, 7, 40]
    assert gauges(60.0) == [1, 7, 0]


def test_a_renewal_counts_from_now() -> None:
    admin = port()
    admin.put(document(7, FIVE, 60), 0.0)
    admin.put(document(7, FIVE, 60), 50.0)
    admin.expire(109.0)
    assert not admin.initial


@pytest.mark.parametrize(
    ("dilation", "still_ready_s", "not_ready_s"),
    [
        pytest.param(1, 9.9, 10.2, id="ten seconds on the measured card"),
        pytest.param(
            5, 9.9, 10.6, id="the same where time runs five times slower: probes live by the clock on the wall"
        ),
        pytest.param(60, 38, 42, id="three of the longest steps where these take over ten seconds each"),
    ],
)
def test_ready_until_requests_wait_without_a_step(dilation: float, still_ready_s: float, not_ready_s: float) -> None:
    admin = AdminPort(SimulatedEngine(settings(), profile().slowed(dilation)))
    assert admin.ready(1000.0).status == 200  # nothing to do
    admin.engine.submit(request(output=5000), 1000.0)
    admin.engine.advance(1003.0)
    admin.engine.hang()
    began_s = admin.engine.last_progress_s
    assert admin.ready(began_s + still_ready_s).status == 200
    reply = admin.ready(began_s + not_ready_s)
    assert reply.status == 503
    assert "while requests wait" in reply.body["reason"]


def test_the_longest_step_there_is_leaves_an_engine_ready() -> None:
    admin = AdminPort(SimulatedEngine(settings(max_num_batched_tokens=65_536), profile().slowed(20)))
    admin.engine.submit(request(prompt=65_536), 0.0)
    admin.engine.advance(0.0)
    ends_s = admin.engine.next_event_s
    assert ends_s is not None
    assert ends_s > 20
    assert admin.ready(ends_s - 0.01).status == 200


def test_reads_tell_the_longest_step_and_stalls_since_the_last_one() -> None:
    admin = port()
    admin.get(0.0)
    admin.engine.submit(request(output=5000), 0.0)
    steps(admin.engine, 5)
    first = admin.get(admin.engine.now_s).body
    assert first["longestStepSeconds"] == pytest.approx(profile().prefill_time_s(128) + 2 * profile().draft_pass_s)
    assert first["stepsBySpeculativeTokens"] == {"2": 5}
    assert first["stalls"] == {"count": 0, "seconds": 0.0}
    assert admin.get(admin.engine.now_s).body["longestStepSeconds"] == 0.0
    admin.engine.hang()
    stalled = admin.get(admin.engine.now_s + 4).body["stalls"]
    assert stalled["count"] == 1
    assert stalled["seconds"] == pytest.approx(4, abs=0.1)


def test_an_engine_without_our_plugin_starts_with_its_own_table() -> None:
    plain = EngineSettings(speculation=speculation("1-4:5 5-256:1"), plugin=None)
    assert SimulatedEngine(plain, profile()).schedule == parse_text("1-4:5 5-256:1")
    assert engine(3).schedule == parse_text("1-256:3")
