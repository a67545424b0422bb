"""The target of the autoscaler on its way to the capacity: when it moves, how far, and why no further.

Every sentence is for the one who reads a capacity of 144 above a target of 32.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.core.capacity import UNKNOWN, Capacity
from outrider.core.observation import Observation
from outrider.core.series import Missing
from outrider.core.state import ControllerConfig, ControllerState

TARGET_DEAD_BAND = 0.1
"""The HPA's own tolerance: a smaller fall of the target would not move a replica."""
RISE_DEAD_BAND = 0.25
"""A rise must be worth more: under constant load the capacity wavers by a sixth from hour to hour, and a target that
followed it both ways would never rest."""
TARGET_DWELL_S = 120.0
"""Between two patches of the target: KEDA rebuilds its scalers on each, and a replica takes minutes to answer."""
APART_S = 60.0
"""Between a change of schedule and one of target, so that the effect of each can be told."""
RISE_AFTER_FALL_S = 900.0
"""A rise that takes a fall back waits: what made the target fall may return, replicas that were given up return by a
cold start, and on recorded traces targets of 3 and 4, or 9 and 12, took turns every few minutes."""
URGENT_FALL = 0.2
"""A target that falls by this much while the present load is over it waits for neither: requests miss their
objective."""
URGENT_DWELL_S = 30.0
"""Between two urgent patches: two passes, so that the second has seen something of the first."""
MAX_RISE = 1.5
"""A rise gives replicas up on a prediction about batches that nobody has run: half as much again at a time."""
QUEUED = 0.1
"""Requests waiting over requests running that make a queue: arrivals that wait for the next step do not."""
REACH = 2.0
"""A rise ends at so many times the largest batch measured: without it a service that never ran more than 3 requests
at once was trusted with 108."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target that a pass finds right, and why it is, or is not yet, what the capacity says."""

    value: int
    why: str


def judge(
    config: ControllerConfig,
    state: ControllerState,
    able: Capacity,
    window: Observation | Missing,
    now_s: float,
    *,
    settled: bool,
) -> Target:
    """Patch the target when it pays: fresh data, a clear difference, and time since the last change of either kind.

    A target must fall at once when the present load is over it: replicas take minutes, and requests miss their
    objective meanwhile.
    """
    before = state.target
    if able.limited_by == UNKNOWN.limited_by or isinstance(window, Missing):
        return Target(before, "")  # the capacity's own sentence says so
    if config.frozen or config.mode == "Observe":
        return Target(before, f"held at {before}: {'paused' if config.frozen else 'mode Observe'}")
    if not settled:
        return Target(before, f"held at {before} while acceptance is unclear")
    after, why = _toward(able, state)
    if after > before and strained(config, window):
        return Target(
            before, f"held at {before}: requests wait or miss the objective, and {after} would give replicas up"
        )
    if after == before:
        return Target(before, why)
    if abs(after - before) < TARGET_DEAD_BAND * before:
        return Target(before, f"held at {before}: {after} is within a tenth of it")
    if after > before and state.target_fell_s is not None and now_s < state.target_fell_s + RISE_AFTER_FALL_S:
        return Target(before, f"held at {before} for a quarter of an hour after its fall; then {why}")
    if before * (1.0 - URGENT_FALL) < after < before and not _matters(state, before, after):
        return Target(before, f"held at {before}: {after} asks for as many replicas")
    if 0 < after - before < RISE_DEAD_BAND * before:
        return Target(before, f"held at {before}: a rise to {after} is less than a quarter")
    urgent = after <= before * (1.0 - URGENT_FALL) and window.in_flight > after * len(window.engines)
    waits = (
        ((state.target_changed_s, URGENT_DWELL_S),)
        if urgent
        else ((state.target_changed_s, TARGET_DWELL_S), (state.schedule_changed_s, APART_S))
    )
    if any(since is not None and now_s < since + apart_s for since, apart_s in waits):
        return Target(before, f"held at {before} a moment longer, so that the last change can show; then {why}")
    if state.probe is not None and not urgent:
        return Target(before, f"held at {before} while another K is looked at; then {why}")
    if state.trial is not None and not urgent:
        return Target(before, f"held at {before} until the last change of K is judged; then {why}")
    return Target(after, why)


def replicas_for(load: float, target: int) -> int:
    """Replicas that so many requests in flight need: 0 without any, and no less than 1 for a part of one."""
    return -(-max(1, round(load)) // target) if load > 0 else 0


def desired_replicas(load: float, target: int, *, unmeasured: int, present: int, least: int = 0) -> int:
    """Replicas to ask for when ``unmeasured`` of the ``present`` ones do not report.

    As with the HPA, those count as idle for a rise and as carrying their target for a fall: a replica that has just
    started does not call for more, and one that Prometheus lost does not send others away.

    Of those that run, ``least`` stay: fewer would not bear the load (`outrider.core.capacity.least_replicas`), and the
    one that went would have to come back.
    """
    fewest, most = replicas_for(load, target), replicas_for(load + unmeasured * target, target)
    return max(min(max(present, fewest), most), min(present, least))


def least_requests(target: int, *, present: int, least: int) -> int:
    """Requests in flight to report at the least, so that by this target the HPA keeps ``least`` of the replicas that
    are ``present``: it rounds up, and one request more than one replica fewer may carry is enough.

    0 where there is nothing to keep: the first replica is kept by its load alone, or goes.
    """
    kept = min(present, least)
    return (kept - 1) * target + 1 if kept > 1 else 0


def _matters(state: ControllerState, before: int, after: int) -> bool:
    """Whether the highest load of the last minutes needs other replicas by one target than by the other."""
    load = state.bursts.recent.in_flight
    return replicas_for(load, before) != replicas_for(load, after)


def strained(config: ControllerConfig, window: Observation) -> bool:
    """A tenth as many requests wait as run, or the window's percentile misses the objective."""
    slow_s = window.tpot.quantile(config.percentile)
    late = config.tpot_objective_s is not None and slow_s is not None and slow_s > config.tpot_objective_s
    return late or window.waiting >= max(1.0, QUEUED * window.running)


def _toward(able: Capacity, state: ControllerState) -> tuple[int, str]:
    """The next target on the way to the capacity, and in a sentence what bounds the step."""
    wanted, before, largest = able.requests_per_replica, state.target, largest_batch(state)
    reach, rise = max(before, int(REACH * largest)), max(before + 1, int(before * MAX_RISE))
    after = min(wanted, reach, rise)
    if after == wanted:
        return after, f"{after} with a margin of a tenth"
    if after == reach:
        bound = f"a target rises to twice the largest batch measured, {largest:.0f}"
        return after, f"{after} of {wanted} for now: {bound}"
    return after, f"{after} of {wanted} for now: a target rises by half as much again at a time"


def largest_batch(state: ControllerState) -> float:
    """The largest mean batch with measured step times; 0 before any was measured."""
    return max((cell.mean_batch for cell in state.latency.cells.values()), default=0.0)
