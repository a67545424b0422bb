"""Which other K the engines of a service had better have, and what it lacks to be worth their restart."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.core.acceptance import MIN_DRAFTS
from outrider.core.objective import Yield
from outrider.core.one_k_evidence import gain, usual_batch
from outrider.core.one_k_state import DAY_S, OneK, Sight

MIN_GAIN = 0.05
"""Least gain in token goodput that is worth a restart, whatever it costs: boots of one and the same engine differ by
1.4 to 14 % (decision 0026)."""
EARN_S = 3600.0
"""The gain must have earned the restart back after so long: loads of a day hold their level for an hour and more."""
CAUTION = 0.5
"""Standard errors of a comparison that a gain must stand out by. A mistake is found out within a quarter of an hour and
costs two starts; a gain that is left is lost for as long as the load lasts."""
BEYOND = 2
"""Positions beyond those that were ever drafted to which K may rise at a time: their acceptance is extrapolated."""
RETRY_S = 6 * 3600.0
"""Without a drafter nothing tells of acceptance: after so long the smallest K is tried; twice as long after each try in
vain."""
MAX_RETRY_S = 2 * DAY_S


@dataclass(frozen=True, slots=True)
class Other:
    """Another K, what it is predicted to gain, as a share, and the standard error of that."""

    num_speculative_tokens: int
    gain: float
    error: float

    @property
    def sure(self) -> float:
        """The gain less what the prediction may well be wrong by."""
        return self.gain - CAUTION * self.error

    def __str__(self) -> str:
        return f"{self.gain:.0%}, give or take {self.error:.0%}"


@dataclass(frozen=True, slots=True)
class Better:
    """A K that is worth a restart, and why."""

    num_speculative_tokens: int
    why: str
    tries: bool = False
    """It is only looked whether drafts are accepted by now."""


def better(known: OneK, sight: Sight, predicted: Yield) -> Better | None:
    """The K to have instead; None where the present one had better stay."""
    worth = [one for one in _others(known, sight, predicted) if one.sure >= needed(sight)]
    if not worth:
        return _try_again(known, sight)
    best = max(worth, key=lambda one: one.sure)
    # Noise in the fit must not begin the wait anew: what is wished for already is kept while it is as good.
    wished = None if known.wish is None else known.wish[0]
    as_good = (one for one in worth if one.num_speculative_tokens == wished and one.sure >= best.sure - MIN_GAIN / 2)
    best = next(as_good, best)
    batch = usual_batch(known.evidence)
    why = f"{best.gain:.0%} more tokens a second predicted at batch {batch}, give or take {best.error:.0%}"
    return Better(best.num_speculative_tokens, why)


def nothing_better(known: OneK, sight: Sight, predicted: Yield) -> str:
    """What the nearest of the others lacks."""
    others = _others(known, sight, predicted)
    if not others:
        return f"K {sight.present}: too few drafts were seen to tell of another"
    nearest = max(others, key=lambda one: one.sure)
    return (
        f"K {sight.present} stays: K {nearest.num_speculative_tokens} is predicted to gain {nearest}, and a restart is"
        f" worth {needed(sight):.0%}"
    )


def needed(sight: Sight) -> float:
    """The gain that is worth a restart, as a share; while an objective is missed its cost does not count."""
    return MIN_GAIN if sight.missed else max(MIN_GAIN, sight.start_s / EARN_S)


def _others(known: OneK, sight: Sight, predicted: Yield) -> list[Other]:
    """The K that may be given, with what they would bring; none while nothing tells of acceptance."""
    drafted = [position for position, seen in enumerate(known.evidence.counts.drafted, 1) if seen >= MIN_DRAFTS]
    if not drafted:
        return []
    most = max(drafted[-1], sight.present) + BEYOND
    barred = {bar.num_speculative_tokens for bar in known.bars if bar.until_s > sight.now_s}
    return [
        Other(k, *gain(known.evidence, predicted, sight.present, k))
        for k in sight.values
        if k != sight.present and k <= most and k not in barred
    ]


def _try_again(known: OneK, sight: Sight) -> Better | None:
    """The smallest K, to look with after hours without a drafter."""
    smallest, blind_s = next((k for k in sight.values if k > 0), None), known.evidence.blind_s
    wait_s = min(MAX_RETRY_S, RETRY_S * 2.0 ** min(known.tries, 10))
    if sight.present != 0 or smallest is None or blind_s < wait_s:
        return None
    why = f"nothing told of acceptance for {blind_s / 3600.0:.1f} hours without a drafter"
    return Better(smallest, why, tries=True)
