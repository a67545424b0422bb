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
Singles = NDArray[np.float32]

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
class Places:
    """Points as the covariance sees them; arrays of one length, in single precision, because the exponentials of a
    whole grid are what a decision spends its time on."""

    octave: Singles
    """Of the batch."""
    tokens_octave: Singles
    num_speculative_tokens: Singles
    beyond: NDArray[np.bool_]
    """Past the largest graph."""


@dataclass(frozen=True, slots=True)
class LocalError:
    """Measured over modelled step time near the measured points."""

    law: Law
    places: Places
    """Of the measured points."""
    inverse: Floats
    """Of the covariance of the cells' errors, shape ``(cells, cells)``."""
    alpha: Floats
    """``inverse`` times the logarithm of measured over modelled, shape ``(cells,)``."""

    def factor(self, points: Points) -> Floats:
        """What to multiply the law with at points of any one-dimensional shape."""
        return self._factor(_covariance(self.places, _places(self.law, points)))

    def factor_and_deviation(self, points: Points) -> tuple[Floats, Floats]:
        """The factor, and the standard deviation of what is left, relative; the second is never below `NOISE`."""
        shared = _covariance(self.places, _places(self.law, points))
        explained = np.einsum("ij,ij->j", self.inverse @ shared, shared)
        left = np.sqrt(np.maximum(SMOOTH**2 + TILES**2 - explained, 0.0) + NOISE**2)
        return self._factor(shared), np.asarray(left)

    def _factor(self, shared: Floats) -> Floats:
        return np.asarray(np.exp(self.alpha @ shared))


def local_error(law: Law, points: Points, times_s: Floats, weights: Floats) -> LocalError:
    """Condition on measured cells; arguments as in `fit_law`."""
    places = _places(law, points)
    covariance = _covariance(places, places) + np.diag(NOISE**2 / np.maximum(weights, 1e-3) ** 2)
    inverse = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
    return LocalError(law, places, inverse, np.asarray(inverse @ np.log(times_s / law.step_time_s(points))))


def _places(law: Law, points: Points) -> Places:
    return Places(
        octave=np.log2(np.maximum(points.batch, 1.0)).astype(np.float32),
        tokens_octave=np.log2(np.maximum(points.tokens, 1.0)).astype(np.float32),
        num_speculative_tokens=points.num_speculative_tokens.astype(np.float32),
        beyond=law.beyond(points),
    )


def _covariance(left: Places, right: Places) -> Floats:
    """Shape ``(left, right)``; with the longer one to the right it is quick."""
    batch = (left.octave[:, None] - right.octave) ** 2
    tokens = (left.tokens_octave[:, None] - right.tokens_octave) ** 2
    k = (left.num_speculative_tokens[:, None] - right.num_speculative_tokens) ** 2
    smooth = SMOOTH**2 * np.exp(batch * (-0.5 / SMOOTH_BATCH**2) + k * (-0.5 / SMOOTH_K**2))
    tiles = TILES**2 * np.exp(tokens * (-0.5 / TILES_TOKENS**2) + batch * (-0.5 / TILES_BATCH**2))
    return np.asarray((smooth + tiles) * (left.beyond[:, None] == right.beyond), dtype=np.float64)
