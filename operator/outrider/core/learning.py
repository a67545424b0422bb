"""What a pass learns from the last samples, and what it predicts from all that is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

from outrider.core import acceptance, bursts, first_token, latency, objective
from outrider.core.acceptance import MIN_DRAFTS
from outrider.core.latency import LatencyModel
from outrider.core.objective import Yield
from outrider.core.observation import Observation
from outrider.core.series import Missing
from outrider.core.state import ControllerConfig, ControllerState, Fitted
from outrider.core.step_time_shift import StepTimeShift

OVERLOAD = 1.1
"""Engines with more than their target, and the HPA's tolerance, wait for replicas: what first tokens take then says
nothing of the load that was asked for."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a pass knows after its samples."""

    state: ControllerState
    predicted: Yield | None
    """None until step times were measured."""
    shift: StepTimeShift | None = None
    """Steps no longer take what they took, and older ones were discounted."""


def learn(config: ControllerConfig, state: ControllerState, increment: Observation | Missing) -> Lesson:
    """Take in what happened since the last pass, each count once, and predict what each K would yield."""
    until_s, shift = state.learned_until_s, None
    if isinstance(increment, Missing) or (until_s is not None and increment.until_s <= until_s):
        state, model = _fit(config, replace(state, acceptance=replace(state.acceptance, jumped=False)))
        return Lesson(state, _predict(config, state, model, _overhead_s(state, model)))
    elapsed_s = increment.until_s - (increment.since_s if until_s is None else until_s)
    # A schedule on trial may itself be what makes steps slow: that is for its judge, and not a shift of all steps.
    if state.trial is None and state.probe is None:
        state, earlier = _fit(config, state)
        if earlier is not None:
            watched, shift = latency.look(state.latency, earlier, increment.cells)
            state = replace(state, latency=watched)
    state, model = _fit(config, _count(config, state, increment, elapsed_s))
    overhead_s = _overhead_s(state, model)
    if model is not None and overhead_s is not None:
        state = _learn_spread(config, state, model, increment, elapsed_s, overhead_s)
    return Lesson(state, _predict(config, state, model, overhead_s), shift)


def follow_load(
    config: ControllerConfig, state: ControllerState, window: Observation | Missing, increment: Observation | Missing
) -> ControllerState:
    """Take in the load since the last pass, before `learn` does.

    Not while engines are missing that cannot be read, or are too new to learn from: they would pass for a fall of the
    load, and then for a burst.
    """
    if isinstance(window, Missing) or isinstance(increment, Missing):
        return state
    again = state.learned_until_s is not None and increment.until_s <= state.learned_until_s
    if again or increment.left_out or len(increment.engines) < len(window.engines):
        return state
    peak = bursts.Peak(increment.generation_tokens / increment.seconds, increment.in_flight)
    return replace(state, bursts=bursts.update(state.bursts, peak, increment.until_s, config.lead_s))


def _fit(config: ControllerConfig, state: ControllerState) -> tuple[ControllerState, LatencyModel | None]:
    """The model of what was measured, and the state with it: cells that did not change are not fitted again."""
    fitted, cells = state.fitted, state.latency.cells
    if fitted is not None and fitted.cells is cells and fitted.capture_size == config.capture_size:
        return state, fitted.model
    model = latency.fit(state.latency, config.capture_size)
    return replace(state, fitted=Fitted(cells, config.capture_size, model)), model


def _count(
    config: ControllerConfig, state: ControllerState, increment: Observation, elapsed_s: float
) -> ControllerState:
    accepted, jumped = acceptance.update(
        state.acceptance, increment.drafted_per_pos, increment.accepted_per_pos, elapsed_s
    )
    timed = latency.update(
        state.latency,
        increment.cells,
        elapsed_s,
        generation_tokens=increment.generation_tokens,
        context_tokens=tokens_per_request(increment),
    )
    many = increment.num_drafts >= MIN_DRAFTS / 4
    each = increment.in_flight / len(increment.engines)
    asked = each <= OVERLOAD * state.target
    return replace(
        state,
        acceptance=accepted,
        latency=timed,
        first_token=first_token.update(state.first_token, increment.ttft, config.percentile, each, elapsed_s)
        if asked
        else state.first_token,
        learned_until_s=increment.until_s,
        drafts_seen_s=increment.until_s if many else state.drafts_seen_s,
        jumped_s=increment.until_s if jumped else state.jumped_s,
    )


def _overhead_s(state: ControllerState, model: LatencyModel | None) -> float | None:
    return None if model is None else latency.mixed_overhead(state.latency, model)


def _predict(
    config: ControllerConfig, state: ControllerState, model: LatencyModel | None, overhead_s: float | None
) -> Yield | None:
    if model is None:
        return None
    # The present schedule may hold a K that the resource has given up since: a frozen service keeps it.
    past = [one.before for one in (state.trial, state.probe) if one is not None]
    values = sorted({*config.values, *state.schedule.values, *(k for schedule in past for k in schedule.values)})
    lengths = acceptance.acceptance_lengths(state.acceptance, values[-1])
    return objective.predict(model, [lengths[k] for k in values], values, config.max_batch_size, overhead_s or 0.0)


def tokens_per_request(window: Observation) -> float | None:
    """Mean tokens of KV cache that a running request holds; None where engines do not tell."""
    held = window.cached_tokens
    return held / window.running if held > 0 and window.running >= 1 else None


def _learn_spread(
    config: ControllerConfig,
    state: ControllerState,
    model: LatencyModel,
    increment: Observation,
    elapsed_s: float,
    overhead_s: float,
) -> ControllerState:
    """Requests that finish right after a jump of acceptance lived under both regimes and tell nothing of either."""
    if state.acceptance.jumped or state.acceptance.suspicion != 0:
        return state
    learnt = latency.learn_spread(
        state.latency,
        model,
        increment,
        lambda k: acceptance.acceptance_length(state.acceptance, k).value,
        config.percentile,
        elapsed_s,
        overhead_s,
    )
    return replace(state, latency=learnt)
