"""The story: a trace whose time is bent to a wanted rate, and the acceptance that travels with each request."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.scenario import ACCEPTANCE_AFTER, ACCEPTANCE_BEFORE, Scenario, steady, warp
from outrider.simulator.workload import Arrival

EVEN = [Arrival(float(second), 100 + second, 10) for second in range(1000)]


@pytest.mark.parametrize(
    ("points", "between", "expected"),
    [
        pytest.param([(0.0, 2.0), (50.0, 2.0)], (0.0, 50.0), 100, id="twice as dense"),
        pytest.param([(0.0, 0.5), (50.0, 0.5)], (0.0, 50.0), 25, id="half as dense"),
        pytest.param([(0.0, 1.0), (50.0, 3.0)], (0.0, 50.0), 100, id="a rising rate has its mean"),
        pytest.param([(0.0, 1.0), (50.0, 3.0)], (25.0, 50.0), 62, id="more of it in the second half"),
        pytest.param(
            [(0.0, 1.0), (20.0, 1.0), (30.0, 5.0), (50.0, 5.0)], (30.0, 50.0), 100, id="a plateau after a ramp"
        ),
    ],
)
def test_a_trace_follows_the_wanted_rate(
    points: list[tuple[float, float]], between: tuple[float, float], expected: int
) -> None:
    found = [request for request in warp(EVEN, points) if between[0] <= request.arrival_s < between[1]]
    assert len(found) == pytest.approx(expected, abs=2)


@given(rates=st.lists(st.floats(0.2, 12.0), min_size=2, max_size=6), offset_s=st.floats(0.0, 300.0))
def test_arrivals_stay_in_order_and_within_the_shape(rates: list[float], offset_s: float) -> None:
    points = [(10.0 * number, rate) for number, rate in enumerate(rates)]
    times = [request.arrival_s for request in warp(EVEN, points, offset_s=offset_s)]
    assert all(before <= after for before, after in pairwise(times))
    assert all(0 <= time_s <= points[-1][0] for time_s in times)


def test_lengths_are_those_of_the_trace() -> None:
    assert [request.prompt_tokens for request in warp(EVEN, [(0.0, 2.0), (2.0, 2.0)], offset_s=7.0)][:3] == [
        107,
        108,
        109,
    ]


def test_acceptance_drops_for_requests_that_arrive_after_the_drop() -> None:
    story = Scenario(seconds=300.0)
    for request in story.requests():
        assert request.acceptance is not None
        expected = ACCEPTANCE_BEFORE if request.arrival_s < story.drop_s else ACCEPTANCE_AFTER
        assert request.acceptance[0] == pytest.approx(expected)


def test_the_same_seed_tells_the_same_story_and_another_one_another() -> None:
    assert Scenario(seed=3).requests() == Scenario(seed=3).requests()
    assert Scenario(seed=3).requests() != Scenario(seed=4).requests()


def test_the_drop_lies_in_the_high_load() -> None:
    story = Scenario()
    highest = max(rate for _, rate in story.points())
    assert story.rate_at(story.drop_s) == highest
    assert story.rate_at(story.drop_s + 40.0) == highest, "an operator needs time to react while it matters"


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        pytest.param(0.0, "steady load, the drafter fits", id="beginning"),
        pytest.param(0.2, "load rises, the drafter fits", id="ramp"),
        pytest.param(0.5, "steady load, acceptance has dropped", id="after the drop"),
        pytest.param(0.6, "load falls, acceptance has dropped", id="the way down"),
    ],
)
def test_phases_are_named(share: float, expected: str) -> None:
    story = Scenario()
    assert story.phase(share * story.seconds) == expected


def test_load_tests_run_on_traffic_from_before_the_drop() -> None:
    requests = steady(Scenario(), 3.0, 60.0)
    assert len(requests) == pytest.approx(180, rel=0.35)
    assert {request.acceptance and request.acceptance[0] for request in requests} == {ACCEPTANCE_BEFORE}
