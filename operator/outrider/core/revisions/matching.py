"""Candidate beside stable at like load and the same time.

Traffic changes by the minute, so only windows of the same moment are compared, and of those only boots whose batch size
was alike. What is left of the difference in load is taken out by the slope of the rate over the batch size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from outrider.core.revisions.evidence import Boot, Evidence

Floats = NDArray[np.float64]

LIKE = 2.0
"""Batch sizes within this factor of each other are like load. A narrow bound would choose by the outcome: a candidate
with less load has as large a batch only when it is slow, and beside a factor of 1.5 an equal one with three quarters of
the load looked 3 % slower. A wider one leans on the slope alone."""
QUOTA = 40
"""Like windows that a boot is heard for, ten minutes of windows of 15 s. Fixed in advance, so that nobody can stop
where the figures please. By then the boot's own pace is known within one or two percent, about what boots differ by at
best; more of the same boot tells little."""
PRIOR_SLOPE = -0.1
"""Of the logarithmic rate over the logarithmic batch size, where load did not vary. 0: steps take the same time at any
batch size; -1: in proportion to it. A measured H100 with K = 3 has -0.03 from batch 8 to 16, -0.3 from 32 to 64."""
PRIOR_VARIANCE = 0.005
"""Weight of the prior, as a variance of the logarithmic batch size: load that varies by 7 % weighs as much."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Natural logarithms by boot (row) and moment (column), NaN where a boot told nothing."""

    moments_s: Floats
    """Ends of the windows, ascending."""
    batch: Floats
    rate: Floats
    length: Floats
    """Of the tokens a step."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One boot of the candidate and its windows at like load, at most `QUOTA`, in order of time."""

    boot: str
    row: int
    """Of the boot in the grid."""
    columns: NDArray[np.intp]
    """Moments of the windows."""
    peers: NDArray[np.bool_]
    """By stable boot and window: whether it was at like load."""
    until_s: float
    """End of the last window."""
    ended: bool

    @property
    def closed(self) -> bool:
        """It has been heard for as long as it shall be."""
        return len(self.columns) >= QUOTA


@dataclass(frozen=True, slots=True)
class Matched:
    """The boots of a comparison side by side; stable ones are the first rows of the grid."""

    grid: Grid
    heard: tuple[Heard, ...]
    """Candidate boots with a window at like load, in order of their start."""


def matched(evidence: Evidence) -> Matched:
    """Every window of the candidate with those of stable boots at like load in the same time.

    A stable boot that is alike in fewer than half as many windows as one candidate boot is heard for is left out: its
    pace would be noise.
    """
    grid = _grid((*evidence.stable, *evidence.candidate))
    count = len(evidence.stable)
    with np.errstate(invalid="ignore"):
        near = np.abs(grid.batch[count:, None, :] - grid.batch[None, :count, :]) <= log(LIKE)
    heard = _heard(evidence.candidate, grid, near)
    seen = sum((one.peers.sum(axis=1) for one in heard), np.zeros(count))
    enough = max((len(one.columns) for one in heard), default=0) / 2.0
    if np.any(seen < enough):
        heard = _heard(evidence.candidate, grid, near & (seen >= enough)[None, :, None])
    return Matched(grid, heard)


def _grid(boots: Sequence[Boot]) -> Grid:
    told = [[(one.until_s, one.batch, one.rate_tps, one.length) for one in boot.known if one.tells] for boot in boots]
    moments_s = np.unique([values[0] for row in told for values in row])
    logs = np.full((3, len(boots), len(moments_s)), np.nan)
    for index, row in enumerate(told):
        if row:
            values = np.array(row)
            logs[:, index, np.searchsorted(moments_s, values[:, 0])] = np.log(values[:, 1:]).T
    return Grid(moments_s, *logs)


def _heard(candidate: Iterable[Boot], grid: Grid, near: NDArray[np.bool_]) -> tuple[Heard, ...]:
    found = []
    for index, boot in enumerate(candidate):
        columns = np.flatnonzero(near[index].any(axis=0))[:QUOTA]
        if len(columns):
            row, until_s = near.shape[1] + index, float(grid.moments_s[columns[-1]])
            found.append(Heard(boot.name, row, columns, near[index][:, columns], until_s, boot.ended))
    return tuple(found)


def slope(grid: Grid) -> float:
    """d log rate / d log batch, -1 to 0, from how boots move together with the load.

    Least squares on a boot's own batch size would mislead: a slow moment makes it larger, and its error hides part of
    the slope. So the load is told by the *other* boots of the same moment, which have moments and errors of their own
    (an instrument, as econometrics calls it). The part of the rate that drafts make is left out: traffic that is hard
    to draft makes batches larger everywhere. All windows count, like or not: to choose them would tie the errors.
    """
    known = ~np.isnan(grid.batch)
    batch, rate = _around_mean(grid.batch, known), _around_mean(grid.rate - grid.length, known)
    others = known.sum(axis=0) - 1
    shared = known & (others > 0)
    instrument = np.where(shared, (batch.sum(axis=0) - batch) / np.maximum(others, 1), 0.0)
    along, weight = float((instrument * batch).sum()), PRIOR_VARIANCE * float(shared.sum())
    if weight <= 0.0:
        return PRIOR_SLOPE
    across = float((instrument * rate).sum())
    return max(-1.0, min(0.0, (across + weight * PRIOR_SLOPE) / (max(along, 0.0) + weight)))


def _around_mean(values: Floats, known: NDArray[np.bool_]) -> Floats:
    """Each row less its mean, 0 where nothing is known."""
    filled = np.where(known, values, 0.0)
    means = filled.sum(axis=1, keepdims=True) / np.maximum(known.sum(axis=1, keepdims=True), 1)
    return np.where(known, filled - means, 0.0)


def beside_peers(values: Floats, one: Heard) -> tuple[Floats, Floats]:
    """Of some value by boot and moment: the boot's own in its windows, and the mean over its peers there."""
    peers = np.where(one.peers, values[: len(one.peers), one.columns], 0.0)
    return values[one.row, one.columns], peers.sum(axis=0) / one.peers.sum(axis=0)
