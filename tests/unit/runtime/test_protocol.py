"""Rules for schedules beside those that `tests/unit/simulator/test_admin.py` shows on the simulated engine."""

from __future__ import annotations

import pytest

from outrider.core.schedule import Schedule, constant
from outrider_runtime.protocol import DEFAULT_LEASE_S, LARGEST_GENERATION, ScheduleKeeper, parse_json

INITIAL = constant(3, 8)


class Engine:
    """Keeps what was applied, or fails to apply it."""

    def __init__(self) -> None:
        self.applied: list[Schedule] = []
        self.broken = False

    def apply(self, schedule: Schedule) -> None:
        if self.broken:
            raise RuntimeError("vLLM's builder refused")
        self.applied.append(schedule)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def keeper(engine: Engine) -> ScheduleKeeper:
    return ScheduleKeeper(INITIAL, ceiling=3, values=(0, 1, 3), max_num_seqs=8, apply=engine.apply)


def document(generation: int, k: int, **more: object) -> dict[str, object]:
    return {"generation": generation, "schedule": [[1, 8, k]], **more}


def test_the_keeper_applies_nothing_of_its_own_accord(engine: Engine, keeper: ScheduleKeeper) -> None:
    keeper.expire(1e9)
    assert engine.applied == []


def test_a_document_without_a_lease_has_the_usual_one(keeper: ScheduleKeeper) -> None:
    keeper.put(document(1, 1), 50.0)
    assert keeper.lease_left_s(50.0) == DEFAULT_LEASE_S


@pytest.mark.parametrize("generation", [0, LARGEST_GENERATION])
def test_the_least_and_the_largest_generation_are_taken(keeper: ScheduleKeeper, generation: int) -> None:
    assert keeper.put(document(generation, 1), 0.0).status == 200


def test_a_schedule_with_a_hole_is_the_same_as_the_one_that_fills_it(keeper: ScheduleKeeper) -> None:
    filled = keeper.put({"generation": 1, "schedule": [[1, 4, 3], [5, 8, 1]]}, 0.0)
    again = keeper.put({"generation": 1, "schedule": [[1, 2, 3], [5, 8, 1]]}, 0.0)
    assert (again.status, again.body) == (200, filled.body)


def test_the_last_row_goes_on_to_the_largest_batch(keeper: ScheduleKeeper) -> None:
    body = keeper.put({"generation": 1, "schedule": [[1, 2, 3], [3, 4, 1]]}, 0.0).body
    assert body["effective"] == [3, 3, 1, 1, 1, 1, 1, 1]


@pytest.mark.failure(
    "The cluster and its people",
    "the network between operator and engines is cut",
    k="as with an engine that does not answer; after an hour engines return to their initial schedule",
    conditions=["ScheduleApplied False EngineRefused"],
    alerts=["OutriderScheduleNotApplied"],
    ends="next pass",
    guard="outrider_runtime/protocol.py:ScheduleKeeper.expire",
)
def test_a_lease_that_ran_out_ends_before_a_refused_document(engine: Engine, keeper: ScheduleKeeper) -> None:
    keeper.put(document(2, 1, leaseSeconds=10), 0.0)
    assert keeper.put(document(1, 0), 11.0).status == 409
    assert keeper.initial
    assert engine.applied[-1] == INITIAL


def test_a_schedule_that_the_engine_does_not_take_leaves_everything_as_it_was(
    engine: Engine, keeper: ScheduleKeeper
) -> None:
    keeper.put(document(1, 1, leaseSeconds=60), 0.0)
    engine.broken = True
    with pytest.raises(RuntimeError):
        keeper.put(document(2, 0, leaseSeconds=600), 1.0)
    assert (keeper.generation, keeper.schedule, keeper.lease_left_s(1.0)) == (1, constant(1, 8), 59.0)


def test_no_lease_is_left_below_nothing(keeper: ScheduleKeeper) -> None:
    keeper.put(document(1, 1, leaseSeconds=60), 0.0)
    assert keeper.lease_left_s(61.0) == 0.0  # between two steps; the next one ends it


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param('{"generation": 1}', {"generation": 1}, id="text"),
        pytest.param(b"[1]", [1], id="bytes"),
        pytest.param("", None, id="nothing"),
        pytest.param("{", None, id="the beginning of something"),
        pytest.param(b"\xff\xfe\xfd", None, id="no text"),
        pytest.param("[" * 100_000, None, id="deeper than anybody reads"),
    ],
)
def test_what_is_no_json_is_no_document(text: str | bytes, value: object) -> None:
    assert parse_json(text) == value
