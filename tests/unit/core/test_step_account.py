"""Decode steps beside what they were predicted to take, and beside an engine without a drafter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.core.controller import control
from outrider.core.latency import LatencyModel, LatencyState, fit, update
from outrider.core.observation import StepCell
from outrider.core.state import initial_state
from outrider.core.step_account import account

from .builders import GONE, config, observation


def measured(step_s: float = 0.011, batch: float = 32.0, k: int = 3) -> LatencyModel:
    """The model of an engine that ran a thousand such steps."""
    model = fit(update(LatencyState(), [StepCell(32, k, False, 1000.0, 1000 * step_s, 1000 * batch)], 0.0), 504)
    assert model is not None
    return model


def test_steps_as_they_were_are_predicted_exactly() -> None:
    found = account(measured(), observation(), drafter=True)
    assert found is not None
    assert (found.step_s, found.predicted_s) == pytest.approx((0.011, 0.011))


def test_slower_steps_show_against_the_prediction() -> None:
    found = account(measured(), observation(step_s=0.022), drafter=True)
    assert found is not None
    assert found.step_s / found.predicted_s == pytest.approx(2.0)


def test_the_speedup_is_measured_tokens_over_those_of_as_many_seconds_without_a_drafter() -> None:
    model, window = measured(), observation(survival=(0.75, 0.5, 0.25), step_s=0.02)
    found = account(model, window, drafter=True)
    assert found is not None
    bare_s = float(model.no_drafter_step_time_s(32.0))
    assert bare_s < 0.011
    assert found.speedup == pytest.approx(2.5 * bare_s / 0.02)


def test_rejected_drafts_make_a_speedup_under_one() -> None:
    found = account(measured(), observation(survival=(0.0, 0.0, 0.0)), drafter=True)
    assert found is not None
    assert found.speedup is not None
    assert found.speedup < 1.0


def test_an_engine_without_a_drafter_has_no_speedup() -> None:
    found = account(measured(k=0), observation(k=0), drafter=False)
    assert found is not None
    assert found.speedup is None


@pytest.mark.parametrize("steps", [0.0, 19.0])
def test_too_few_steps_tell_nothing(steps: float) -> None:
    window = observation()
    cells = tuple(replace(cell, steps=steps, seconds=0.01 * steps, requests=32 * steps) for cell in window.cells)
    assert account(measured(), replace(window, cells=cells), drafter=True) is None


def test_steps_with_prefill_are_not_compared() -> None:
    window = observation()
    mixed = tuple(replace(cell, mixed=True) for cell in window.cells)
    assert account(measured(), replace(window, cells=mixed), drafter=True) is None


def test_a_pass_is_compared_with_the_model_of_the_pass_before() -> None:
    """By its own model, which has learnt from the window, steps twice as slow would seem half expected."""
    settings = config()
    first = observation(since=0.0, until=15.0)
    outcome = control(settings, initial_state(settings), first, first, 15.0)
    assert outcome.account is None, "nothing was known before the first window"
    slow = observation(since=15.0, until=30.0, step_s=0.022)
    outcome = control(settings, outcome.state, slow, slow, 30.0)
    assert outcome.account is not None
    assert outcome.account.predicted_s == pytest.approx(0.011, rel=0.01)
    assert outcome.account.step_s == pytest.approx(0.022)
    assert control(settings, outcome.state, GONE, GONE, 45.0).account is None
