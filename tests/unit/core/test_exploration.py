"""Looks at what is unknown: which, when, at what price, and the way back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core import controller, exploration
from outrider.core.decision import Proposal
from outrider.core.exploration import BUDGET, LOOK_S, MAX_PERIODS, PROBE_AFTER_S, REST_S
from outrider.core.guards import Facts
from outrider.core.objective import Yield
from outrider.core.schedule import parse_text
from outrider.core.state import START_CREDIT_S, Bar, ControllerState, Probe

from .builders import facts, learnt, observation, predict, run, yields

SIZES = 64


def outlook(**changes: Any) -> Yield:
    """K 3 is known; K 2 and K 5 are predicted a little worse, with an error that could hide a gain."""
    rows = {1: [14.0] * SIZES, 2: [10.2] * SIZES, 3: [10.0] * SIZES, 5: [10.4] * SIZES}
    return yields(rows, **{"errors": {1: 0.08, 2: 0.08, 3: 0.015, 5: 0.15}, **changes})


def look(seen: Facts) -> Proposal:
    return exploration.explore(Proposal(seen.present), seen)


def test_it_looks_at_the_k_that_may_gain_most_around_the_present_batch_size() -> None:
    found = look(facts(outlook(), "1-64:3"))
    assert found.probing
    assert found.settled
    assert found.schedule == parse_text("1-21:3 22-48:5 49-64:3")
    assert found.steps == ("probe: at batch 32 K 5 may yield up to 11% more than K 3; looking for 15 s",)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"bars": (Bar(5, 16, 64, 2_000.0, 1),)}, 2, id="a barred K is not looked at"),
        pytest.param({"bars": (Bar(5, 1, 16, 2_000.0, 1),)}, 5, id="unless it is barred at another load"),
        pytest.param({"bars": (Bar(5, 16, 64, 999.0, 1),)}, 5, id="or its time is over"),
        pytest.param({"waiting": 20.0}, 3, id="not while requests queue"),
        pytest.param({"waiting": 2.0}, 5, id="arrivals that wait for the next step are no queue"),
        pytest.param({"tpot_s": 0.020}, 3, id="not while the objective is missed"),
        pytest.param({"tpot_s": 0.020, "tpot_objective_s": None}, 5, id="without an objective none is missed"),
        pytest.param({"probe": Probe(parse_text("1-64:3"), 990.0)}, 3, id="one look at a time"),
        pytest.param({"credit_s": 0.0}, 3, id="not without credit"),
        pytest.param({"probed_s": 1_000.0 - REST_S + 1}, 3, id="not within a minute of the last look's begin"),
        pytest.param({"probed_s": 1_000.0 - REST_S}, 5, id="a minute after it"),
        pytest.param({"probed_s": 990.0, "jumped_s": 995.0}, 5, id="at once after a jump: all is new"),
    ],
)
def test_when_it_looks(changes: dict[str, Any], expected: int) -> None:
    assert look(facts(outlook(), "1-64:3", **changes)).schedule.at(32) == expected


def test_a_look_that_waits_for_its_budget_says_so() -> None:
    found = look(facts(outlook(), "1-64:3", credit_s=0.5))
    assert found.steps == ("K 5 may be better here; a look at it waits for its budget",)
    assert not found.probing


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"errors": {5: 0.03}}, 3, id="a K that was seen well enough teaches nothing"),
        pytest.param({"errors": {5: 0.05}}, 3, id="a K that could not be better even so is not worth a look"),
        pytest.param({"errors": {5: 0.07}}, 5, id="one that could be is"),
        pytest.param({"errors": {3: 0.015, 5: 0.07}}, 5, id="and so beside a present K that is known"),
        pytest.param({"errors": {3: 0.02, 5: 0.07}}, 3, id="but no gain that a look could not tell from noise"),
        pytest.param(
            {"errors": {5: 0.0}, "length_errors": {3: 0.02, 5: 0.12}}, 5, id="longer drafts whose acceptance is unknown"
        ),
        pytest.param(
            {"errors": {2: 0.0}, "length_errors": {2: 0.12}}, 3, id="shorter drafts teach nothing of acceptance"
        ),
    ],
)
def test_what_is_worth_a_look(changes: dict[str, Any], expected: int) -> None:
    assert look(facts(outlook(**changes), "1-64:3")).schedule.at(32) == expected


def test_upwards_it_looks_one_step_further_and_never_at_no_drafts() -> None:
    rows = {0: [10.0] * SIZES, 1: [10.0] * SIZES, 2: [10.0] * SIZES, 3: [10.0] * SIZES}
    seen = facts(yields(rows, errors={0: 0.5, 2: 0.1, 3: 0.4}), "1-64:1")
    assert look(seen).schedule.at(32) == 2


def test_it_does_not_look_while_something_better_is_known() -> None:
    seen = facts(outlook(), "1-64:1")
    proposal = Proposal(parse_text("1-64:3"), ("at batch 32 K 1→3: better",))
    assert exploration.explore(proposal, seen) == proposal


def test_a_look_costs_what_it_may_lose() -> None:
    seen = facts(outlook(errors={3: 0.0, 5: 0.1}), "1-64:3")
    assert exploration.cost_s(seen, 5, 32) == pytest.approx(15.0 * (1.0 - 10.0 / 10.4 + 0.1))


def test_a_k_that_is_surely_better_costs_nothing() -> None:
    seen = facts(outlook(errors={}), "1-64:1")
    assert exploration.cost_s(seen, 3, 32) == 0.0


@given(
    st.floats(0.0, START_CREDIT_S),
    st.lists(st.floats(-100.0, 10_000.0), max_size=20),
)
def test_credit_grows_by_its_share_of_time_up_to_its_cap(credit_s: float, elapsed: list[float]) -> None:
    state = learnt(credit_s=credit_s)
    for elapsed_s in elapsed:
        before, state = state.credit_s, exploration.earn(state, elapsed_s, 15.0)
        assert state.credit_s == pytest.approx(min(START_CREDIT_S, before + BUDGET * max(0.0, elapsed_s)))


def test_after_a_jump_of_acceptance_a_service_may_look_around_as_if_it_were_new() -> None:
    jumped = replace(learnt(credit_s=0.0), acceptance=replace(learnt().acceptance, jumped=True))
    assert exploration.earn(jumped, 0.0, 15.0).credit_s == START_CREDIT_S


def probing(**changes: Any) -> tuple[ControllerState, Any]:
    """A whole pass that begins a look, and the state before it."""
    state = learnt(schedule_changed_s=-600.0, **changes)
    return state, run(state, observation(), values=(0, 3, 5))


def test_a_pass_that_looks_pays_for_it_and_remembers_the_way_back() -> None:
    before, outcome = probing(credit_s=3.0)
    (change,) = outcome.changes
    assert change.kind == "Probe"
    assert outcome.state.probe == Probe(before.schedule, 15.0)
    assert outcome.state.schedule.at(32) == 5
    assert outcome.state.history == ()
    assert outcome.state.trial is None
    earned = 3.0 + BUDGET * 15.0
    assert 0.0 < earned - outcome.state.credit_s < 15.0


def test_without_credit_the_same_pass_changes_nothing() -> None:
    before, outcome = probing(credit_s=0.0)
    assert outcome.state.schedule == before.schedule
    assert outcome.state.credit_s == pytest.approx(BUDGET * 15.0)


def test_in_mode_observe_a_look_costs_nothing_and_changes_nothing() -> None:
    state = learnt(credit_s=3.0)
    outcome = run(state, observation(), values=(0, 3, 5), mode="Observe")
    assert outcome.proposal.probing
    assert outcome.changes == ()
    assert outcome.state.credit_s == pytest.approx(3.0 + BUDGET * 15.0)


def after(outcome: Any, *, step_s: float, survival: tuple[float, ...]) -> Any:
    """The pass after a look, in which steps with the K looked at took so long."""
    seen = observation(since=15, until=30, k=5, step_s=step_s, survival=survival)
    return run(outcome.state, seen, 30.0, values=(0, 3, 5))


def test_a_look_at_something_worse_goes_back_and_leaves_no_trace_in_the_history() -> None:
    before, outcome = probing()
    back = after(outcome, step_s=0.020, survival=(0.75, 0.56, 0.42, 0.32, 0.24))
    (change,) = (one for one in back.changes if one.kind != "Target")
    assert (change.kind, back.state.schedule, back.state.probe) == ("Probe", before.schedule, None)
    assert change.reason.startswith("probe answered:")
    assert [one for one in back.state.history if one.kind != "Target"] == []
    assert back.state.trial is None


def test_a_look_at_something_better_becomes_a_change_on_trial() -> None:
    before, outcome = probing()
    kept = after(outcome, step_s=0.0105, survival=(0.75, 0.56, 0.42, 0.4, 0.39))
    (change,) = (one for one in kept.changes if one.kind != "Target")
    assert change.kind == "Schedule"
    assert change.before == str(before.schedule)
    assert kept.state.schedule.at(32) == 5
    assert kept.state.probe is None
    assert kept.state.history == (change,)


def test_a_look_that_was_right_as_it_is_becomes_a_change_too() -> None:
    """What it looked at is exactly what proves best: nothing moves on the engines, and the look is over."""
    rows = {1: [9.0] * SIZES, 3: [10.0] * SIZES}
    seen = facts(yields(rows), "1-64:1", probe=Probe(parse_text("1-64:3"), 985.0))
    proposal = controller._discuss(replace(seen, config=replace(seen.config, values=(1, 3))))
    state, change = controller._move_schedule(seen, seen.state, proposal)
    assert change is not None
    assert (change.kind, change.before, change.after) == ("Schedule", "1-64:3", "1-64:1")
    assert state.probe is None


@pytest.mark.parametrize(("periods", "ends"), [(MAX_PERIODS - 1, False), (MAX_PERIODS, True)])
def test_a_look_that_sees_too_little_ends_in_time(periods: int, *, ends: bool) -> None:
    back = parse_text("1-64:3")
    seen = facts(outlook(), "1-64:5", probe=Probe(back, 1_000.0 - 15.0 * periods))
    found = exploration.probe_ended(Proposal(seen.present), seen)
    assert found.settled is ends
    assert found.schedule == back


def test_a_look_takes_its_time_where_passes_are_short() -> None:
    back = parse_text("1-64:3")
    young, old = (
        exploration.probe_ended(Proposal(back), facts(outlook(), "1-64:5", probe=Probe(back, 1_000.0 - age_s)))
        for age_s in (LOOK_S - 1.0, LOOK_S)
    )
    assert young.held is not None
    assert (young.held.reason, young.schedule) == ("Probing", parse_text("1-64:5"))
    assert old.held is None


def test_a_short_period_makes_no_look_cheaper_than_its_time() -> None:
    seen = facts(outlook(errors={3: 0.0, 5: 0.1}), "1-64:3")
    short = replace(seen, config=replace(seen.config, period_s=5.0))
    assert exploration.cost_s(short, 5, 32) == pytest.approx(LOOK_S * (1.0 - 10.0 / 10.4 + 0.1))


OFF = {"schedule": parse_text("1-256:0")}


@pytest.mark.parametrize(
    ("seen_s", "now_s", "why"),
    [
        pytest.param(None, 15.0, "probe: acceptance never seen, trying K 1", id="at once, where none was ever seen"),
        pytest.param(
            0.0, PROBE_AFTER_S, "probe: acceptance not seen for 300 s, trying K 1", id="five minutes after the last"
        ),
    ],
)
def test_without_drafts_acceptance_is_looked_at(seen_s: float | None, now_s: float, why: str) -> None:
    blind = observation(since=now_s - 15, until=now_s, k=0)
    outcome = run(learnt(drafts_seen_s=seen_s, schedule_changed_s=None, **OFF), blind, now_s)
    (change,) = [one for one in outcome.changes if one.kind != "Target"]  # 32 requests are more than K 0 bears
    assert (change.kind, change.reason) == ("Probe", why)
    assert outcome.state.schedule.at(32) == 1
    assert outcome.state.schedule.at(200) == 0
    assert outcome.state.probe == Probe(OFF["schedule"], now_s)


def test_without_drafts_it_waits_a_while_before_it_looks_again() -> None:
    blind = observation(since=200, until=215, k=0)
    outcome = run(learnt(drafts_seen_s=0.0, **OFF), blind, 215.0)
    assert outcome.hold is not None
    assert outcome.hold.reason == "SpeculationOff"


def test_a_service_that_may_never_draft_is_not_looked_at() -> None:
    state = learnt(drafts_seen_s=None, **OFF)
    outcome = run(state, observation(k=0), values=(0,), initial=OFF["schedule"])
    assert outcome.state.schedule == OFF["schedule"]


def test_what_a_whole_pass_looks_at_is_what_its_own_prediction_doubts() -> None:
    state, outcome = probing()
    predicted = predict(state)
    doubt = {k: predicted.time_error[predicted.values.index(k), 31] for k in (3, 5)}
    assert doubt[5] > doubt[3]
    assert outcome.state.schedule.at(32) == 5
