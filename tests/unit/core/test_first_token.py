"""The load at which the first token comes too late, from what first tokens took."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.first_token import MIN_WEIGHT, FirstToken, update
from outrider.core.observation import Histogram


def window(time_s: float, count: float = 100.0) -> Histogram:
    """All first tokens at about one time."""
    return Histogram(count, count * time_s, ((time_s * 0.999, 0.0), (time_s, count), (float("inf"), count)))


def seen(*pairs: tuple[float, float], times: int = 20) -> FirstToken:
    """Windows of 15 s, each a load and what the percentile took there."""
    state = FirstToken()
    for _ in range(times):
        for in_flight, time_s in pairs:
            state = update(state, window(time_s), 0.95, in_flight, 15.0)
    return state


def test_nothing_is_known_before_enough_first_tokens_were_seen() -> None:
    assert not FirstToken().known
    assert not update(FirstToken(), window(0.1, MIN_WEIGHT - 1), 0.95, 8.0, 15.0).known
    assert seen((8.0, 0.1)).known


@pytest.mark.parametrize(
    ("histogram", "in_flight"),
    [
        pytest.param(Histogram(), 8.0, id="no first token"),
        pytest.param(window(0.1, 5.0), 8.0, id="too few for a percentile"),
        pytest.param(window(0.1), 0.0, id="nothing in flight when anyone looked"),
    ],
)
def test_a_window_that_tells_nothing_changes_nothing(histogram: Histogram, in_flight: float) -> None:
    before = seen((8.0, 0.1))
    assert update(before, histogram, 0.95, in_flight, 15.0) == before


def test_loads_that_differ_give_the_line() -> None:
    """0.1 s, and 0.01 s for each request in flight: 2 s are reached at 190."""
    reached, time_s = seen((10.0, 0.2), (50.0, 0.6)).limit(2.0)
    assert reached == pytest.approx(190.0, rel=0.1)
    assert 0.2 < time_s < 0.6


def test_of_one_load_half_of_the_time_is_taken_to_grow_with_it() -> None:
    assert seen((10.0, 0.2)).limit(0.4)[0] == pytest.approx(30.0, rel=0.01)


def test_first_tokens_that_do_not_wait_for_others_set_no_limit() -> None:
    assert seen((10.0, 0.3), (80.0, 0.1)).limit(2.0)[0] == float("inf")
    assert seen((10.0, 0.3), (80.0, 0.1)).limit(0.01)[0] == 0.0


def test_an_objective_that_is_missed_already_lies_below_the_present_load() -> None:
    assert seen((10.0, 3.0)).limit(2.0)[0] < 10.0


pairs = st.lists(st.tuples(st.floats(0.5, 256.0), st.floats(0.01, 60.0)), min_size=1, max_size=5)


@given(pairs, st.floats(0.01, 60.0), st.floats(1.0, 3.0))
def test_an_easier_objective_never_lowers_the_limit(
    loads: list[tuple[float, float]], objective_s: float, easier: float
) -> None:
    known = seen(*loads)
    assert known.limit(objective_s)[0] <= known.limit(objective_s * easier)[0] * (1.0 + 1e-9)


@given(pairs, st.floats(0.01, 60.0), st.floats(1.0, 3.0))
def test_first_tokens_that_take_longer_never_raise_the_limit(
    loads: list[tuple[float, float]], objective_s: float, slower: float
) -> None:
    late = seen(*((load, time_s * slower) for load, time_s in loads))
    assert late.limit(objective_s)[0] <= seen(*loads).limit(objective_s)[0] * (1.0 + 1e-6) + 1e-6
