"""The one K of engines that can only be told by a restart: what is remembered of it, and what a look sees."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from outrider.core.one_k_evidence import Evidence

DAY_S = 24 * 3600.0
"""Changes of K are counted within it."""
BAR_S = 12 * 3600.0
"""First time that a K is barred which lost or did not start; doubles with every repetition."""
MAX_BAR_S = 4 * DAY_S


@dataclass(frozen=True, slots=True)
class Barred:
    """A K that may not come back for a while."""

    num_speculative_tokens: int
    until_s: float
    times: int = 1


@dataclass(frozen=True, slots=True)
class OneK:
    """All that is remembered of it."""

    subject: int = 0
    """What K was chosen for: a number of the model, the way to draft and the ceiling. Another one begins anew."""
    told_of: int = 0
    """What the evidence tells of: the same with the drafter."""
    chosen: int | None = None
    """The K that engines are started with; None: what the resource says. 0: without a drafter."""
    rolling: bool = False
    """Not all engines have it yet."""
    before: int | None = None
    """K before the last change while that is judged."""
    chosen_at: tuple[float, float] | None = None
    """The load that the last change was made for: batch size, and acceptance of the first draft token."""
    delivered: float | None = None
    """What the last change was found to gain, as a share."""
    moves: tuple[float, ...] = ()
    """When K changed in the last day, the latest first."""
    wish: tuple[int, float] | None = None
    """The K that is wished for, and since when."""
    bars: tuple[Barred, ...] = ()
    tries: int = 0
    """Returns from K = 0 in vain."""
    evidence: Evidence = field(default_factory=Evidence)


@dataclass(frozen=True, slots=True)
class Sight:
    """What a look sees of the service."""

    present: int
    """K of the template that engines have or are getting."""
    own: int
    """K of the resource's own template."""
    values: tuple[int, ...]
    """The K that engines may be started with, ascending."""
    max_batch_size: int
    capture_size: int
    """Largest captured CUDA graph, tokens."""
    settled: bool
    """All engines have the present K, and serve."""
    stuck: str
    """Why engines of the present K do not come; empty while nothing tells so."""
    start_s: float
    """What the start of an engine takes, seconds."""
    settle_s: float
    """Least time between two changes, seconds, from which the other times follow."""
    missed: bool
    """An objective is missed."""
    blocked: str
    """Why engines cannot be replaced now; empty if they can."""
    acting: bool
    """False where it is only said what would be done."""
    now_s: float


def about(known: OneK, subject: int, told_of: int) -> OneK:
    """What of it holds for these: a K stays with another drafter, for the load is the same; what was learnt is void."""
    if known.subject != subject:
        return OneK(subject=subject, told_of=told_of)
    if known.told_of != told_of:
        return replace(known, told_of=told_of, before=None, wish=None, bars=(), tries=0, evidence=Evidence())
    return known


def on_time(known: OneK, now_s: float) -> OneK:
    """Without what is over, and without times that are still to come since the clock was ahead."""
    return replace(
        known,
        moves=tuple(min(at_s, now_s) for at_s in known.moves if at_s > now_s - DAY_S),
        wish=None if known.wish is None else (known.wish[0], min(known.wish[1], now_s)),
        bars=tuple(
            replace(bar, until_s=min(bar.until_s, now_s + MAX_BAR_S))
            for bar in known.bars
            if bar.until_s > now_s - MAX_BAR_S
        ),
        evidence=replace(
            known.evidence, until_s=None if known.evidence.until_s is None else min(known.evidence.until_s, now_s)
        ),
    )
