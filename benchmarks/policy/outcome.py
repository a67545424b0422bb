"""One case with one arm: played, and told in a few numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import median

from benchmarks.policy import cases, station
from benchmarks.policy.cases import Case
from benchmarks.policy.load import Clients, acceptance_at
from benchmarks.policy.station import Played
from outrider.core.decision import Change
from outrider.replay import policies
from outrider.replay.virtual import Rendered, VirtualOperator
from outrider.simulator.oracle import Oracle
from outrider.simulator.profile import MOE_PROFILE, Profile, load_profile

NEAR = 0.95
"""A schedule is found when it yields this share of the best one."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One segment."""

    level: float
    token_goodput_tps: float
    tpot_s: float | None
    """Median over the answers that ended in the segment."""
    within: float | None
    """Share of these answers within the TPOT objective."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the summary knows of a run."""

    case: str
    group: str
    arm: str
    seed: int
    segments: tuple[Measured, ...]
    adapt_s: float | None = None
    """From the step of acceptance to a schedule within 5 % of the best; None where none was needed."""
    rates: tuple[tuple[float, float], ...] = ()
    """Where there is a step of acceptance: seconds since then, and tokens a second, by scrape."""
    changes: int = 0
    """Changes of the schedule after the warm-up, probes left out."""
    probes: int = 0
    """Moves of probes after the warm-up: a look and its return are two."""
    decisions_s: tuple[float, ...] = ()
    """Processor time of Outrider's control passes."""


@cache
def profile(name: str) -> Profile:
    """A card by the name that cases use."""
    if name == "moe":
        return load_profile(MOE_PROFILE)
    return load_profile().without_jump() if name == "no-jump" else load_profile()


@cache
def service(card: str, initial: int | None) -> Rendered:
    """The service, rendered once a process."""
    return cases.service(card, initial)


def run(case: Case, name: str) -> tuple[Outcome, Played, policies.Arm]:
    """Play a case with an arm."""
    rendered, card = service(case.card, case.initial), profile(case.card)
    arm = policies.arm(name, rendered, card, lambda now_s: acceptance_at(case.load.phases, now_s))
    played = station.play(arm, card, case.load.source(case.seed, case.duration_s), case.duration_s, case.seed)
    changes = arm.controller.changes if isinstance(arm.controller, VirtualOperator) else []
    deliberate, probes = _counted(changes, case.warm_up_s)
    outcome = Outcome(
        case=case.name,
        group=case.group,
        arm=name,
        seed=case.seed,
        segments=tuple(_measured(segment, played, rendered) for segment in case.segments),
        adapt_s=None if case.shift_s is None else _adapt_s(case, played, rendered, card),
        rates=() if case.shift_s is None else _rates(played, case.shift_s),
        changes=deliberate,
        probes=probes,
        decisions_s=tuple(played.decisions_s) if name == "outrider" else (),
    )
    return outcome, played, arm


def _measured(segment: cases.Segment, played: Played, rendered: Rendered) -> Measured:
    tpots_s = played.tpots_s(segment.since_s, segment.until_s)
    objective_s = rendered.config.tpot_objective_s or float("inf")
    return Measured(
        segment.level,
        played.rate(segment.since_s, segment.until_s),
        median(tpots_s) if tpots_s else None,
        sum(tpot_s <= objective_s for tpot_s in tpots_s) / len(tpots_s) if tpots_s else None,
    )


def _rates(played: Played, shift_s: float) -> tuple[tuple[float, float], ...]:
    """Of the last two minutes before the step and all that follows."""
    ends = zip(pairwise(played.times_s), pairwise(played.tokens), strict=True)
    return tuple(
        (until_s - shift_s, (after - before) / (until_s - since_s))
        for (since_s, until_s), (before, after) in ends
        if since_s > shift_s - 120.0
    )


def _adapt_s(case: Case, played: Played, rendered: Rendered, card: Profile) -> float | None:
    """From the step on until the schedule in force is near the best for good; None if it already was at the step."""
    assert case.shift_s is not None
    assert isinstance(case.load, Clients)
    level, curve = case.load.at(case.shift_s), acceptance_at(case.load.phases, case.shift_s)
    truth = Oracle(card, curve, rendered.settings.capture_size, MEAN_CONTEXT)
    best_tps = truth.rate_tps(level, truth.best_k(level, rendered.config.allowed))
    near = [
        (since_s, truth.scheduled_rate_tps(level, schedule) >= NEAR * best_tps)
        for since_s, schedule in played.schedules
    ]
    if [good for since_s, good in near if since_s <= case.shift_s][-1]:
        return None
    bad = [index for index, (_, good) in enumerate(near) if not good]
    if bad[-1] + 1 == len(near):
        return case.duration_s - case.shift_s
    return near[bad[-1] + 1][0] - case.shift_s


MEAN_CONTEXT = 230.0
"""Cached tokens of a request where the time to follow is asked for: the prompt and half of an answer."""


def _counted(changes: Sequence[Change], warm_up_s: float) -> tuple[int, int]:
    """Deliberate changes of the schedule and moves of probes, there and back, after the warm-up."""
    kinds = [change.kind for change in changes if change.at_s > warm_up_s]
    return kinds.count("Schedule"), kinds.count("Probe")
