"""What a pass leaves behind: the record of a change, its generation and trial, what looks cost, and what was said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outrider.core.controller import Outcome, control
from outrider.core.decision import Change
from outrider.core.exploration import BUDGET
from outrider.core.schedule import parse_text
from outrider.core.state import ControllerState, Probe, Trial

from .builders import GONE, config, learnt, observation, run

BEFORE = parse_text("1-256:3")
TRIAL = Trial(BEFORE, at_s=0.0, rate=182.0, tpot_s=0.00403, batch=32.0, prompt_tps=0.0)
SURE = (0.95, 0.9, 0.86)


def rising(**changes: Any) -> Outcome:
    """A pass in which K 3 gives way to a larger one."""
    known = learnt(survival=SURE, schedule_changed_s=-600.0, generation=4, **changes)
    return run(known, observation(survival=SURE, step_s=0.009))


class TestBounds:
    known = learnt(schedule=parse_text("1-256:5"), trial=TRIAL, probe=Probe(BEFORE, 0.0), generation=4)

    def test_a_change_of_bounds_is_recorded_with_both_schedules(self) -> None:
        outcome = run(self.known, GONE, 77.0, values=(0, 1, 3))
        assert outcome.changes == (Change(77.0, "Schedule", "1-256:5", "1-256:3", "the resource's bounds changed"),)
        state = outcome.state
        assert (state.generation, state.schedule_changed_s, state.trial, state.probe) == (5, 77.0, None, None)

    def test_a_schedule_of_all_the_k_there_are_is_within_bounds(self) -> None:
        schedule = parse_text("1-64:3 65-128:1 129-256:0")
        outcome = run(learnt(schedule=schedule), GONE, values=(0, 1, 3))
        assert (outcome.changes, outcome.state.schedule) == ((), schedule)

    def test_the_highest_k_may_be_the_least_allowed(self) -> None:
        assert run(learnt(), GONE, min_speculative_tokens=3).changes == ()


@pytest.mark.parametrize("mode", ["Fixed", "Off"])
def test_where_the_schedule_is_the_resources_nothing_else_is_said(mode: str) -> None:
    outcome = run(learnt(), observation(), mode=mode)
    assert outcome.proposal.steps == (f"mode {mode}: the schedule is the resource's",)
    assert outcome.reason == outcome.proposal.steps[0]


class TestChange:
    def test_it_is_the_next_generation_and_on_trial(self) -> None:
        outcome = rising()
        state = outcome.state
        (change,) = (change for change in outcome.changes if change.kind == "Schedule")
        assert (change.at_s, change.before, change.after) == (15.0, "1-256:3", str(state.schedule))
        assert (state.generation, state.schedule_changed_s) == (5, 15.0)
        assert state.trial is not None
        assert (state.trial.before, state.trial.at_s, state.trial.batch) == (BEFORE, 15.0, 32.0)
        assert state.history[0] == change

    def test_it_is_told_by_what_moves_and_not_by_what_came_after(self) -> None:
        change = rising().changes[0]
        assert change.reason.startswith("at batch 32 K 3→5: ")

    @pytest.mark.parametrize("changes", [{"frozen": True}, {"mode": "Observe"}])
    def test_nothing_moves_that_is_only_watched(self, changes: dict[str, Any]) -> None:
        known = learnt(survival=SURE, schedule_changed_s=-600.0, generation=4)
        outcome = run(known, observation(survival=SURE, step_s=0.009), **changes)
        assert (outcome.changes, outcome.state.schedule, outcome.state.generation) == ((), BEFORE, 4)
        assert outcome.proposal.schedule.at(32) == 5

    def test_a_look_keeps_the_time_of_the_last_change_and_takes_its_cost(self) -> None:
        known = learnt(schedule_changed_s=-600.0, generation=4)
        outcome = run(known, observation())
        (look,) = (change for change in outcome.changes if change.kind == "Probe")
        assert look.reason.startswith("probe: at batch 32 K ")
        state = outcome.state
        assert (state.generation, state.schedule_changed_s, state.probe) == (5, -600.0, Probe(BEFORE, 15.0))
        assert state.trial is None
        assert 0.0 < state.credit_s < known.credit_s
        assert look not in state.history


class TestTrial:
    def on_trial(self, **changes: Any) -> ControllerState:
        return learnt(**{"trial": TRIAL, "schedule": parse_text("1-256:5"), "learned_until_s": 15.0, **changes})

    def after(self, state: ControllerState, *, step_s: float = 0.011, now_s: float = 30.0) -> Outcome:
        window = observation(since=now_s - 15.0, until=now_s, k=5, step_s=step_s)
        return control(config(), state, window, window, now_s)

    def test_each_window_counts_once_and_holds(self) -> None:
        outcome = self.after(self.on_trial())
        assert outcome.hold is not None
        assert (outcome.hold.reason, outcome.hold.message) == ("Verifying", "the last change is still being judged")
        assert outcome.state.trial == replace(TRIAL, good=1)
        assert outcome.state.schedule == parse_text("1-256:5")

    def test_the_second_good_window_ends_it(self) -> None:
        assert self.after(self.on_trial(trial=replace(TRIAL, good=1))).state.trial is None

    def test_so_does_time(self) -> None:
        late = self.after(self.on_trial(trial=replace(TRIAL, at_s=-120.5)), now_s=15.0)
        assert late.state.trial is None

    def test_the_second_bad_one_rolls_back_and_bars_the_k(self) -> None:
        outcome = self.after(self.on_trial(trial=replace(TRIAL, bad=1), generation=2), step_s=0.02)
        state = outcome.state
        assert (state.schedule, state.generation, state.trial) == (BEFORE, 3, None)
        (change,) = (change for change in outcome.changes if change.kind == "Schedule")
        assert change.reason.startswith("rolled back: ")
        assert " tokens/s a request after the change, " in change.reason
        assert [bar.num_speculative_tokens for bar in state.bars] == [5]


def test_credit_grows_by_the_time_that_was_learnt() -> None:
    known = learnt(learned_until_s=15.0, credit_s=1.0, probed_s=15.0)
    outcome = run(known, observation(since=15.0, until=30.0), 30.0)
    assert outcome.state.credit_s == pytest.approx(1.0 + 15.0 * BUDGET)


def test_a_capacity_without_a_word_on_the_target_says_only_its_own() -> None:
    outcome = run(learnt(), GONE)
    assert outcome.capacity.reason == "held: no measurement to base it on"
    assert outcome.num_speculative_tokens == 3
