"""How much room load needs while a replica starts: learnt from its own rises, and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.bursts import MAX_RISE, PRIOR_RISE, Bursts, Peak, update

LEAD_S = 120.0
SIGMAS = 1.645


def seen(loads: Iterable[float], state: Bursts | None = None, period_s: float = 15.0) -> Bursts:
    """A load by control period, a request in flight for each 50 tokens a second."""
    return signs(((load, load / 50.0) for load in loads), state, period_s)


def signs(peaks: Iterable[tuple[float, float]], state: Bursts | None = None, period_s: float = 15.0) -> Bursts:
    """Tokens a second and requests in flight by control period."""
    found, now_s = state or Bursts(), 0.0
    for load_tps, in_flight in peaks:
        now_s += period_s
        found = update(found, Peak(load_tps, in_flight), now_s, LEAD_S)
    return found


def in_turn(*levels: float, each: int = 8) -> list[float]:
    """Each level for one lead time."""
    return [level for level in levels for _ in range(each)]


def test_before_anything_was_seen_the_prior_decides() -> None:
    assert Bursts().rise(SIGMAS) == pytest.approx(exp(SIGMAS * PRIOR_RISE))


def test_a_median_needs_no_room() -> None:
    assert seen(in_turn(*(100.0, 300.0) * 20)).rise(0.0) == 1.0


def test_a_constant_load_needs_less_room_than_the_prior() -> None:
    assert 1.0 < seen([1000.0] * 400).rise(SIGMAS) < Bursts().rise(SIGMAS)


def test_load_that_rises_again_and_again_needs_room_for_it() -> None:
    rising = seen(in_turn(*(1000.0, 1200.0) * 40)).rise(SIGMAS)
    assert 1.2 < rising < MAX_RISE


def test_the_highest_load_of_a_lead_time_counts_and_not_its_mean() -> None:
    """The autoscaler answers peaks: a peak that comes in every lead time finds its replicas there."""
    spiky = [1000.0] * 7 + [3000.0]
    assert seen(spiky * 40).rise(SIGMAS) < Bursts().rise(SIGMAS)


def test_no_room_is_left_for_more_than_half_as_much_again() -> None:
    assert seen(in_turn(*(10.0, 1000.0) * 40)).rise(SIGMAS) == MAX_RISE


def test_a_fall_teaches_nothing() -> None:
    """A service that was given replicas, or lost its users, is not one that bursts."""
    falling = [1000.0 * 0.9**count for count in range(400)]
    assert seen(falling).rise(SIGMAS) < Bursts().rise(SIGMAS)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param((1000.0, 20.0), (1500.0, 20.0), id="engines that become faster"),
        pytest.param((1000.0, 20.0), (1000.0, 40.0), id="engines that become slower"),
        pytest.param((1000.0, 0.0), (1000.0, 40.0), id="nothing in flight when anyone looked"),
    ],
)
def test_load_has_risen_only_if_both_of_its_signs_have(one: tuple[float, float], other: tuple[float, float]) -> None:
    by_turns = [peak for _ in range(40) for peak in (*[one] * 8, *[other] * 8)]
    assert signs(by_turns).rise(SIGMAS) < Bursts().rise(SIGMAS)


def test_a_pause_without_metrics_is_no_burst() -> None:
    before = seen(in_turn(100.0, 100.0))
    after = update(before, Peak(10_000.0, 200.0), 10_000.0, LEAD_S)
    assert (after.squares, after.times) == (before.squares, before.times)


def test_what_ran_lately_is_remembered_for_two_lead_times() -> None:
    assert seen(in_turn(500.0, 100.0)).recent.load_tps == 500.0
    assert seen(in_turn(500.0, 100.0, 100.0, 100.0)).recent.load_tps == 100.0


@given(st.lists(st.floats(0.0, 1e6), max_size=60), st.floats(0.0, 3.0))
def test_the_room_is_bounded_whatever_the_load_does(loads: list[float], sigmas: float) -> None:
    assert 1.0 <= seen(loads).rise(sigmas) <= MAX_RISE
