"""Acceptance by position: right denominators, discounting, jumps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.acceptance import (
    HALF_LIFE_S,
    PRIOR_SURVIVAL,
    AcceptanceState,
    acceptance_length,
    survival,
    update,
)


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
    assert third.error == third.value


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


def test_one_strange_window_is_noise_two_running_on_one_side_are_a_jump() -> None:
    state = learnt(((5000,), (4000,)))
    state, jumped = update(state, (1000,), (350,), 15.0)
    assert not jumped
    state, jumped = update(state, (1000,), (350,), 15.0)
    assert jumped
    assert survival(state, 1)[0].value == pytest.approx(0.35, abs=0.01)


def test_strange_windows_on_both_sides_are_no_jump() -> None:
    state = learnt(((5000,), (2500,)))
    for accepted in (850, 150, 850, 150):
        state, jumped = update(state, (1000,), (accepted,), 0.0)
        assert not jumped


def test_a_window_with_few_drafts_raises_no_alarm() -> None:
    state = learnt(((5000,), (4000,)))
    for _ in range(3):
        state, jumped = update(state, (20,), (0,), 0.0)
        assert not jumped


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
