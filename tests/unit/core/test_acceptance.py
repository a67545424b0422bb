"""Acceptance by position: right denominators, discounting, errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.acceptance import (
    HALF_LIFE_S,
    PRIOR_SURVIVAL,
    AcceptanceState,
    acceptance_length,
    acceptance_lengths,
    intervals,
    survival,
    update,
)
from outrider.core.drift import Drift
from outrider.core.survival import Position


def learnt(*windows: tuple[tuple[float, ...], tuple[float, ...]], elapsed_s: float = 0.0) -> AcceptanceState:
    state = AcceptanceState()
    for drafted, accepted in windows:
        state, _ = update(state, drafted, accepted, elapsed_s)
    return state


def test_survival_is_accepted_over_the_drafts_that_proposed_the_position() -> None:
    """K varied: only 160 of 824 drafts went to the fourth position, and nearly all of those were accepted there."""
    state = learnt(((824, 824, 824, 160), (823, 822, 821, 159)))
    assert survival(state, 4)[3].value == pytest.approx(159 / 160, abs=0.01)


def test_tokens_a_step_are_one_and_the_survival_of_each_position() -> None:
    state = learnt(((10_000, 10_000, 10_000), (7_500, 5_625, 4_219)))
    assert acceptance_length(state, 3).value == pytest.approx(2.7344, abs=0.001)
    assert acceptance_length(state, 1).value == pytest.approx(1.75, abs=0.001)
    assert acceptance_length(state, 0).value == 1.0


def test_a_position_that_was_never_tried_continues_with_the_conditional_acceptance_of_the_last_one() -> None:
    state = learnt(((10_000, 10_000), (8_000, 6_000)))
    _, second, third = survival(state, 3)
    assert third.value == pytest.approx(second.value * 0.75, abs=0.001)


def test_what_is_carried_on_covers_the_published_ways_of_going_on() -> None:
    """The steepest drafter (0.92, 0.68, 0.38) and a mixture of two kinds of traffic (alpha 0.3 and 0.95)."""
    for first, second, truth in ((0.92, 0.68, 0.38), (0.625, (0.3**2 + 0.95**2) / 2, (0.3**3 + 0.95**3) / 2)):
        state = learnt(((10_000, 10_000), (10_000 * first, 10_000 * second)))
        third = survival(state, 3)[2]
        assert abs(third.value - truth) < 2.0 * third.error
        assert third.error < third.value / 2


def test_doubt_grows_with_every_position_that_was_never_tried() -> None:
    state = learnt(((10_000,), (8_000,)))
    doubts = [estimate.error / estimate.value for estimate in survival(state, 5)]
    assert doubts == sorted(doubts)
    assert doubts[-1] <= 1.0


def test_the_estimate_does_not_leap_where_evidence_begins() -> None:
    """A single draft at a position cannot turn what its neighbours say into its contrary."""
    none = learnt(((10_000, 0.0), (8_000, 0.0)))
    one = learnt(((10_000, 1.0), (8_000, 0.0)))
    before, after = survival(none, 2)[1].value, survival(one, 2)[1].value
    assert before / 2 <= after < before


def test_without_any_evidence_a_prior_stands_in_and_says_that_it_knows_nothing() -> None:
    first = survival(AcceptanceState(), 1)[0]
    assert (first.value, first.error) == (PRIOR_SURVIVAL, PRIOR_SURVIVAL)


def test_drafts_that_are_always_rejected_leave_nothing_to_continue_with() -> None:
    state = AcceptanceState((1e9,), (0.0,))
    assert acceptance_length(state, 5).value == pytest.approx(1.0, abs=1e-6)


def test_evidence_halves_with_its_half_life() -> None:
    old = learnt(((1000,), (900,)))
    state, jumped = update(old, (), (), HALF_LIFE_S)
    assert not jumped
    assert state.drafts == 500.0
    assert survival(state, 1)[0].value == pytest.approx(0.9, abs=0.001)


def test_more_evidence_means_a_smaller_error() -> None:
    few, many = learnt(((100,), (70,))), learnt(((10_000,), (7_000,)))
    assert survival(many, 1)[0].error < survival(few, 1)[0].error / 5


counts = st.lists(st.floats(0, 1e6), min_size=1, max_size=8)


@given(counts, st.lists(st.floats(0, 1), min_size=8, max_size=8))
def test_survival_never_rises_with_the_position_and_stays_a_probability(
    drafted: list[float], shares: list[float]
) -> None:
    state = learnt((tuple(drafted), tuple(n * share for n, share in zip(drafted, shares, strict=False))))
    values = [estimate.value for estimate in survival(state, 8)]
    assert all(0.0 <= value <= 1.0 for value in values)
    assert values == sorted(values, reverse=True)
    assert 1.0 <= acceptance_length(state, 8).value <= 9.0
    assert acceptance_lengths(state, 8) == [acceptance_length(state, k) for k in range(9)]


@pytest.mark.parametrize("design_effect_drafts", [1, 10])
def test_the_error_of_the_length_is_that_of_nested_positions(design_effect_drafts: int) -> None:
    """Against drafts drawn one by one; adding errors up would give a tenth more, independent positions half of it."""
    random = np.random.default_rng(5)
    drafts, alpha, lengths = 4_000, 0.75, []
    for _ in range(2_000):
        groups, accepted = drafts // design_effect_drafts, []
        for _ in range(6):
            groups = int(random.binomial(groups, alpha))
            accepted.append(float(groups * design_effect_drafts))
        state = AcceptanceState((drafts,) * 6, tuple(accepted), measured(design_effect_drafts))
        lengths.append(acceptance_length(state, 6))
    scatter = float(np.std([one.value for one in lengths]))
    assert lengths[0].error == pytest.approx(scatter, rel=0.05)


def measured(design_effect: float) -> Drift:
    """Noise that was measured for long."""
    return Drift(squares=1e6 * design_effect, windows=1e6)


@pytest.mark.parametrize(("p", "drafts"), [(0.7, 320), (0.05, 200), (0.97, 1_000)])
def test_an_interval_of_95_percent_holds_the_truth_19_times_in_20(p: float, drafts: int) -> None:
    random, inside, runs = np.random.default_rng(3), 0, 2_000
    for _ in range(runs):
        state = AcceptanceState((float(drafts),), (float(random.binomial(drafts, p)),), measured(1.0))
        (interval,) = intervals(state, 1)
        inside += interval.low <= p <= interval.high
    assert inside / runs == pytest.approx(0.95, abs=0.02)


def test_the_width_of_an_interval_is_that_of_its_design_effect() -> None:
    """0.05 to either side at p = 0.7 needs 320 independent drafts, or four times as many at a design effect of 4."""
    for effect in (1.0, 4.0):
        state = AcceptanceState((320.0 * effect,), (224.0 * effect,), measured(effect))
        (interval,) = intervals(state, 1)
        assert interval.high - interval.low == pytest.approx(0.1, abs=0.002)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        pytest.param(81, 263, 0.2553, 0.3662, id="as in Newcombe's comparison of seven methods, 1998"),
        pytest.param(15, 148, 0.0624, 0.1605, id="the second of his examples"),
        pytest.param(0, 20, 0.0, 0.1611, id="the third, without a success"),
        pytest.param(1, 29, 0.0061, 0.1718, id="the fourth"),
    ],
)
def test_the_interval_is_wilsons(successes: int, trials: int, low: float, high: float) -> None:
    """The estimate itself weighs as one more draft, so one less is handed over."""
    interval = Position(successes / trials, trials - 1.0, 0.0).interval(1.0)
    assert interval.low == pytest.approx(low, abs=5e-5)
    assert interval.high == pytest.approx(high, abs=5e-5)


def test_an_interval_can_be_asked_for_at_any_width() -> None:
    state = AcceptanceState((10_000.0,), (7_000.0,), measured(1.0))
    (one,), (three,) = intervals(state, 1, z=1.0), intervals(state, 1, z=3.0)
    assert three.high - three.low == pytest.approx(3.0 * (one.high - one.low), rel=0.01)


def test_an_interval_without_evidence_is_everything() -> None:
    (interval,) = intervals(AcceptanceState(), 1)
    assert (interval.low, interval.high) == (0.0, 1.0)


@given(counts, st.lists(st.floats(0, 1), min_size=8, max_size=8), st.integers(1, 8))
def test_values_lie_within_their_intervals_and_errors_are_no_worse_than_ignorance(
    drafted: list[float], shares: list[float], depth: int
) -> None:
    state = learnt((tuple(drafted), tuple(n * share for n, share in zip(drafted, shares, strict=False))))
    for estimate, interval in zip(survival(state, depth), intervals(state, depth), strict=True):
        assert 0.0 <= interval.low <= estimate.value + 1e-9
        assert estimate.value - 1e-9 <= interval.high <= 1.0
        assert 0.0 <= estimate.error <= 1.0


@given(counts)
def test_the_length_is_no_surer_than_its_first_position_and_no_less_sure_than_all_added_up(
    drafted: list[float],
) -> None:
    falling = tuple(sorted(drafted, reverse=True))
    state = learnt((falling, tuple(0.8 ** (j + 1) * n for j, n in enumerate(falling))))
    terms = survival(state, 8)
    error = acceptance_length(state, 8).error
    assert error <= sum(term.error for term in terms) * (1 + 1e-9) + 1e-9
    assert error >= terms[0].error * (1 - 1e-9)
