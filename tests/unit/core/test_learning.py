"""What a pass takes in: every count once, and nothing while two regimes mix."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.core import latency, learning
from outrider.core.acceptance import AcceptanceState
from outrider.core.interference import Spread
from outrider.core.observation import Observation
from outrider.core.schedule import parse_text
from outrider.core.series import Missing
from outrider.core.state import ControllerState, Probe, initial_state

from .builders import GONE, config, learnt, observation, predict

NEXT = observation(since=0.0, until=15.0)


def test_a_window_is_learnt_once() -> None:
    once = learning.learn(config(), learnt(), NEXT).state
    again = learning.learn(config(), once, NEXT).state
    assert again == once
    assert once.learned_until_s == 15.0


def test_missing_metrics_teach_nothing_and_still_leave_a_prediction() -> None:
    before = learnt()
    lesson = learning.learn(config(), before, GONE)
    assert lesson.state == before
    assert lesson.predicted is not None
    assert lesson.shift is None


def test_nothing_measured_leaves_no_prediction() -> None:
    assert learning.learn(config(), initial_state(config()), GONE).predicted is None


def test_a_jump_is_told_in_one_pass_only() -> None:
    jumped = replace(learnt(), acceptance=replace(learnt().acceptance, jumped=True))
    assert not learning.learn(config(), jumped, GONE).state.acceptance.jumped


def test_the_time_of_a_jump_is_kept() -> None:
    state, since = learnt(), 0.0
    while state.jumped_s is None and since < 60.0:
        state = learning.learn(
            config(), state, observation(since=since, until=since + 15, survival=(0.2, 0.0, 0.0))
        ).state
        since += 15.0
    assert state.jumped_s == since


def test_drafts_that_are_accepted_again_after_a_collapse_are_a_jump() -> None:
    """The few drafts of a collapse prove none by their number, and yet nothing that they say holds any more."""
    rejected = AcceptanceState((60.0,), (0.0,), rejected_windows=2)
    lesson = learning.learn(config(), learnt(acceptance=rejected), observation(k=1, survival=(0.75,)))
    state = lesson.state
    assert state.acceptance.jumped
    assert state.jumped_s == 15.0
    assert state.acceptance.suspicion == 0
    assert state.acceptance.accepted[0] == pytest.approx(0.75 * state.acceptance.drafted[0])


@pytest.mark.parametrize(("steps", "seen"), [pytest.param(1000.0, True, id="many"), pytest.param(0.5, False, id="few")])
def test_drafts_count_as_seen_when_there_are_many(steps: float, *, seen: bool) -> None:
    state = learning.learn(config(), learnt(drafts_seen_s=-90.0), observation(steps=steps)).state
    assert state.drafts_seen_s == (15.0 if seen else -90.0)


def test_a_changed_engine_is_noticed() -> None:
    state, since, shift = learnt(), 0.0, None
    while shift is None and since < 150.0:
        lesson = learning.learn(config(), state, observation(since=since, until=since + 15, step_s=0.0165))
        state, shift, since = lesson.state, lesson.shift, since + 15.0
    assert shift is not None
    assert 1.2 < shift.ratio < 1.55


def test_k_that_only_the_way_back_holds_is_predicted_too() -> None:
    """The resource may have given a K up while a probe that returns to it, or a trial of it, is under way."""
    narrow = config(values=(0, 1))
    state = replace(learnt(schedule=parse_text("1-256:1")), probe=Probe(parse_text("1-256:5"), 0.0))
    predicted = learning.learn(narrow, state, NEXT).predicted
    assert predicted is not None
    assert predicted.values == (0, 1, 5)


def test_a_k_that_was_never_run_is_predicted_with_more_doubt() -> None:
    predicted = predict(learnt())
    run, other = (predicted.time_error[predicted.values.index(k), 31] for k in (3, 1))
    assert other > run > 0.0
    assert not predicted.extrapolated[predicted.values.index(3), 31]
    assert predicted.extrapolated[predicted.values.index(1), 31]


def test_prefill_of_others_is_part_of_the_prediction() -> None:
    mixed = replace(NEXT, cells=(*NEXT.cells, replace(NEXT.cells[0], mixed=True, seconds=2 * NEXT.cells[0].seconds)))
    lesson = learning.learn(config(), learnt(), mixed)
    assert lesson.predicted is not None
    assert lesson.predicted.prefill_s > predict(learnt()).prefill_s == 0.0


def spread_after(state: ControllerState) -> Spread:
    late = replace(NEXT, tpot=observation(tpot_s=0.02).tpot)
    return learning.learn(config(), state, late).state.latency.interference.spread


def test_requests_that_lived_under_two_regimes_say_nothing_of_the_spread() -> None:
    calm = learnt()
    assert spread_after(calm) != calm.latency.interference.spread
    doubtful = replace(calm, acceptance=replace(calm.acceptance, drafted=(50_000.0,) * 3, accepted=(5_000.0, 0.0, 0.0)))
    assert spread_after(doubtful) == doubtful.latency.interference.spread


def test_cached_tokens_of_a_request_are_those_of_all_engines_over_all_requests() -> None:
    assert learning.tokens_per_request(observation(batch=30.0, kv_cache_usage=0.1)) == pytest.approx(1_250.0)
    assert learning.tokens_per_request(observation(kv_cache_usage=None)) is None
    assert learning.tokens_per_request(observation(batch=0.5)) is None


def test_a_pass_without_news_fits_nothing_anew() -> None:
    once = learning.learn(config(), learnt(), NEXT).state
    again = learning.learn(config(), once, GONE).state
    assert once.fitted is not None
    assert again.fitted is once.fitted


@pytest.mark.parametrize(
    ("capture_size", "increment"),
    [
        pytest.param(504, observation(since=15.0, until=30.0), id="more steps"),
        pytest.param(256, GONE, id="other graphs"),
    ],
)
def test_what_a_model_rests_on_has_changed(capture_size: int, increment: Observation | Missing) -> None:
    once = learning.learn(config(capture_size=504), learnt(), NEXT).state
    again = learning.learn(config(capture_size=capture_size), once, increment).state
    assert again.fitted is not None
    fresh = latency.fit(again.latency, capture_size)
    assert fresh is not None
    assert again.fitted.model is not None
    assert again.fitted.model.step_time_s([8.0, 64.0], 3).tolist() == fresh.step_time_s([8.0, 64.0], 3).tolist()
    assert again.fitted is not once.fitted
