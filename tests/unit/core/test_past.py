"""A clock that was set back: nothing remembered may lie ahead of it."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from outrider.core.past import MOMENTS, nothing_ahead
from outrider.core.schedule import constant
from outrider.core.state import Bar, ControllerState, Probe, Trial
from outrider.core.verification import MAX_BAR_S

from .builders import learnt

NOW_S, YEAR_S = 1000.0, 31_536_000.0
SCHEDULE = constant(2, 64)


def noted_at(at_s: float) -> ControllerState:
    """All that can be noted, at one time."""
    return replace(
        learnt(),
        **dict.fromkeys(MOMENTS, at_s),  # type: ignore[arg-type]
        trial=Trial(SCHEDULE, at_s, 100.0, 0.02, 8.0, 0.0),
        probe=Probe(SCHEDULE, at_s),
        bars=(Bar(5, 1, 64, at_s + 60.0, 1),),
        bursts=replace(learnt().bursts, since_s=at_s),
    )


def test_what_lies_ahead_is_brought_to_now_and_waits_begin_once_more() -> None:
    brought = replace(noted_at(NOW_S), bars=(Bar(5, 1, 64, NOW_S + MAX_BAR_S, 1),))
    assert nothing_ahead(noted_at(NOW_S + YEAR_S), NOW_S) == brought


@pytest.mark.parametrize("at_s", [0.0, NOW_S - 1.0, NOW_S])
def test_what_is_past_stays_as_it_was_noted(at_s: float) -> None:
    assert nothing_ahead(noted_at(at_s), NOW_S) == noted_at(at_s)


def test_every_time_of_the_state_is_looked_at() -> None:
    times = {one.name for one in fields(ControllerState) if one.name.endswith("_s")} - {"credit_s"}  # a length
    assert set(MOMENTS) == times
