"""One rule at a time: what each guard lets pass, changes or stops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outrider.core import guards
from outrider.core.acceptance import AcceptanceState
from outrider.core.decision import Proposal
from outrider.core.schedule import parse_text
from outrider.core.state import Bar, Probe, initial_state
from outrider.core.step_time_shift import StepTimeShift

from .builders import GONE, config, facts, learnt, observation, run, yields

SIZES = 64
CONSTANT = {1: [11.0] * SIZES, 3: [10.0] * SIZES}


def to(schedule: str) -> Proposal:
    return Proposal(parse_text(schedule))


def reason(proposal: Proposal) -> str:
    assert proposal.held is not None
    return proposal.held.reason


def test_no_rise_while_requests_wait_and_the_objective_would_be_missed() -> None:
    state = replace(initial_state(config()), schedule=parse_text("1-256:2"))
    outcome = run(state, observation(batch=32, waiting=40, k=2, survival=(0.9, 0.85), step_s=0.060))
    assert outcome.hold is not None
    assert outcome.hold.reason == "QueueNotEmpty"


def test_a_rise_under_a_queue_is_fine_where_the_objective_holds() -> None:
    state = replace(initial_state(config()), schedule=parse_text("1-256:2"))
    outcome = run(state, observation(batch=32, waiting=40, k=2, survival=(0.95, 0.9), step_s=0.0098))
    assert outcome.state.schedule.at(32) == 3


def test_a_barred_k_stays_away_where_it_was_bad() -> None:
    good = observation(batch=8, k=3, survival=(0.9, 0.81, 0.73), step_s=0.009)
    known = learnt(survival=(0.9, 0.81, 0.73))
    assert run(known, good).state.schedule.at(8) == 5
    barred = replace(known, bars=(Bar(5, 4, 16, 100.0, 1),))
    assert run(barred, good).state.schedule.at(8) == 3
    expired = replace(known, bars=(Bar(5, 4, 16, 10.0, 1),))
    assert run(expired, good).state.schedule.at(8) == 5


@pytest.mark.parametrize(
    ("error", "moves"),
    [
        pytest.param(0.0, True, id="where everything is known, 3 % are worth a change"),
        pytest.param(0.02, True, id="a small error leaves them worth one"),
        pytest.param(0.05, False, id="an error of 5 % hides them"),
    ],
)
def test_a_gain_must_stand_out_of_its_own_error(error: float, *, moves: bool) -> None:
    outlook = yields({1: [10.3] * SIZES, 3: [10.0] * SIZES}, errors={3: error})
    found = guards.dead_band(to("1-64:3"), facts(outlook, "1-64:1"))
    assert (found.held is None) is moves
    assert found.schedule == parse_text("1-64:3" if moves else "1-64:1")


def test_a_gain_of_one_in_a_hundred_is_worth_no_change_however_sure() -> None:
    outlook = yields({1: [10.1] * SIZES, 3: [10.0] * SIZES})
    found = guards.dead_band(to("1-64:3"), facts(outlook, "1-64:1"))
    assert reason(found) == "DeadBand"
    assert found.steps[-1] == "hold: no schedule is predicted to gain more than 1.5% at this load"


def test_a_gain_elsewhere_counts_only_where_something_was_measured() -> None:
    rows = {1: [10.0] * 32 + [8.0] * 32, 3: [10.0] * SIZES}
    far = "1-32:3 33-64:1"
    known = guards.dead_band(to(far), facts(yields(rows), "1-64:3", batch=12.0))
    assert known.held is None
    assert known.steps[-1] == "predicted gain 25% from batch 33 on, ready for when load gets there"
    unknown = guards.dead_band(to(far), facts(yields(rows, measured=(8, 24)), "1-64:3", batch=12.0))
    assert reason(unknown) == "DeadBand"


def test_no_gain_elsewhere_is_bought_with_a_loss_here() -> None:
    rows = {1: [10.5] * 32 + [8.0] * 32, 3: [10.0] * SIZES}
    found = guards.dead_band(to("1-64:1"), facts(yields(rows), "1-64:3", batch=12.0))
    assert reason(found) == "DeadBand"


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        pytest.param({"schedule_changed_s": 960.0}, True, id="40 s after a change"),
        pytest.param({"schedule_changed_s": 955.0}, False, id="three periods after it"),
        pytest.param({"schedule_changed_s": None}, False, id="never changed"),
        pytest.param({"schedule_changed_s": 990.0, "jumped_s": 950.0}, False, id="within a minute of a jump"),
        pytest.param({"schedule_changed_s": 990.0, "jumped_s": 930.0}, True, id="more than a minute after it"),
    ],
)
def test_every_schedule_lives_long_enough_to_be_judged(changes: dict[str, Any], *, held: bool) -> None:
    found = guards.dwell(to("1-64:3"), facts(yields(CONSTANT), "1-64:1", **changes))
    assert (found.held is not None) is held
    if held:
        assert reason(found) == "Dwell"


def test_a_final_word_does_not_dwell() -> None:
    settled = replace(to("1-64:3"), settled=True)
    assert guards.dwell(settled, facts(yields(CONSTANT), "1-64:1", schedule_changed_s=999.0)) == settled


def test_k_rises_one_step_at_a_time_and_falls_at_once() -> None:
    outlook = yields({k: [10.0] * SIZES for k in (1, 2, 3, 5)})
    up = guards.limit_rise(to("1-64:5"), facts(outlook, "1-32:2 33-64:3"))
    assert up.schedule == parse_text("1-32:3 33-64:5")
    down = to("1-64:1")
    assert guards.limit_rise(down, facts(outlook, "1-64:5")) == down


def test_right_after_a_jump_k_may_rise_by_several_steps() -> None:
    outlook = yields({k: [10.0] * SIZES for k in (1, 2, 3, 5)})
    up = to("1-64:5")
    assert guards.limit_rise(up, facts(outlook, "1-64:1", jumped_s=990.0)) == up


def collapsed(windows: int) -> AcceptanceState:
    return AcceptanceState((5_000.0,), (0.0,), rejected_windows=windows)


@pytest.mark.parametrize(
    ("windows", "lowest", "expected"),
    [
        pytest.param(2, 0, "1-64:0", id="two windows of rejected drafts turn drafting off"),
        pytest.param(2, 1, "1-64:1", id="or down to the user's smallest K"),
        pytest.param(1, 0, "1-64:3", id="one window may be an odd prompt"),
    ],
)
def test_drafting_ends_at_all_batch_sizes_when_every_draft_is_rejected(
    windows: int, lowest: int, expected: str
) -> None:
    seen = facts(yields(CONSTANT), "1-64:3", acceptance=collapsed(windows), min_speculative_tokens=lowest)
    found = guards.collapse(to("1-64:3"), seen)
    assert found.schedule == parse_text(expected)
    assert found.settled is (windows > 1)


def test_a_collapse_at_the_smallest_k_that_still_drafts_holds_it() -> None:
    seen = facts(yields(CONSTANT), "1-64:1", acceptance=collapsed(2), min_speculative_tokens=1)
    assert reason(guards.collapse(to("1-64:1"), seen)) == "AcceptanceCollapsed"


def test_a_collapse_does_not_wait_for_the_dwell_time() -> None:
    state = learnt(schedule_changed_s=0.0, acceptance=collapsed(1))
    outcome = run(state, observation(survival=(0.0, 0.0, 0.0)))
    assert str(outcome.state.schedule) == "1-256:0"
    assert outcome.changes[0].reason == "K 3→0: every draft was rejected in two windows running"


def test_after_a_collapse_acceptance_is_looked_at_again() -> None:
    """The collapse is remembered while nothing drafts; it must not keep out the probe that could end it."""
    off = learnt(
        schedule=parse_text("1-256:0"), acceptance=collapsed(2), drafts_seen_s=-200.0, schedule_changed_s=-200.0
    )
    waiting = run(off, observation(k=0, since=0, until=15))
    assert waiting.hold is not None
    assert waiting.hold.reason == "SpeculationOff"
    outcome = run(off, observation(k=0, since=90, until=105), 105.0)
    assert [change.kind for change in outcome.changes if change.kind != "Target"] == ["Probe"]
    assert outcome.state.schedule.at(32) == 1


def test_a_probe_after_a_collapse_that_finds_rejection_again_goes_back() -> None:
    probing = learnt(
        schedule=parse_text("1-256:1"),
        acceptance=collapsed(2),
        probe=Probe(parse_text("1-256:0"), 0.0),
        schedule_changed_s=0.0,
    )
    outcome = run(probing, observation(k=1, survival=(0.0,)))
    assert str(outcome.state.schedule) == "1-256:0"
    assert outcome.state.probe is None
    assert [change.kind for change in outcome.changes if change.kind != "Target"] == ["Probe"]


def test_steps_that_take_another_time_are_told() -> None:
    seen = facts(yields(CONSTANT), "1-64:3", shift=StepTimeShift(1.3, 4))
    assert guards.alarm(to("1-64:3"), seen).steps == ("steps take 1.30 times as long as before, for 4 windows by now",)


def test_a_new_time_of_steps_is_no_reason_to_stop_deciding() -> None:
    state, said, since = learnt(), [], 0.0
    for _ in range(6):
        slow = observation(since=since, until=since + 15, step_s=0.0165)
        outcome = run(state, slow, since + 15, values=(3,))
        state, since = outcome.state, since + 15
        said += outcome.proposal.steps
    assert any(sentence.startswith("steps take 1.") for sentence in said)
    assert not any("hold" in sentence for sentence in said)


def test_missing_metrics_end_the_discussion_even_during_a_probe() -> None:
    probing = learnt(schedule=parse_text("1-256:1"), probe=Probe(parse_text("1-256:3"), 0.0))
    outcome = run(probing, GONE)
    assert outcome.state == probing


@pytest.mark.parametrize(
    ("rate", "present", "expected"),
    [
        pytest.param(0.80, 2, 3, id="above 75 % it rises"),
        pytest.param(0.80, 5, 5, id="but not above the ceiling"),
        pytest.param(0.70, 3, 3, id="between 60 and 75 % it stays"),
        pytest.param(0.50, 3, 2, id="under 60 % it falls"),
        pytest.param(0.50, 2, 2, id="but not under 2"),
        pytest.param(0.30, 3, 0, id="under 40 % it goes off"),
        pytest.param(0.80, 1, 2, id="from a probe at 1 it goes to 2"),
    ],
)
def test_the_threshold_rule(rate: float, present: int, expected: int) -> None:
    state = replace(learnt(), schedule=parse_text(f"1-256:{present}"), schedule_changed_s=-600.0)
    seen = observation(k=present, survival=(rate,) * present)
    outcome = run(state, seen, policy="AcceptanceThreshold")
    assert outcome.state.schedule.at(32) == expected


def test_the_threshold_rule_needs_drafts_and_ten_seconds() -> None:
    thin = run(learnt(), observation(steps=2.0), policy="AcceptanceThreshold")
    assert thin.hold is not None
    assert thin.hold.reason == "InsufficientData"
    state = replace(learnt(), schedule_changed_s=10.0)
    soon = run(state, observation(survival=(0.95, 0.95, 0.95)), policy="AcceptanceThreshold")
    assert soon.hold is not None
    assert soon.hold.reason == "Dwell"


def test_the_threshold_rule_without_k_0_keeps_the_smallest_k() -> None:
    state = replace(learnt(), schedule_changed_s=-600.0)
    seen = observation(survival=(0.2, 0.1, 0.1))
    outcome = run(state, seen, policy="AcceptanceThreshold", min_speculative_tokens=1)
    assert outcome.state.schedule.at(32) == 2


def test_a_ceiling_of_one_leaves_the_threshold_rule_one_rung() -> None:
    small = {"values": (0, 1), "initial": parse_text("1-256:1"), "policy": "AcceptanceThreshold"}
    state = replace(learnt(), schedule=parse_text("1-256:1"))
    outcome = run(state, observation(k=1, survival=(0.9,)), **small)
    assert outcome.state.schedule.at(32) == 1
