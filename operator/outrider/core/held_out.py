"""How well a fit predicts what it did not see, by leaving out a batch, a K, or all high loads.

In-sample error says little: with one K or one batch in the data some terms cannot be told apart, and a fit that is
good where it was tried can be off by a factor elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.core.latency import fit_points
from outrider.core.step_time import Law, Points

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Mean absolute relative errors, 0.05 = 5 %; None where the data do not allow the question."""

    batch: float | None
    """One batch left out, for each but the smallest and the largest."""
    k: float | None
    """One K left out, for each."""
    load: float | None
    """Fitted to the batches up to a limit and asked above it."""


def held_out(
    points: Points,
    times_s: Floats,
    weights: Floats,
    prior: Law,
    *,
    limit: float | None = None,
    above: float | None = None,
) -> HeldOut:
    """Leave-one-out errors of `latency.fit_points`; arguments as there.

    ``limit`` and ``above`` are batches: fitted up to the one, asked from the other on.
    """
    batches, ks = np.unique(points.batch), np.unique(points.num_speculative_tokens)
    by_batch = [(points.batch != batch, points.batch == batch) for batch in batches[1:-1]]
    by_k = [(points.num_speculative_tokens != k, points.num_speculative_tokens == k) for k in ks]
    by_load = [] if limit is None or above is None else [(points.batch <= limit, points.batch >= above)]

    def error(splits: Iterable[tuple[Mask, Mask]]) -> float | None:
        errors = [
            np.abs(_predicted(points, times_s, weights, prior, seen, asked) / times_s[asked] - 1.0)
            for seen, asked in splits
            if seen.any() and asked.any()
        ]
        return float(np.concatenate(errors).mean()) if errors else None

    return HeldOut(batch=error(by_batch), k=error(by_k if len(ks) > 1 else ()), load=error(by_load))


def _predicted(points: Points, times_s: Floats, weights: Floats, prior: Law, seen: Mask, asked: Mask) -> Floats:
    model = fit_points(points.where(seen), times_s[seen], weights[seen], prior)
    return model.at(points.where(asked))
