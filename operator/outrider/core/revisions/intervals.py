"""The relative gain of a candidate, with bounds that hold although boots of one engine differ for good.

A published benchmark found that the throughput of 12 boots of one engine varied by 13.9 % (standard deviation over
mean) with CUDA graphs and by 1.4 % without (L4, vLLM 0.29, public "spec-fp8-study" notes). An hour on one boot does
not average that out. So a boot counts as one draw: its pace is the mean over its like windows, the scatter of paces is
measured between the boots at hand, and bounds come from Student's t with as many degrees of freedom as there are boots
beyond the first of either side. That holds whatever boots differ by, and needs no assumption on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
from scipy.special import stdtrit

from outrider.core.revisions.matching import Floats, Grid, Heard, beside_peers

BLOCK = 5
"""Windows in a block. Rates of successive windows go together; means over 75 s do so little, and their scatter tells
the error of the mean (batch means)."""
BOOT_FLOOR = 0.005
"""Boots never count as more alike than this, relative: three paces may agree by luck. A third of the least published
spread."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How much boots of this service's engines differ, as measured: a sum of squares of logarithmic paces around their
    means, and its degrees of freedom."""

    squares: float = 0.0
    dof: float = 0.0

    def plus(self, other: Spread) -> Spread:
        """Both together."""
        return Spread(self.squares + other.squares, self.dof + other.dof)

    def at_most(self, dof: float) -> Spread:
        """The same, worth no more than so many boots."""
        return self if self.dof <= dof else Spread(self.squares * dof / self.dof, dof)

    @property
    def value(self) -> float:
        """Relative standard deviation of one boot, at least `BOOT_FLOOR`; infinite where nothing is known."""
        return max(BOOT_FLOOR, sqrt(self.squares / self.dof)) if self.dof > 0.0 else inf


@dataclass(frozen=True, slots=True)
class Gain:
    """Logarithm of the candidate's rate over the stable one's at like load."""

    value: float
    boots: int
    """Boots of the candidate that were heard."""
    stable_boots: float
    """Boots of the stable revision, as many of equal weight."""
    noise: float
    """Standard error of ``value`` from the scatter in time alone."""
    here: Spread
    """Of the boots of this comparison."""
    spread: Spread
    """The same with what was known before."""

    def half_width(self, level: float, boots: int | None = None) -> float:
        """Distance of a one-sided bound of this error level, 0 to 1, also for more boots of the candidate."""
        count = self.boots if boots is None else boots
        dof = self.spread.dof + count - self.boots
        if dof <= 0.0:
            return inf
        error = self.spread.value * sqrt(1.0 / count + 1.0 / self.stable_boots)
        return quantile(dof, 1.0 - level) * max(error, self.noise * sqrt(self.boots / count))

    def still_to_move(self, boots: int) -> float:
        """Standard deviation of the change of ``value`` until so many boots were heard."""
        return self.spread.value * sqrt(max(0.0, 1.0 / self.boots - 1.0 / boots))


def quantile(dof: float, share: float) -> float:
    """Of Student's t."""
    return float(stdtrit(dof, share))


def gain(grid: Grid, heard: Sequence[Heard], steepness: float, known: Spread | None = None) -> Gain | None:
    """From the boots that were heard and the slope of the rate over the batch size; ``known`` is the spread of earlier
    boots. None without any."""
    if not heard:
        return None
    levels = grid.rate - steepness * grid.batch
    paces = [own - peers for own, peers in (beside_peers(levels, one) for one in heard)]
    means = np.array([one.mean() for one in paces])
    stable, weight = _stable(levels, heard)
    squares = float((stable**2).sum() + ((means - means.mean()) ** 2).sum())
    here = Spread(squares, float(max(0, len(stable) - 1) + len(means) - 1))
    return Gain(
        value=float(means.mean()),
        boots=len(means),
        stable_boots=weight,
        noise=sqrt(sum(_error_squared(one) for one in paces)) / len(means),
        here=here,
        spread=here if known is None else here.plus(known),
    )


def _stable(levels: Floats, heard: Sequence[Heard]) -> tuple[Floats, float]:
    """The pace of each stable boot beside the mean of those of the same moments, and how many boots of equal weight
    would make a mean as good."""
    count = len(heard[0].peers)
    apart, seen, weights = np.zeros(count), np.zeros(count), np.zeros(count)
    for one in heard:
        middle = beside_peers(levels, one)[1]
        among = one.peers.sum(axis=0)
        weights += (one.peers / among).mean(axis=1) / len(heard)
        several = one.peers & (among > 1)
        apart += np.where(several, levels[:count, one.columns] - middle, 0.0).sum(axis=1)
        seen += several.sum(axis=1)
    return apart[seen > 0] / seen[seen > 0], 1.0 / float((weights**2).sum())


def _error_squared(differences: Floats) -> float:
    """Of their mean, by batch means; the variance of a single block is unknown and counts as none, since then the
    scatter between boots decides."""
    count = len(differences) // BLOCK
    if count < 2:
        return 0.0
    return float(differences[: count * BLOCK].reshape(count, BLOCK).mean(axis=1).var(ddof=1)) / count
