"""What a law of step times leaves unexplained near measured points, and how far a prediction may be off.

Relative errors of the law are smooth in two ways: over batch sizes at one K, and along equal numbers of tokens, where
matrix tiles make step times jump for every K alike (25 ms at 448 tokens and 20 at 510, twice on the measured H100). A
Gaussian process over both carries measured errors to their neighbours and says what is left; on the two sides of the
largest CUDA graph nothing is shared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.core.step_time import Law, Points

Floats = NDArray[np.float64]

SMOOTH = 0.05
"""Standard deviation of the smooth part, relative. All constants here are from leaving batches and K out on a measured
H100 profile; within a factor 2 of them the errors held out change by under half a percent."""
SMOOTH_BATCH, SMOOTH_K = 1.5, 1.0
"""Its lengths, in octaves of the batch and in K."""
TILES = 0.05
"""Standard deviation of the part that follows the number of tokens."""
TILES_TOKENS, TILES_BATCH = 0.1, 2.0
"""Its lengths, in octaves of the tokens and of the batch."""
NOISE = 0.015
"""Standard deviation of a cell of full weight."""


@dataclass(frozen=True, slots=True)
class LocalError:
    """Measured over modelled step time near the measured points."""

    law: Law
    points: Points
    inverse: Floats
    """Of the covariance of the cells' errors, shape ``(cells, cells)``."""
    alpha: Floats
    """``inverse`` times the logarithm of measured over modelled, shape ``(cells,)``."""

    def factor(self, points: Points) -> Floats:
        """What to multiply the law with at points of any one-dimensional shape."""
        return np.asarray(np.exp(_covariance(self.law, points, self.points) @ self.alpha))

    def deviation(self, points: Points) -> Floats:
        """Standard deviation of what is left, relative; never below `NOISE`."""
        shared = _covariance(self.law, points, self.points)
        explained = ((shared @ self.inverse) * shared).sum(axis=1)
        return np.asarray(np.sqrt(np.maximum(SMOOTH**2 + TILES**2 - explained, 0.0) + NOISE**2))


def local_error(law: Law, points: Points, times_s: Floats, weights: Floats) -> LocalError:
    """Condition on measured cells; arguments as in `fit_law`."""
    covariance = _covariance(law, points, points) + np.diag(NOISE**2 / np.maximum(weights, 1e-3) ** 2)
    inverse = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
    return LocalError(law, points, inverse, np.asarray(inverse @ np.log(times_s / law.step_time_s(points))))


def _covariance(law: Law, left: Points, right: Points) -> Floats:
    """Shape ``(left, right)``."""
    batch = _distance(np.log2(np.maximum(left.batch, 1.0)), np.log2(np.maximum(right.batch, 1.0)))
    tokens = _distance(np.log2(np.maximum(left.tokens, 1.0)), np.log2(np.maximum(right.tokens, 1.0)))
    k = _distance(left.num_speculative_tokens, right.num_speculative_tokens)
    smooth = SMOOTH**2 * np.exp(batch * (-0.5 / SMOOTH_BATCH**2) + k * (-0.5 / SMOOTH_K**2))
    tiles = TILES**2 * np.exp(tokens * (-0.5 / TILES_TOKENS**2) + batch * (-0.5 / TILES_BATCH**2))
    same_side = law.beyond(left)[:, None] == law.beyond(right)[None, :]
    return np.asarray((smooth + tiles) * same_side, dtype=np.float64)


def _distance(left: Floats, right: Floats) -> NDArray[np.float32]:
    """Squared, in single precision: the exponentials of a whole grid are what a decision spends its time on."""
    return np.asarray((left[:, None] - right[None, :]) ** 2, dtype=np.float32)
