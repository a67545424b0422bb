"""Single passes of the controller: what holds, what moves, and what may never happen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.core.bursts import Bursts, Peak
from outrider.core.controller import control
from outrider.core.exploration import MAX_PERIODS
from outrider.core.observation import Histogram, Observation
from outrider.core.schedule import parse_text
from outrider.core.series import Missing
from outrider.core.state import START_CREDIT_S, ControllerConfig, ControllerState, initial_state

from .builders import GONE, config, learnt, observation, run


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
        pytest.param(
            {"min_speculative_tokens": 2}, "1-64:5 65-256:2", "bounds changed", id="a least K above some of it"
        ),
        pytest.param(
            {"max_batch_size": 64, "initial": parse_text("1-64:3")},
            "1-64:3",
            "bounds changed",
            id="another largest batch",
        ),
    ],
)
def test_a_schedule_that_the_resource_no_longer_allows_is_left(
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


FIRST_TOKENS = Histogram(200.0, 200.0, ((0.9, 0.0), (1.1, 200.0), (float("inf"), 200.0)))


def test_first_tokens_that_come_late_limit_the_target_and_the_pass_says_so() -> None:
    seen = replace(observation(), ttft=FIRST_TOKENS)
    outcome = run(learnt(schedule_changed_s=-600.0), seen, mode="Fixed", ttft_objective_s=1.0)
    assert outcome.capacity.limited_by == "TTFT"
    assert outcome.capacity.reason.startswith("with 26 requests in flight the first token takes the 1000 ms allowed")


def test_first_tokens_under_more_load_than_was_asked_for_teach_nothing() -> None:
    late = replace(observation(), ttft=FIRST_TOKENS)
    assert run(learnt(target=32), late, mode="Fixed").state.first_token.known
    assert not run(learnt(target=16), late, mode="Fixed").state.first_token.known


def test_the_load_is_followed_while_all_engines_can_be_read() -> None:
    seen = observation()
    assert run(learnt(), seen).state.bursts.highest.load_tps == pytest.approx(seen.generation_tokens / 15.0)
    partly = replace(observation(tokens_factor=0.5), left_out=(GONE,))
    assert run(learnt(), partly).state.bursts == learnt().bursts
    two = replace(seen, engines=seen.engines * 2)
    one_is_new = control(config(), learnt(), two, seen, 15.0)
    assert one_is_new.state.bursts == learnt().bursts


def test_replicas_that_carry_the_load_stay() -> None:
    """32 requests yield as many tokens as one replica does at its target of 8, several times over."""
    assert run(learnt(target=40), observation(), mode="Fixed").least_replicas == 1
    assert run(learnt(target=8), observation(), mode="Observe").least_replicas == 3


def test_a_load_that_nobody_has_seen_for_long_keeps_no_replica() -> None:
    """One engine that can never be read stops the peaks; they must not hold replicas for good."""
    partly = replace(observation(), left_out=(GONE,))
    long_ago = Bursts(-10_000.0, Peak(1e6, 100.0))
    assert run(learnt(target=8, bursts=long_ago), partly, mode="Fixed").least_replicas == 0
    lately = Bursts(0.0, Peak(1e6, 100.0))
    assert run(learnt(target=8, bursts=lately), partly, mode="Fixed").least_replicas > 1


def test_a_target_rises_by_half_at_a_time() -> None:
    outcome = run(learnt(schedule_changed_s=-600.0), observation(), mode="Fixed")
    assert outcome.capacity.requests_per_replica > 75
    assert outcome.state.target == 48


def test_a_rise_ends_at_twice_the_largest_batch_that_was_measured() -> None:
    small = observation(since=-15.0, until=0.0, batch=20.0)
    state = run(initial_state(config()), small, 0.0, mode="Observe").state
    outcome = run(state, observation(batch=20.0), mode="Fixed")
    assert outcome.capacity.requests_per_replica > 48
    assert (state.target, outcome.state.target) == (32, 40)


def test_a_target_over_what_was_measured_stays() -> None:
    small = observation(since=-15.0, until=0.0, batch=4.0, step_s=0.006, kv_cache_usage=0.01)
    state = run(initial_state(config()), small, 0.0, mode="Observe").state
    outcome = run(state, observation(batch=4.0, step_s=0.006, kv_cache_usage=0.01), mode="Fixed")
    assert outcome.capacity.requests_per_replica > 32
    assert outcome.state.target == 32


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
    state = learnt(target=100, **times)
    step_s = 0.011 if batch > 32 else 0.0058
    outcome = run(state, observation(batch=batch, step_s=step_s), mode="Fixed", tpot_objective_s=0.0035)
    assert outcome.capacity.requests_per_replica < 30
    assert (outcome.state.target < 100) is moves


def test_the_kv_cache_limits_the_target_where_requests_are_long() -> None:
    outcome = run(learnt(schedule_changed_s=-600.0), observation(kv_cache_usage=0.8))
    assert outcome.capacity.limited_by == "KVCache"
    assert outcome.state.target == outcome.capacity.requests_per_replica == 23


def test_without_known_kv_use_latency_alone_limits() -> None:
    outcome = run(learnt(), observation(kv_cache_usage=None))
    assert outcome.capacity.limited_by == "TPOT"


def test_measured_tpot_over_predicted_lowers_what_a_replica_may_carry() -> None:
    easy = run(learnt(), observation(tpot_s=0.004)).capacity.requests_per_replica
    hard = run(learnt(), observation(tpot_s=0.008)).capacity.requests_per_replica
    assert hard < easy


def jump(state: ControllerState, first_s: float = 0.0) -> list[Any]:
    """Four passes after acceptance fell from three in four to one in five."""
    outcomes = []
    for number in range(4):
        since = first_s + 15.0 * number
        poor = observation(since=since, until=since + 15, k=state.schedule.at(32), survival=(0.2, 0.04, 0.01))
        outcomes.append(run(state, poor, since + 15))
        state = outcomes[-1].state
    return outcomes


def test_a_jump_of_acceptance_is_waited_for_one_window_and_then_decided_on_at_once() -> None:
    unclear, jumped, *_ = jump(learnt(schedule_changed_s=0.0))
    assert unclear.hold is not None
    assert unclear.hold.reason == "AcceptanceUnclear"
    assert unclear.changes == ()
    assert "acceptance changed abruptly; older counts were dropped" in jumped.proposal.steps
    assert [change.kind for change in jumped.changes] == ["Schedule"]
    assert jumped.state.schedule.at(32) < 3


def test_a_change_at_a_jump_is_not_put_on_trial_since_nothing_comparable_came_before() -> None:
    _, jumped, *_ = jump(learnt())
    assert jumped.state.trial is None


def test_the_target_waits_until_acceptance_is_known_again() -> None:
    unclear, jumped, *_ = jump(learnt(target=200, schedule_changed_s=-600.0))
    assert unclear.capacity.requests_per_replica < 200
    assert [unclear.state.target, jumped.state.target] == [200, 200]
    assert "while acceptance is unclear" in jumped.capacity.reason


def test_a_minute_after_a_jump_the_schedule_moves_without_dwelling() -> None:
    """The first guess rests on one window; every later one knows more and may correct it."""
    rows = learnt(schedule=parse_text("1-256:1"), schedule_changed_s=10.0)
    good = observation(batch=32, k=1, survival=(0.75,), since=0.0, until=15.0)
    assert run(rows, good).state.schedule.at(32) == 1
    settling = replace(rows, jumped_s=0.0)
    outcome = run(settling, good)
    assert [change.kind for change in outcome.changes] == ["Schedule"]
    assert outcome.state.schedule.at(32) > 1
    late = run(replace(settling, schedule_changed_s=50.0), replace(good, since_s=46.0, until_s=61.0), 61.0)
    assert late.state.schedule.at(32) == 1


def test_a_change_for_other_batch_sizes_names_one_of_them_and_the_present_one() -> None:
    state = learnt()
    for k, step_s in ((3, 0.024), (1, 0.0105)):
        there = observation(since=-15.0, until=0.0, batch=150.0, k=k, survival=(0.75, 0.56, 0.42), step_s=step_s)
        state = run(replace(state, learned_until_s=-15.0), there, 0.0, mode="Observe").state
    outcome = run(state, observation(), values=(0, 1, 2, 3))
    smaller = outcome.state.schedule.at(150)
    assert smaller < outcome.state.schedule.at(32) == 3
    assert "(32 at present) K 3→" in outcome.changes[0].reason
    assert "ready for when load gets there" in " ".join(outcome.proposal.steps)


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
        assert 0.0 <= state.credit_s <= START_CREDIT_S
        assert all(change.kind in ("Schedule", "Target") for change in state.history)
        if state.probe is not None and isinstance(window, Observation) and window.generation_tokens > 0:
            assert now_s < state.probe.at_s + MAX_PERIODS * settings_.period_s
