"""Why the target is what it is, for one who reads a larger capacity above it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.bursts import Bursts, Peak
from outrider.core.capacity import UNKNOWN, Capacity
from outrider.core.latency import Cell, LatencyState
from outrider.core.schedule import parse_text
from outrider.core.series import Missing
from outrider.core.state import ControllerState, Trial, initial_state
from outrider.core.target import desired_replicas, judge, least_requests, replicas_for
from tests.unit.core.builders import config, observation

NOW_S = 1000.0
TRIAL = Trial(parse_text("1-256:1"), NOW_S, 100.0, 0.01, 8.0, 0.0)


def state(largest: float = 100.0, **changes: Any) -> ControllerState:
    """A target of 32, and steps measured up to this batch."""
    cells = {(128, 3): Cell(100.0, 1.0, 100.0 * largest)}
    return replace(initial_state(config()), latency=LatencyState(cells), **changes)


def able(requests: int) -> Capacity:
    return Capacity(requests, "TPOT", "with so many requests a token takes 40 ms")


BUSY = state(bursts=Bursts(highest=Peak(3_000.0, 30.0)))
"""One replica by a target of 32, two by one of 28."""


@pytest.mark.parametrize(
    ("capacity", "before", "value", "why"),
    [
        pytest.param(45, state(), 45, "45 with a margin of a tenth", id="within one step"),
        pytest.param(20, state(), 20, "20 with a margin of a tenth", id="down at once"),
        pytest.param(
            129, state(), 48, "48 of 129 for now: a target rises by half as much again at a time", id="a step up"
        ),
        pytest.param(
            129, state(20.0), 40, "40 of 129 for now: a target rises to twice the largest batch measured, 20",
            id="no further than what was measured",
        ),
        pytest.param(
            129, state(16.0), 32, "32 of 129 for now: a target rises to twice the largest batch measured, 16",
            id="there already",
        ),
        pytest.param(34, state(), 32, "held at 32: 34 is within a tenth of it", id="too little to move"),
        pytest.param(39, state(), 32, "held at 32: a rise to 39 is less than a quarter", id="too little to rise"),
        pytest.param(28, BUSY, 28, "28 with a margin of a tenth", id="enough to fall"),
        pytest.param(28, state(), 32, "held at 32: 28 asks for as many replicas", id="a fall that moves no replica"),
        pytest.param(
            45, state(target_changed_s=NOW_S - 60), 32,
            "held at 32 a moment longer, so that the last change can show; then 45 with a margin of a tenth",
            id="just moved",
        ),
        pytest.param(
            45, state(target_fell_s=NOW_S - 899), 32,
            "held at 32 for a quarter of an hour after its fall; then 45 with a margin of a tenth", id="fell lately",
        ),
        pytest.param(45, state(target_fell_s=NOW_S - 900), 45, "45 with a margin of a tenth", id="fell long ago"),
        pytest.param(20, state(target_fell_s=NOW_S - 899), 20, "20 with a margin of a tenth", id="falls further"),
        pytest.param(
            45, state(trial=TRIAL), 32,
            "held at 32 until the last change of K is judged; then 45 with a margin of a tenth", id="on trial",
        ),
    ],
)  # fmt: skip
def test_a_target_says_why_it_is_not_the_capacity(capacity: int, before: ControllerState, value: int, why: str) -> None:
    found = judge(config(), before, able(capacity), observation(), NOW_S, settled=True)
    assert (found.value, found.why) == (value, why)


@pytest.mark.parametrize(
    ("changes", "settled", "why"),
    [
        pytest.param({"frozen": True}, True, "held at 32: paused", id="paused"),
        pytest.param({"mode": "Observe"}, True, "held at 32: mode Observe", id="only observing"),
        pytest.param({}, False, "held at 32 while acceptance is unclear", id="a jump"),
    ],
)
def test_a_target_that_may_not_move_says_so(changes: dict[str, Any], settled: bool, why: str) -> None:
    found = judge(config(**changes), state(), able(90), observation(), NOW_S, settled=settled)
    assert (found.value, found.why) == (32, why)


def test_without_measurement_the_capacity_itself_says_so() -> None:
    missing = Missing("NoSeries", "no series")
    assert judge(config(), state(), able(90), missing, NOW_S, settled=True).why == ""
    assert judge(config(), state(), UNKNOWN, observation(), NOW_S, settled=True).value == 32


@pytest.mark.parametrize(
    ("load", "replicas"),
    [
        pytest.param(0.0, 0, id="no load"),
        pytest.param(0.1, 1, id="hardly any"),
        pytest.param(32.0, 1, id="just one replica's"),
        pytest.param(33.0, 2, id="one request more"),
        pytest.param(320.4, 10, id="a part of a request is rounding"),
    ],
)
def test_replicas_for_a_load(load: float, replicas: int) -> None:
    assert replicas_for(load, 32) == replicas


@pytest.mark.parametrize(
    ("load", "unmeasured", "present", "wanted"),
    [
        pytest.param(320.0, 0, 4, 10, id="all report"),
        pytest.param(320.0, 6, 10, 10, id="replicas that have just started do not call for more"),
        pytest.param(160.0, 5, 10, 10, id="replicas that Prometheus lost do not send others away"),
        pytest.param(32.0, 2, 10, 3, id="a fall that is sure even if the unmeasured are full"),
        pytest.param(320.0, 1, 4, 10, id="a rise that is sure even if the unmeasured are idle"),
    ],
)
def test_doubt_about_some_replicas_moves_nothing(load: float, unmeasured: int, present: int, wanted: int) -> None:
    assert desired_replicas(load, 32, unmeasured=unmeasured, present=present) == wanted


@pytest.mark.parametrize(
    ("load", "present", "least", "wanted"),
    [
        pytest.param(60.0, 4, 3, 3, id="one may go, and no more"),
        pytest.param(60.0, 4, 4, 4, id="none may go"),
        pytest.param(60.0, 4, 9, 4, id="what stays is never a rise"),
        pytest.param(320.0, 4, 1, 10, id="a rise by the load"),
    ],
)
def test_no_replica_goes_that_would_have_to_come_back(load: float, present: int, least: int, wanted: int) -> None:
    assert desired_replicas(load, 32, unmeasured=0, present=present, least=least) == wanted


@given(st.integers(1, 512), st.integers(0, 40), st.integers(0, 40))
def test_the_autoscaler_rounds_what_is_held_to_the_replicas_that_stay(target: int, present: int, least: int) -> None:
    requests = least_requests(target, present=present, least=least)
    kept = min(present, least)
    assert -(-requests // target) == (kept if kept > 1 else 0)


def test_a_target_that_falls_before_the_number_held_follows_asks_for_no_replica_more() -> None:
    """KEDA may have the new target while Prometheus still has what the old one made."""
    assert -(-least_requests(40, present=3, least=3) // 28) == 3
