"""The schedule of one engine core: where it begins, what a warm-up hides, and what is told of it."""

from __future__ import annotations

import json

import pytest

from outrider.core.schedule import InvalidSchedule
from outrider_runtime.engine_half import INITIAL_SCHEDULE, EngineHalf
from tests.unit.runtime.builders import Clock, Scheduler, document, half

STARTED_S = 100.0
START_TABLE = [[1, 1, 0], [2, 2, 1], [3, 8, 3]]
"""Of `builders.FACTS`, as rows."""


@pytest.fixture
def clock() -> Clock:
    return Clock(STARTED_S)


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


def step(engine: EngineHalf, clock: Clock, lasts_s: float, k: int = 3) -> None:
    output = object()
    engine.meter.scheduled(output, engine.before_step(), requests=2, k=k, mixed=False)
    clock.now_s += lasts_s
    engine.meter.ended(output, engine.now_s(), tokens=True, work_left=True)


@pytest.mark.parametrize(
    ("variable", "start_table", "initial"),
    [
        pytest.param("", (0, 1, 3, 3, 3, 3, 3, 3), START_TABLE, id="the start table"),
        pytest.param("[[1, 1, 3]]", (0, 1, 3, 3, 3, 3, 3, 3), [[1, 1, 3]], id="the environment's own"),
        pytest.param("", None, [[1, 8, 3]], id="without a table each step drafts the ceiling"),
        pytest.param("[[1, 8, 1]]", None, [[1, 8, 3]], id="and no variable changes that"),
    ],
)
def test_the_initial_schedule(
    scheduler: Scheduler, clock: Clock, variable: str, start_table: tuple[int, ...] | None, initial: object
) -> None:
    engine = half(scheduler, clock, {INITIAL_SCHEDULE: variable}, start_table=start_table)
    assert scheduler.rows == initial
    assert engine.get().body["schedule"] == initial
    assert engine.get().body["initial"] is True


@pytest.mark.parametrize(
    ("variable", "fault"),
    [
        pytest.param("K 3 everywhere", "a list of", id="no JSON"),
        pytest.param("[[1, 8, 2]]", "no CUDA graphs", id="a K that the start table does not name"),
        pytest.param("[[1, 8, 4]]", "above the ceiling 3", id="a K above the ceiling"),
        pytest.param("[[1, 9, 1]]", "largest batch, 8", id="a batch that the engine cannot run"),
    ],
)
def test_an_initial_schedule_that_the_engine_cannot_run(
    scheduler: Scheduler, clock: Clock, variable: str, fault: str
) -> None:
    with pytest.raises(InvalidSchedule, match=fault):
        half(scheduler, clock, {INITIAL_SCHEDULE: variable})
    assert scheduler.installed == []


def test_a_step_begins_with_the_initial_schedule_when_the_lease_has_run_out(scheduler: Scheduler, clock: Clock) -> None:
    engine = half(scheduler, clock)
    assert engine.put(document(1, k=1, lease_s=60)).status == 200
    clock.now_s = STARTED_S + 59.9
    assert engine.before_step() == clock.now_s
    assert scheduler.rows == [[1, 8, 1]]
    clock.now_s = STARTED_S + 60
    engine.before_step()
    assert scheduler.rows == START_TABLE


def test_an_idle_engine_that_is_asked_tells_that_the_lease_has_run_out(scheduler: Scheduler, clock: Clock) -> None:
    engine = half(scheduler, clock)
    engine.put(document(1, k=1, lease_s=60))
    clock.now_s += 61
    assert engine.get().body["initial"] is True
    assert scheduler.rows == START_TABLE


def test_so_does_a_scrape(scheduler: Scheduler, clock: Clock) -> None:
    engine = half(scheduler, clock)
    engine.put(document(1, k=1, lease_s=60))
    clock.now_s += 61
    snapshot = engine.snapshot()
    assert (snapshot["initial"], snapshot["lease_s"]) == (True, 0.0)
    assert scheduler.rows == START_TABLE


def test_the_first_step_after_a_warm_up_is_the_longest_so_far(scheduler: Scheduler, clock: Clock) -> None:
    engine = half(scheduler, clock)
    engine.warm(3)
    engine.end_warm_up()
    step(engine, clock, 0.02)
    assert engine.get().body["longestStepSeconds"] == pytest.approx(0.02)
    assert engine.snapshot()["longest_step_s"] == pytest.approx(0.02)


def test_a_warm_up_runs_each_k_at_every_batch_size(scheduler: Scheduler, clock: Clock) -> None:
    engine = half(scheduler, clock)
    assert engine.warm(None).body == {"speculativeTokens": [0, 1, 3]}
    assert scheduler.rows == START_TABLE  # nothing but a question
    engine.warm(1)
    assert scheduler.rows == [[1, 8, 1]]


def test_a_schedule_that_arrives_during_the_warm_up_waits_for_its_end(scheduler: Scheduler, clock: Clock) -> None:
    engine = half(scheduler, clock)
    engine.warm(0)
    assert engine.put(document(1, k=1)).status == 200
    assert engine.get().body["generation"] == 1
    assert scheduler.rows == [[1, 8, 0]]
    engine.end_warm_up()
    assert scheduler.rows == [[1, 8, 1]]


def test_a_warm_up_outlives_a_lease(scheduler: Scheduler, clock: Clock) -> None:
    engine = half(scheduler, clock)
    engine.put(document(1, k=1, lease_s=60))
    engine.warm(3)
    clock.now_s += 61
    engine.before_step()
    assert scheduler.rows == [[1, 8, 3]]
    engine.end_warm_up()
    assert scheduler.rows == START_TABLE


def test_the_steps_of_a_warm_up_do_not_count(scheduler: Scheduler, clock: Clock) -> None:
    engine = half(scheduler, clock)
    engine.warm(3)
    step(engine, clock, 0.01)
    step(engine, clock, 4.0)  # a kernel is compiled
    engine.end_warm_up()
    body, snapshot = engine.get().body, engine.snapshot()
    assert body["stepsBySpeculativeTokens"] == {}
    assert (body["longestStepSeconds"], body["stalls"]) == (0.0, {"count": 0, "seconds": 0.0})
    assert (snapshot["cells"], snapshot["longest_step_s"], snapshot["stalls"]) == ([], 0.0, 0)
    step(engine, clock, 0.02)
    assert engine.get().body["longestStepSeconds"] == engine.snapshot()["longest_step_s"] == pytest.approx(0.02)


def test_an_engine_whose_k_is_fixed_says_why_and_is_left_alone(scheduler: Scheduler, clock: Clock) -> None:
    engine = half(scheduler, clock, start_table=None, not_controllable_because="the engine does not speculate")
    for reply in (engine.put(document(1, k=1)), engine.warm(None), engine.warm(1)):
        assert reply.status == 503
        assert reply.body["reason"] == "the engine does not speculate"
    assert engine.end_warm_up().status == 200
    engine.before_step()
    assert scheduler.installed == []
    body = engine.get().body
    assert (body["controllable"], body["reason"]) == (False, "the engine does not speculate")
    assert engine.snapshot()["controllable"] is False
    step(engine, clock, 0.01)  # measured all the same
    assert engine.get().body["stepsBySpeculativeTokens"] == {"3": 1}


def test_all_that_a_reader_of_the_schedule_is_told(scheduler: Scheduler, clock: Clock) -> None:
    engine = half(scheduler, clock)
    engine.put(document(7, k=1, lease_s=60))
    for k in (3, 1, 1):
        step(engine, clock, 0.5, k=k)
    clock.now_s += 2.5
    assert engine.get().body == {
        "generation": 7,
        "schedule": [[1, 8, 1]],
        "effective": [1] * 8,
        "maxSpeculativeTokens": 3,
        "speculativeTokens": [0, 1, 3],
        "captureSizes": [4, 8, 16],
        "vllmVersion": "0.33.0",
        "modelRunner": "V2",
        "attentionBackend": "FLASH_ATTN",
        "cudagraphMode": "FULL_AND_PIECEWISE",
        "controllable": True,
        "reason": "",
        "leaseSecondsLeft": 56.0,
        "initial": False,
        "stepsBySpeculativeTokens": {"1": 2, "3": 1},
        "longestStepSeconds": 0.5,
        "stalls": {"count": 0, "seconds": 0.0},
        "secondsSinceToken": 2.5,
    }


def test_what_crosses_the_process_border_is_plain(scheduler: Scheduler, clock: Clock) -> None:
    engine = half(scheduler, clock)
    step(engine, clock, 0.01)
    for answer in (engine.get().body, engine.snapshot(), engine.state(), engine.measure(True).body):
        assert json.loads(json.dumps(answer)) == answer


def test_all_that_a_scrape_is_told(scheduler: Scheduler, clock: Clock) -> None:
    engine = half(scheduler, clock)
    step(engine, clock, 0.5)
    step(engine, clock, 1.5)
    clock.now_s += 2.0
    assert engine.snapshot() == {
        "controllable": True,
        "generation": -1,
        "initial": True,
        "schedule": "1-1:0 2-2:1 3-8:3",
        "lease_s": 0.0,
        "cells": [[2, 3, False, 1, 1.5, 2.25, 2]],
        "longest_step_s": 1.5,
        "stalls": 1,
        "stall_s": 1.5,
        "since_token_s": 2.0,
    }


def test_readers_of_the_schedule_and_scrapes_do_not_take_the_longest_step_from_each_other(
    scheduler: Scheduler, clock: Clock
) -> None:
    engine = half(scheduler, clock)
    step(engine, clock, 1.5)
    assert [engine.get().body["longestStepSeconds"] for _ in range(2)] == [1.5, 0.0]
    assert [engine.snapshot()["longest_step_s"] for _ in range(2)] == [1.5, 0.0]


def test_stalls_count_since_the_last_read_for_a_reader_and_in_all_for_a_scrape(
    scheduler: Scheduler, clock: Clock
) -> None:
    engine = half(scheduler, clock)
    step(engine, clock, 1.5)
    assert engine.get().body["stalls"] == {"count": 1, "seconds": 1.5}
    step(engine, clock, 2.0)
    assert engine.get().body["stalls"] == {"count": 1, "seconds": 2.0}
    assert engine.get().body["stalls"] == {"count": 0, "seconds": 0.0}
    assert (engine.snapshot()["stalls"], engine.snapshot()["stall_s"]) == (2, 3.5)


def test_a_new_engine_has_been_silent_since_its_start_only(scheduler: Scheduler, clock: Clock) -> None:
    engine = half(scheduler, clock)
    clock.now_s += 1.0
    assert engine.snapshot()["since_token_s"] == 1.0


def test_a_probe_is_told_how_long_no_step_ended_while_requests_were_there(scheduler: Scheduler, clock: Clock) -> None:
    engine = half(scheduler, clock)
    step(engine, clock, 0.5)
    scheduler.unfinished = True
    assert engine.state() == {"silent_s": 0.0}
    clock.now_s += 12.0
    assert engine.state() == {"silent_s": 12.0}
    scheduler.unfinished = False
    assert engine.state() == {"silent_s": 0.0}


def test_measuring_can_be_switched_off_and_on(scheduler: Scheduler, clock: Clock) -> None:
    engine = half(scheduler, clock)
    assert engine.measure(False).body == {"measuring": False}
    assert engine.meter.enabled is False
    assert engine.measure(True).body == {"measuring": True}
    assert engine.meter.enabled is True


def test_the_time_without_measuring_belongs_to_no_step(scheduler: Scheduler, clock: Clock) -> None:
    engine = half(scheduler, clock)
    step(engine, clock, 0.01)
    engine.meter.scheduled("under way", clock.now_s, requests=2, k=3, mixed=False)
    engine.measure(False)
    clock.now_s += 60.0
    engine.measure(True)
    step(engine, clock, 0.01)
    assert engine.snapshot()["stalls"] == 0


def test_rest_is_no_silence(scheduler: Scheduler, clock: Clock) -> None:
    """A probe and the first request after it may arrive between the same two looks at the engine's queue."""
    engine = half(scheduler, clock)
    step(engine, clock, 0.01)
    clock.now_s += 3600.0
    assert engine.state() == {"silent_s": 0.0}
    scheduler.unfinished = True
    assert engine.state() == {"silent_s": 0.0}
