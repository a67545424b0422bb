"""A few numbers of a service's engines from their newest samples, and what happened between two such looks.

Enough to tell whether a whole look is worth its price (`outrider.core.standing`): a fifth of the series, and of
each the last samples alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from outrider.core import engine_metrics as names
from outrider.core.engine_reader import whole
from outrider.core.observation import Observation
from outrider.core.series import Series

_COUNTERS: Mapping[str, str] = {
    name + suffix: what
    for what, aliases, suffix in (
        ("drafts", names.NUM_DRAFTS, ""),
        ("accepted", names.NUM_ACCEPTED_TOKENS_PER_POS, ""),
        ("tokens", names.GENERATION_TOKENS, ""),
        ("prompt", names.PROMPT_TOKENS, ""),
        ("preemptions", names.NUM_PREEMPTIONS, ""),
        ("tpot sum", names.TPOT, "_sum"),
        ("tpot count", names.TPOT, "_count"),
        ("ttft sum", names.TTFT, "_sum"),
        ("ttft count", names.TTFT, "_count"),
    )
    for name in aliases
}
_GAUGES: Mapping[str, str] = {
    **dict.fromkeys(names.NUM_REQUESTS_RUNNING, "running"),
    **dict.fromkeys(names.NUM_REQUESTS_WAITING, "waiting"),
}
GLANCED = (*_COUNTERS, *_GAUGES, *names.SCHEDULE_GENERATION)
"""Names of the metrics that a glance needs."""


@dataclass(frozen=True, slots=True)
class Glance:
    """One service's engines at one moment."""

    at_s: float
    """Time of the newest sample."""
    running: float
    waiting: float
    counts: Mapping[tuple[str, str], float]
    """Counters by what they count and, for accepted drafts, by position; summed over the engines."""
    generation: float | None
    """The earliest schedule generation that an engine holds; None where none tells."""


@dataclass(frozen=True, slots=True)
class Course:
    """What a service did between two moments: by the second, on the mean, or as a share of the drafts."""

    running: float
    waiting: float
    tokens_rate: float
    prompt_rate: float
    preempted: bool
    tpot_s: float | None
    ttft_s: float | None
    accepted: tuple[float, ...]
    """By position."""


def glance(series: Iterable[Series], pods: Collection[str]) -> Glance | None:
    """Read the newest samples of these pods; None without any. Several series that tell of one thing count once."""
    told: dict[tuple[str, str, str, str], float] = {}
    newest_s, generations = float("-inf"), []
    for one in series:
        labels, name = one.labels, one.name
        if labels.get("pod", "") not in pods:
            continue
        at_s, value = one.samples[-1]
        newest_s = max(newest_s, at_s)
        what = _COUNTERS.get(name) or _GAUGES.get(name)
        if what is None:
            generations.append(value)
            continue
        if name in _GAUGES:
            value = sum(number for _, number in one.samples) / len(one.samples)
        key = (what, labels.get("position", ""), labels["pod"], labels.get("engine", ""))
        told[key] = max(value, told.get(key, value))
    if not told:
        return None
    counts: dict[tuple[str, str], float] = defaultdict(float)
    for (what, position, _, _), value in told.items():
        counts[what, position] += value
    running, waiting = (counts.pop((what, ""), 0.0) for what in ("running", "waiting"))
    return Glance(newest_s, running, waiting, dict(counts), min(generations, default=None))


def between(before: Glance, after: Glance) -> Course | None:
    """What happened from one glance to the next; None where that cannot be told: a counter fell, appeared or went."""
    seconds = after.at_s - before.at_s
    if seconds <= 0 or before.counts.keys() != after.counts.keys():
        return None
    rises = {key: count - before.counts[key] for key, count in after.counts.items()}
    if min(rises.values(), default=0.0) < 0:
        return None
    drafts = rises.get(("drafts", ""), 0.0)
    positions = ((whole(at), rise) for (what, at), rise in rises.items() if what == "accepted")
    accepted = sorted((at, rise) for at, rise in positions if at is not None)
    return Course(
        running=after.running,
        waiting=after.waiting,
        tokens_rate=rises.get(("tokens", ""), 0.0) / seconds,
        prompt_rate=rises.get(("prompt", ""), 0.0) / seconds,
        preempted=rises.get(("preemptions", ""), 0.0) > 0,
        tpot_s=_mean(rises, "tpot"),
        ttft_s=_mean(rises, "ttft"),
        accepted=_shares([rise for _, rise in accepted], drafts),
    )


def course_of(window: Observation) -> Course:
    """The same of what a decision saw."""
    return Course(
        running=window.running,
        waiting=window.waiting,
        tokens_rate=window.generation_tokens / window.seconds,
        prompt_rate=window.prompt_tokens / window.seconds,
        preempted=window.num_preemptions > 0,
        tpot_s=window.tpot.mean,
        ttft_s=window.ttft.mean,
        accepted=_shares(window.accepted_per_pos, window.num_drafts),
    )


def _mean(rises: Mapping[tuple[str, str], float], what: str) -> float | None:
    count = rises.get((f"{what} count", ""), 0.0)
    return rises.get((f"{what} sum", ""), 0.0) / count if count > 0 else None


def _shares(accepted: Iterable[float], drafts: float) -> tuple[float, ...]:
    """Of all drafts, whatever they proposed: while a schedule stands that is the same measure on both sides."""
    return tuple(count / drafts for count in accepted) if drafts > 0 else ()
