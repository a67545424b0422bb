"""What a control loop is told of one service: from its resource and the engine that was rendered for it."""

from __future__ import annotations

from math import ceil

from outrider.api.defaults import Resolved
from outrider.api.resource import Spec
from outrider.core.state import DEFAULT_LEAD_S, ControllerConfig
from outrider.manifests.engine_container import EngineContainer

LONGEST_LEAD_S = 900.0
"""Peaks of more than a quarter of an hour say little about the next one."""
LONGEST_LOOK_BACK_S = 3600
"""The HPA takes no more."""


def controller_config(
    resolved: Resolved,
    container: EngineContainer,
    *,
    period_s: float,
    frozen: bool = False,
    cold_start_s: float | None = None,
) -> ControllerConfig:
    """The configuration of a service's controller; the demo's replay asks for the same one. ``cold_start_s`` is what
    starts of its pods take, None before any was seen."""
    return ControllerConfig(
        mode=resolved.mode,
        policy=resolved.policy,
        values=container.values,
        min_speculative_tokens=resolved.min_speculative_tokens,
        max_batch_size=resolved.max_num_seqs,
        capture_size=container.capture_size,
        initial=container.initial_schedule,
        tpot_objective_s=resolved.tpot_s,
        percentile=resolved.percentile,
        period_s=period_s,
        frozen=frozen,
        ttft_objective_s=resolved.ttft_s,
        lead_s=lead_s(cold_start_s, resolved.scale_down_stabilization_s),
    )


def lead_s(cold_start_s: float | None, look_back_s: int) -> float:
    """How far ahead replicas must be asked for, seconds: a cold start, in whole half minutes, so that a second more
    or less is no other configuration.

    No less than the default, since peaks of a shorter time are mostly chance; but whoever gives replicas up after
    ``look_back_s`` without load does not want peaks kept for longer. No more than `LONGEST_LEAD_S`.
    """
    least_s = min(DEFAULT_LEAD_S, _half_minutes_s(look_back_s))
    return DEFAULT_LEAD_S if cold_start_s is None else min(LONGEST_LEAD_S, max(least_s, _half_minutes_s(cold_start_s)))


def _half_minutes_s(seconds: float) -> float:
    """Rounded up, at least one."""
    return 30.0 * max(1, ceil(seconds / 30.0))


def look_back_s(spec: Spec, resolved: Resolved, cold_start_s: float | None) -> int:
    """For how long load must stay low before the HPA gives a replica up, seconds.

    The user's number, or the operator's as often as it takes to be no shorter than a cold start: each other number is
    a patch of the ScaledObject. An operator that is told 0 looks back on nothing.
    """
    own = None if spec.autoscaling is None else spec.autoscaling.scale_down_stabilization_seconds
    usual_s = resolved.scale_down_stabilization_s
    if own is not None or cold_start_s is None or usual_s == 0:
        return usual_s
    return min(LONGEST_LOOK_BACK_S, usual_s * max(1, ceil(cold_start_s / usual_s)))
