"""The verdict on a change: what engines delivered after it, and what a roll-back bars."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from outrider.core import verification
from outrider.core.controller import control
from outrider.core.observation import Observation
from outrider.core.schedule import parse_text
from outrider.core.series import Missing
from outrider.core.state import Trial

from .builders import GONE, config, learnt, observation, predict


class TestVerdict:
    """Judging a change by what engines delivered, beside what the schedule before it would have delivered."""

    trial = Trial(parse_text("1-256:3"), at_s=0.0, rate=182.0, tpot_s=0.00403, batch=32.0, prompt_tps=0.0)
    later = observation(since=15, until=30)

    def judge(self, increment: Observation | Missing, now_s: float = 30.0, **trial: Any) -> verification.Verdict:
        predicted = predict(learnt())
        return verification.judge(replace(self.trial, **trial), config(), increment, predicted, now_s)[0]

    def test_the_period_that_contains_the_change_is_not_counted(self) -> None:
        assert self.judge(observation(since=-5, until=10), good=1) == "open"

    def test_no_metrics_leave_it_open(self) -> None:
        assert self.judge(GONE, good=1) == "open"

    def test_too_little_traffic_leaves_it_open(self) -> None:
        assert self.judge(observation(since=15, until=30, steps=1.0, batch=2.0), good=1) == "open"

    def test_it_does_not_stay_open_for_ever(self) -> None:
        assert self.judge(GONE, now_s=8 * 15.0 + 1) == "undecided"

    def test_two_good_windows_confirm(self) -> None:
        assert self.judge(self.later) == "open"
        assert self.judge(self.later, good=1) == "better"

    def test_two_windows_of_slow_steps_condemn(self) -> None:
        slow = observation(since=15, until=30, step_s=0.014)
        assert self.judge(slow) == "open"
        assert self.judge(slow, bad=1) == "worse"

    def test_a_collapse_outside_decode_steps_condemns_at_like_load(self) -> None:
        assert self.judge(replace(self.later, generation_tokens=20_000.0), bad=1) == "worse"

    def test_a_lower_rate_under_more_prefill_is_no_fault_of_the_change(self) -> None:
        busy = replace(self.later, generation_tokens=40_000.0, prompt_tokens=100_000.0)
        assert self.judge(busy, good=1) == "better"

    def test_without_decode_steps_whole_requests_are_compared_at_like_load(self) -> None:
        mixed = replace(self.later, cells=tuple(replace(cell, mixed=True) for cell in self.later.cells))
        assert self.judge(mixed, good=1) == "better"
        assert self.judge(replace(mixed, generation_tokens=70_000.0), bad=1) == "worse"

    def test_without_decode_steps_another_load_cannot_be_compared(self) -> None:
        mixed = replace(self.later, cells=tuple(replace(cell, mixed=True) for cell in self.later.cells))
        assert self.judge(replace(mixed, prompt_tokens=100_000.0), good=1) == "open"


def test_a_roll_back_without_comparable_numbers_still_says_what_happened() -> None:
    trial = replace(TestVerdict.trial, bad=1)
    state = replace(learnt(trial=trial), schedule=parse_text("1-256:5"), generation=2)
    slow = observation(since=15, until=30, k=5, step_s=0.06)
    thin = observation(since=0, until=30, k=5, steps=1.0, batch=2.0)
    outcome = control(config(), state, thin, slow, 30.0)
    assert outcome.state.schedule == trial.before
    assert outcome.changes[0].reason.startswith("rolled back: the change delivered less")


def test_each_bar_at_the_same_load_lasts_twice_as_long() -> None:
    state = learnt()
    first = verification.bar(state, 32.0, 0.0)
    second = verification.bar(replace(state, bars=first), 32.0, 700.0)
    other = verification.bar(replace(state, bars=first), 200.0, 700.0)
    assert (first[0].until_s, second[0].until_s, second[0].times) == (600.0, 700.0 + 1200.0, 2)
    assert len(other) == 2


def test_a_change_with_too_little_traffic_is_not_put_on_trial() -> None:
    predicted = predict(learnt())
    assert predicted is not None
    assert verification.begin(parse_text("1-256:3"), observation(steps=0.5, batch=2.0), predicted, 0.0) is None
