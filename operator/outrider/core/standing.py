"""Whether a service must be judged in this pass, or what was decided last stands.

A decision costs milliseconds, and most of a large fleet does in this period what it did in the last. A glance costs a
tenth of it. What a glance cannot see is bounded by turns: each service is judged in every `TURNS`-th pass, whatever
its numbers say. In doubt a service is judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from outrider.core.controller import Outcome
from outrider.core.exploration import PROBE_AFTER_S, REST_S
from outrider.core.glance import Course, Glance, between, course_of
from outrider.core.guards import DWELL_PERIODS, SETTLE_S
from outrider.core.observation import Observation
from outrider.core.series import Missing
from outrider.core.state import ControllerConfig, ControllerState
from outrider.core.target import (
    APART_S,
    RISE_AFTER_FALL_S,
    TARGET_DEAD_BAND,
    TARGET_DWELL_S,
    replicas_for,
    strained,
)

TURNS = 8
"""Passes in which each service is judged at least once: with the usual period every two minutes. What moves by less
than its band waits so long, and gains of `outrider.core.guards.DEAD_BAND` do not hurry; what a pass learns from is
counted over the whole time."""
FEWEST_SECONDS = 0.5
"""Share of a control period that two glances must be apart to be compared: passes that were asked for follow one
another within a second, in which a counter tells nothing."""
TOKENS, RUNNING, PROMPT = 0.2, 0.2, 0.3
"""Bands, as a share of what the last decision saw: tokens a second, requests running, prompt tokens a second. A load
jump or a stall is far beyond; three scrapes of a constant load with a scatter of 3 % are within a third of them."""
FEW_REQUESTS = 2.0
"""No smaller band of requests: they come in whole numbers."""
TPOT, TTFT = 0.1, 0.25
"""Bands of mean latencies. The first is what the slack of an objective is counted in; the second scatters more."""
ACCEPTED = 0.05
"""Band of the share of drafts that were accepted up to a position: a jump is several times that."""
QUIET = (None, "DeadBand", "Idle")
"""Reasons of a hold that stands until something moves; all others wait for something."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A decision that stands while nothing moves: what it was made for."""

    config: ControllerConfig
    engines: frozenset[tuple[str, int]]
    """The ready engines, each with its life."""
    seen: Course
    target: int
    generation: float | None
    until_s: float
    """When a wait ends that it was made in."""


def standing(
    config: ControllerConfig,
    outcome: Outcome,
    window: Observation | Missing,
    engines: frozenset[tuple[str, int]],
    now_s: float,
) -> Standing | None:
    """What stands until something moves; None where the next pass has to judge again: something changed, is tried, is
    unclear or amiss."""
    if isinstance(window, Missing) or _unsettled(outcome, window) or _missed(config, window):
        return None
    if outcome.hold is not None and outcome.hold.reason not in QUIET:
        return None
    able, target = outcome.capacity, outcome.state.target
    if able.requests_per_replica < target * (1.0 - TARGET_DEAD_BAND):
        return None  # it is to fall, as soon as it may
    generations = [one.schedule_generation for one in window.engines if one.schedule_generation is not None]
    return Standing(
        config, engines, course_of(window), target, min(generations, default=None), _wait(config, outcome.state, now_s)
    )


def moved(
    last: Standing,
    before: Glance,
    after: Glance,
    config: ControllerConfig,
    engines: frozenset[tuple[str, int]],
    now_s: float,
) -> str | None:
    """Why a service must be judged, in a few words; None where its last decision stands."""
    if config != last.config or engines != last.engines:
        return "its resource or its engines changed"
    if now_s >= last.until_s:
        return "a wait is over"
    if after.generation != last.generation:
        return "an engine holds another schedule"
    if too_soon(before, after, config):
        return None
    course = between(before, after)
    if course is None:
        return "counters began again, or nothing was heard of its engines"
    return _beyond(last, course)


def too_soon(before: Glance, after: Glance, config: ControllerConfig) -> bool:
    """Whether two glances are too close to be compared; the next is then compared with the earlier of them."""
    return 0.0 <= after.at_s - before.at_s < FEWEST_SECONDS * config.period_s


def _beyond(last: Standing, now: Course) -> str | None:
    then = last.seen
    load, earlier = now.running + now.waiting, then.running + then.waiting
    if abs(load - earlier) > max(FEW_REQUESTS, RUNNING * earlier) or now.waiting > then.waiting + 1.0:
        return f"requests in flight {earlier:.1f}→{load:.1f}"
    if replicas_for(load, last.target) != replicas_for(earlier, last.target):
        return f"{load:.1f} requests in flight need other replicas"
    if now.preempted and not then.preempted:
        return "requests are preempted"
    rates: tuple[tuple[str, float | None, float | None, float], ...] = (
        ("tokens a second", then.tokens_rate, now.tokens_rate, TOKENS),
        ("prompt tokens a second", then.prompt_rate, now.prompt_rate, PROMPT),
        ("mean TPOT", then.tpot_s, now.tpot_s, TPOT),
        ("mean TTFT", then.ttft_s, now.ttft_s, TTFT),
    )
    for what, old, new, band in rates:
        if (old is None) != (new is None) or (old is not None and new is not None and abs(new - old) > band * old):
            return f"{what} moved"
    depth = max(len(then.accepted), len(now.accepted))
    pairs = zip(_padded(then.accepted, depth), _padded(now.accepted, depth), strict=True)
    return "acceptance moved" if any(abs(new - old) > ACCEPTED for old, new in pairs) else None


def _unsettled(outcome: Outcome, window: Observation) -> bool:
    state = outcome.state
    return bool(
        outcome.changes
        or window.left_out
        or state.trial is not None
        or state.probe is not None
        or state.acceptance.suspicion != 0
        or state.acceptance.jumped
        or state.acceptance.collapsed
    )


def _missed(config: ControllerConfig, window: Observation) -> bool:
    """An objective is missed, or requests wait: such a service has all attention."""
    slow_s, objective_s = window.ttft.quantile(config.percentile), config.ttft_objective_s
    return strained(config, window) or (objective_s is not None and slow_s is not None and slow_s > objective_s)


def _wait(config: ControllerConfig, state: ControllerState, now_s: float) -> float:
    """When the next of the waits ends that decisions are made in."""
    waits = (
        (state.probed_s, REST_S),
        (state.schedule_changed_s, DWELL_PERIODS * config.period_s),
        (state.schedule_changed_s, APART_S),
        (state.jumped_s, SETTLE_S),
        (state.drafts_seen_s, PROBE_AFTER_S),
        (state.target_changed_s, TARGET_DWELL_S),
        (state.target_fell_s, RISE_AFTER_FALL_S),
    )
    ends = chain((since_s + wait_s for since_s, wait_s in waits if since_s is not None), _bars(state))
    return min((end_s for end_s in ends if end_s > now_s), default=float("inf"))


def _bars(state: ControllerState) -> Iterable[float]:
    return (bar.until_s for bar in state.bars)


def _padded(shares: tuple[float, ...], depth: int) -> tuple[float, ...]:
    return shares + (0.0,) * (depth - len(shares))
