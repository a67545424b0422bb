"""Single passes of the controller: what holds, what moves, and what may never happen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.core import verification
from outrider.core.controller import Outcome, _predict, control
from outrider.core.observation import Histogram, Observation
from outrider.core.schedule import parse_text
from outrider.core.series import Missing
from outrider.core.state import Bar, ControllerConfig, ControllerState, Trial, initial_state

from .builders import config, observation

GONE = Missing("PrometheusUnreachable", "Prometheus does not answer")


def run(state: ControllerState, window: Observation | Missing, now_s: float = 15.0, **changes: Any) -> Outcome:
    return control(config(**changes), state, window, window, now_s)


def learnt(*, survival: Sequence[float] = (0.75, 0.56, 0.42), **changes: Any) -> ControllerState:
    """A state with evidence for K 3 at batch 32 up to second 0, whose schedule never changed."""
    seen = observation(since=-15.0, until=0.0, survival=survival)
    return replace(run(initial_state(config()), seen, 0.0, mode="Observe").state, **changes)


def test_missing_metrics_hold_everything_and_say_why() -> None:
    before = learnt()
    outcome = run(before, GONE)
    assert outcome.hold is not None
    assert outcome.hold.reason == "PrometheusUnreachable"
    assert outcome.changes == ()
    assert outcome.state == before
    assert outcome.capacity.requests_per_replica == before.target
    assert (outcome.in_flight, outcome.acceptance_rate, outcome.acceptance_length) == (None, None, None)


def test_an_idle_service_is_left_alone() -> None:
    outcome = run(learnt(), observation(tokens_factor=0.0))
    assert outcome.hold is not None
    assert outcome.hold.reason == "Idle"


def test_a_handful_of_drafts_is_no_evidence() -> None:
    outcome = run(initial_state(config()), observation(steps=3.0))
    assert outcome.hold is not None
    assert outcome.hold.reason == "InsufficientData"


def test_drafts_without_step_times_are_no_evidence_either() -> None:
    outcome = run(initial_state(config()), replace(observation(), cells=()))
    assert outcome.hold is not None
    assert outcome.hold.message == "no step times were measured yet"
    assert outcome.capacity.limited_by == "Default"


def test_each_window_is_learnt_once() -> None:
    once = run(learnt(), observation()).state
    again = control(config(), once, observation(), observation(), 16.0).state
    assert again.acceptance == once.acceptance
    assert again.latency == once.latency


@pytest.mark.parametrize(
    ("changes", "schedule", "reason"),
    [
        pytest.param({"mode": "Fixed"}, "1-256:3", "mode Fixed", id="Fixed returns to the schedule of the resource"),
        pytest.param(
            {"mode": "Off", "values": (0,), "initial": parse_text("1-256:0")}, "1-256:0", "mode Off", id="Off"
        ),
        pytest.param({"mode": "Observe"}, "1-256:3", "mode Observe", id="Observe"),
        pytest.param({"values": (0, 1, 3)}, "1-256:3", "bounds changed", id="a K that the engine no longer has"),
        pytest.param({"min_speculative_tokens": 6}, "1-256:3", "bounds changed", id="a lower bound above all of it"),
        pytest.param(
            {"max_batch_size": 64, "initial": parse_text("1-64:3")},
            "1-64:3",
            "bounds changed",
            id="another largest batch",
        ),
    ],
)
def test_a_schedule_that_the_resource_no_longer_allows_goes_back_to_the_initial_one(
    changes: dict[str, Any], schedule: str, reason: str
) -> None:
    before = learnt(schedule=parse_text("1-64:5 65-256:1"), generation=4)
    outcome = run(before, GONE, **changes)
    assert str(outcome.state.schedule) == schedule
    assert outcome.state.generation == 5
    assert reason in outcome.state.history[0].reason


def test_the_target_waits_for_the_schedule_and_then_for_itself() -> None:
    state = learnt(schedule_changed_s=0.0)
    assert run(state, observation(since=35, until=50), 50.0, mode="Fixed").state.target == state.target
    moved = run(state, observation(since=50, until=65), 65.0, mode="Fixed")
    assert [change.kind for change in moved.changes] == ["Target"]
    assert run(moved.state, observation(since=120, until=135), 135.0, mode="Fixed").state.target == moved.state.target
    assert run(moved.state, observation(since=175, until=190), 190.0, mode="Fixed").state.target > moved.state.target


def test_a_target_rises_by_half_at_a_time() -> None:
    outcome = run(learnt(schedule_changed_s=-600.0), observation(), mode="Fixed")
    assert outcome.capacity.requests_per_replica > 100
    assert outcome.state.target == 48


def test_a_rise_ends_at_twice_the_largest_batch_that_was_measured() -> None:
    small = observation(since=-15.0, until=0.0, batch=20.0)
    state = run(initial_state(config()), small, 0.0, mode="Observe").state
    outcome = run(state, observation(batch=20.0), mode="Fixed")
    assert outcome.capacity.requests_per_replica > 48
    assert (state.target, outcome.state.target) == (32, 40)


def test_a_target_over_what_was_measured_stays() -> None:
    small = observation(since=-15.0, until=0.0, batch=4.0)
    state = run(initial_state(config()), small, 0.0, mode="Observe").state
    assert run(state, observation(batch=4.0), mode="Fixed").state.target == 32


@pytest.mark.parametrize(
    ("batch", "changes", "moves"),
    [
        pytest.param(60, {}, True, id="the load is over it: at once, whatever changed a moment ago"),
        pytest.param(60, {"target_changed_s": -10.0}, False, id="but not twice within half a minute"),
        pytest.param(4, {}, False, id="the load is under it: no hurry"),
    ],
)
def test_a_target_that_must_fall_does_not_wait(batch: float, changes: dict[str, Any], moves: bool) -> None:
    times = {"target_changed_s": -45.0, "schedule_changed_s": -1.0, **changes}
    state = learnt(target=100, interference_s=0.0004, **times)
    outcome = run(state, observation(batch=batch, tpot_s=0.03), mode="Fixed")
    assert outcome.capacity.requests_per_replica < 30
    assert (outcome.state.target < 100) is moves


def test_the_kv_cache_limits_the_target_where_requests_are_long() -> None:
    outcome = run(learnt(schedule_changed_s=-600.0), observation(kv_cache_usage=0.8))
    assert outcome.capacity.limited_by == "KVCache"
    assert outcome.state.target == outcome.capacity.requests_per_replica == int(int(0.9 * 32 / 0.8) * 0.9)


def test_without_known_kv_use_latency_alone_limits() -> None:
    outcome = run(learnt(), observation(kv_cache_usage=None))
    assert outcome.capacity.limited_by == "TPOT"


def test_measured_tpot_over_predicted_lowers_what_a_replica_may_carry() -> None:
    easy = run(learnt(), observation(tpot_s=0.004)).capacity.requests_per_replica
    hard = run(learnt(), observation(tpot_s=0.008)).capacity.requests_per_replica
    assert hard < easy


def test_few_finished_requests_say_nothing_of_tpot() -> None:
    before = learnt(interference_s=0.001)
    thin = replace(observation(), tpot=Histogram(3.0, 0.9, ((0.3, 3.0), (float("inf"), 3.0))))
    assert run(before, thin).state.interference_s == 0.001


def test_acceptance_that_jumps_freezes_the_target_until_it_is_known() -> None:
    state, since, reasons = learnt(), 0.0, []
    for _ in range(2):
        poor = observation(since=since, until=since + 15, survival=(0.2, 0.04, 0.01))
        outcome = run(state, poor, since + 15)
        assert outcome.changes == ()
        state, since = outcome.state, since + 15
        reasons.append(outcome.hold.reason if outcome.hold else "")
    assert reasons == ["AcceptanceUnclear", "AcceptanceJumped"]


def test_a_change_for_other_batch_sizes_names_one_of_them_and_the_present_one() -> None:
    outcome = run(learnt(), observation(), values=(0, 1, 2, 3))
    smaller = outcome.state.schedule.at(127)
    assert smaller < 3
    assert f"at batch 127 (32 at present) K 3→{smaller}" in outcome.changes[0].reason


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


class TestVerdict:
    """Judging a change by what engines delivered, beside what the schedule before it would have delivered."""

    trial = Trial(parse_text("1-256:3"), at_s=0.0, rate=182.0, tpot_s=0.00403, batch=32.0, prompt_tps=0.0)
    later = observation(since=15, until=30)

    def judge(self, increment: Observation | Missing, now_s: float = 30.0, **trial: Any) -> verification.Verdict:
        predicted = _predict(config(), learnt())
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
    predicted = _predict(config(), learnt())
    assert predicted is not None
    assert verification.begin(parse_text("1-256:3"), observation(steps=0.5, batch=2.0), predicted, 0.0) is None


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


observations = st.builds(
    observation,
    since=st.just(0.0),
    until=st.just(15.0),
    batch=st.floats(1.0, 300.0),
    waiting=st.floats(0.0, 500.0),
    k=st.sampled_from([0, 1, 2, 3, 5]),
    survival=st.lists(st.floats(0.0, 1.0), min_size=5, max_size=5).map(lambda shares: sorted(shares, reverse=True)),
    step_s=st.floats(1e-3, 5.0),
    steps=st.floats(0.1, 5000.0),
    tokens_factor=st.floats(0.0, 2.0),
    kv_cache_usage=st.one_of(st.none(), st.floats(0.0, 1.0)),
)


@settings(max_examples=60)
@given(
    st.lists(st.one_of(observations, st.just(GONE)), min_size=1, max_size=12),
    st.sampled_from(["Goodput", "AcceptanceThreshold"]),
)
def test_whatever_engines_report_k_stays_in_the_set_and_the_target_positive(
    windows: list[Observation | Missing], policy: str
) -> None:
    settings_: ControllerConfig = config(policy=policy, min_speculative_tokens=1)
    state = initial_state(settings_)
    for number, window in enumerate(windows, start=1):
        now_s = 15.0 * number
        if isinstance(window, Observation):
            window = replace(window, since_s=now_s - 15.0, until_s=now_s)
        outcome = control(settings_, state, window, window, now_s)
        if outcome.changes:
            assert outcome.reason
        if isinstance(window, Missing):
            assert outcome.state.schedule == state.schedule
            assert outcome.state.target == state.target
        state = outcome.state
        assert set(state.schedule.values) <= set(settings_.allowed)
        assert state.schedule.max_batch_size == 256
        assert state.target >= 1
