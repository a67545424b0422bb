"""What a few numbers tell of a service between two looks at them."""

from __future__ import annotations

import pytest

from outrider.core import engine_metrics as names
from outrider.core.glance import GLANCED, Glance, between, glance
from outrider.core.series import Series

from .builders import series

PODS = {"chat-a", "chat-b"}


def engine(at_s: float, pod: str = "chat-a", *, tokens: float = 500.0, running: float = 8.0) -> list[Series]:
    """One engine's newest two scrapes."""

    def two(name: str, earlier: float, last: float, **labels: str) -> Series:
        return series(name, [(at_s - 5.0, earlier), (at_s, last)], pod, **labels)

    return [
        two(names.GENERATION_TOKENS[0], tokens - 50.0, tokens),
        two(names.NUM_REQUESTS_RUNNING[0], running - 2.0, running),
        two(names.NUM_REQUESTS_WAITING[0], 0.0, 2.0),
        two(names.NUM_DRAFTS[0], 90.0, tokens / 5.0),
        two(names.NUM_ACCEPTED_TOKENS_PER_POS[0], 80.0, tokens / 10.0, position="0"),
        two(names.TPOT[0] + "_sum", 1.0, tokens / 100.0),
        two(names.TPOT[0] + "_count", 1.0, tokens / 2.0),
        two(names.SCHEDULE_GENERATION[0], 3.0, 4.0),
    ]


def seen(found: list[Series], pods: set[str] = PODS) -> Glance:
    result = glance(found, pods)
    assert result is not None
    return result


def test_it_sums_counters_over_the_engines_and_takes_gauges_on_the_mean_of_their_samples() -> None:
    found = seen([*engine(100.0), *engine(101.0, "chat-b", tokens=300.0)])
    assert (found.at_s, found.running, found.waiting, found.generation) == (101.0, 14.0, 2.0, 4.0)
    assert found.counts["tokens", ""] == 800.0
    assert found.counts["accepted", "0"] == 80.0


def test_series_that_tell_of_the_same_engine_twice_count_once() -> None:
    assert seen([*engine(100.0), *engine(100.0)]) == seen(engine(100.0))


def test_pods_that_are_not_ready_are_not_looked_at() -> None:
    assert seen([*engine(100.0), *engine(100.0, "chat-c")]) == seen(engine(100.0))
    assert glance(engine(100.0, "chat-c"), PODS) is None


def test_it_needs_no_other_metrics_than_it_asks_for() -> None:
    assert {one.name for one in engine(100.0)} <= set(GLANCED)
    assert not [name for name in GLANCED if name.endswith("_bucket")]


def test_between_two_looks_rises_become_rates_means_and_shares() -> None:
    course = between(seen(engine(100.0, tokens=500.0)), seen(engine(110.0, tokens=700.0)))
    assert course is not None
    assert course.tokens_rate == pytest.approx(20.0)
    assert course.accepted == pytest.approx((0.5,))
    assert course.tpot_s == pytest.approx(2.0 / 100.0)
    assert (course.ttft_s, course.preempted) == (None, False)


@pytest.mark.parametrize(
    ("later", "tokens"),
    [
        pytest.param(100.0, 500.0, id="no time passed"),
        pytest.param(90.0, 500.0, id="a clock went back"),
        pytest.param(110.0, 20.0, id="an engine began again"),
    ],
)
def test_what_cannot_be_compared_gives_nothing(later: float, tokens: float) -> None:
    assert between(seen(engine(100.0)), seen(engine(later, tokens=tokens))) is None


def test_an_engine_that_came_or_whose_counters_appeared_gives_nothing() -> None:
    one = seen(engine(100.0))
    without = [found for found in engine(110.0, tokens=700.0) if found.name != names.NUM_DRAFTS[0]]
    assert between(one, seen(without)) is None


@pytest.mark.parametrize("position", ["", "x", "9" * 5000])
def test_a_position_that_is_no_number_is_left_out(position: str) -> None:
    def look(at_s: float) -> Glance:
        odd = series(names.NUM_ACCEPTED_TOKENS_PER_POS[0], [(at_s, at_s)], position=position)
        return seen([*engine(at_s, tokens=5.0 * at_s), odd])

    course = between(look(100.0), look(110.0))
    assert course is not None
    assert len(course.accepted) == 1
