"""What a service wants over the last minutes: no flutter, and no news of a burst."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.core.demand import CAPPED_S, LOOK_BACK_S, SMOOTH_S, Demand, bounded, seen, shortfall, unseen
from outrider.core.histogram import Histogram
from outrider.core.observation import Observation

WINDOW = Observation(0.0, 60.0, ())


def slow(seconds: float) -> Histogram:
    """A hundred observations at most this long, and most of them just so long."""
    return Histogram(sum=100 * seconds, count=100, buckets=((seconds * 0.999, 0), (seconds, 100), (float("inf"), 100)))


def test_the_most_of_two_minutes_counts() -> None:
    demand = Demand()
    for step, replicas in enumerate([2, 5, 3]):
        demand = seen(demand, replicas, 0.0, 15.0 * step)
    assert demand.wanted == 5
    assert seen(demand, 3, 0.0, 15.0 + LOOK_BACK_S).wanted == 3


def test_without_data_what_was_wanted_is_forgotten_in_its_time() -> None:
    demand = seen(Demand(), 4, 0.8, 0.0)
    assert unseen(demand, LOOK_BACK_S - 1).wanted == 4
    later = unseen(demand, LOOK_BACK_S + 1)
    assert (later.wanted, later.shortfall) == (None, 0.0)


def test_an_objective_that_is_missed_for_a_minute_weighs_little() -> None:
    demand = seen(Demand(), 1, 0.0, 0.0)
    for step in range(1, 5):
        demand = seen(demand, 1, 1.0, 15.0 * step)
    assert 0.0 < demand.shortfall < 0.25
    for step in range(5, 5 + 3 * int(SMOOTH_S / 15)):
        demand = seen(demand, 1, 1.0, 15.0 * step)
    assert demand.shortfall > 0.9


def test_more_is_wanted_than_may_be_is_told_after_a_minute_and_ends_at_once() -> None:
    demand = bounded(seen(Demand(), 6, 0.0, 0.0), 4, 0.0)
    assert not demand.capped(CAPPED_S - 1)
    assert bounded(demand, 4, CAPPED_S).capped(CAPPED_S)
    assert not bounded(demand, 6, CAPPED_S).capped(10 * CAPPED_S)


@pytest.mark.parametrize(
    ("tpot_s", "ttft_s", "tpot_objective_s", "ttft_objective_s", "missed"),
    [
        pytest.param(0.06, 1.0, 0.04, 2.0, 0.5, id="a token takes half as long again"),
        pytest.param(0.03, 3.0, 0.04, 2.0, 0.5, id="the first one does"),
        pytest.param(0.03, 1.0, 0.04, 2.0, 0.0, id="both are met"),
        pytest.param(0.06, 3.0, None, None, 0.0, id="none is asked for"),
    ],
)
def test_shortfall(
    tpot_s: float, ttft_s: float, tpot_objective_s: float | None, ttft_objective_s: float | None, missed: float
) -> None:
    window = replace(WINDOW, tpot=slow(tpot_s), ttft=slow(ttft_s))
    assert shortfall(window, 0.95, tpot_objective_s, ttft_objective_s) == pytest.approx(missed, abs=0.01)
    assert shortfall(WINDOW, 0.95, tpot_objective_s, ttft_objective_s) == 0.0
