"""The law of step time: its terms, its priors and its fit.

    T(B, K, l) = a + w·max(K, 1) + s·B + d·B·K + h·max(0, B·(K + 1) - n₀) + κ·B·l + e·φ(B·(K + 1))

all in seconds: launch and weight reads (a); one drafting pass (w), which K = 0 runs as well, because the drafter keeps
its cache in step (vLLM issue 53420); each request (s) and each draft token (d); each token past the ridge ``n₀``, where
computing takes longer than reading the weights (h; Kong et al. 2026 have the law without it and miss high loads by a
fifth); each cached token of the ``l`` of a request (κ); and, for mixture-of-experts models, reading the experts that
``n`` tokens hit, φ(n) = 1 - (1 - m/M)ⁿ with m of M experts a token (Kong et al. 2026, section on MoE).

A step of more tokens than the largest captured CUDA graph is launched kernel by kernel, and launching bounds it:

    T = max(law, floor)        where B·(K + 1) > capture size

Measured on an H100: 20 ms at 510 tokens, 30-45 ms from 576 to 1,280 tokens whatever their number, then along the law.

The law is fitted by non-negative least squares on relative errors, over a grid of ``n₀``, with a ridge towards a prior
that is scaled to the data: with one K or one batch in the data the terms cannot be told apart, and the prior decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

Floats = NDArray[np.float64]

RIDGES = np.array([64.0, 96.0, 128.0, 160.0, 192.0, 224.0, 256.0, 320.0, 384.0])
"""Candidates for n₀ in tokens: by peak rate over bandwidth 153 on an A100 and 295 on an H100; knees come earlier."""
RIDGE = 0.01
"""Weight of the prior's coefficients against the data, a cell of full weight counting 1: as much as a noise of 2 % in a
cell against a prior that may be off by a factor. With several K in the data it changes predictions by under two
percent."""
RIDGE_N0 = 0.02
"""The same for log2(n₀): one octave off the prior must buy 1 % of error in four cells of full weight."""
FLOOR_WEIGHT = 0.25
"""Weight of the prior's floor against measured steps past the captured graphs, a cell of full weight counting 1."""
OUTLIER = 2.0
"""A cell this many times slower, against the prior, than the lower half of the cells is a fault and not a law (an
engine stalled, a graph fell away): it counts at its own place and is kept out of the fit."""


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture-of-experts model: ``active`` of ``total`` routed experts a token."""

    active: int
    total: int

    def coverage(self, tokens: Floats) -> Floats:
        """Share of the experts that so many tokens hit, φ."""
        return np.asarray(1.0 - (1.0 - self.active / self.total) ** tokens)


@dataclass(frozen=True, slots=True)
class Points:
    """Where steps are measured or asked for; arrays of one length."""

    batch: Floats
    num_speculative_tokens: Floats
    context: Floats
    """Mean cached tokens of a request."""
    passes: Floats
    """Drafting passes of a step: K, but 1 at K = 0 with a drafter, and 0 without one."""

    @property
    def tokens(self) -> Floats:
        """Tokens of a step that the target verifies, n = B·(K + 1)."""
        return self.batch * (self.num_speculative_tokens + 1.0)

    def where(self, chosen: NDArray[np.bool_]) -> Points:
        """Some of them."""
        return Points(
            self.batch[chosen], self.num_speculative_tokens[chosen], self.context[chosen], self.passes[chosen]
        )


def points_of(
    batch: ArrayLike, num_speculative_tokens: ArrayLike, context: ArrayLike, *, drafter: bool = True
) -> Points:
    """Points of engines that all have a drafter, or all none; arguments of one shape, or single numbers for all."""
    of = [np.asarray(values, dtype=np.float64).ravel() for values in (batch, num_speculative_tokens, context)]
    sizes, k, cached = np.broadcast_arrays(*of)
    return Points(sizes, k, cached, np.maximum(k, 1.0) if drafter else k)


@dataclass(frozen=True, slots=True)
class Law:
    """Coefficients in seconds, in the order of the terms above."""

    coefficients: Floats
    n0: float
    floor_s: float
    """Least time of a step past the captured graphs."""
    capture_size: int
    """Largest captured CUDA graph in tokens; 0: the engine runs without graphs, and the floor is in the law."""
    experts: Experts | None = None

    def step_time_s(self, points: Points) -> Floats:
        """Seconds of a decode-only step."""
        inside = _terms(points, self.n0, self.experts) @ self.coefficients
        return np.asarray(np.where(self.beyond(points), np.maximum(inside, self.floor_s), inside))

    def beyond(self, points: Points) -> NDArray[np.bool_]:
        """Which steps are too large for the captured graphs; none without graphs, where all steps are alike."""
        return np.asarray((points.tokens > self.capture_size) & (self.capture_size > 0))

    def scaled(self, factor: float) -> Law:
        """The same shape on a card or model so many times slower."""
        return replace(self, coefficients=factor * self.coefficients, floor_s=factor * self.floor_s)

    def for_engine(self, capture_size: int, experts: Experts | None) -> Law:
        """The same coefficients for an engine of other graphs and experts."""
        return replace(self, capture_size=capture_size, experts=experts)


GENERIC = Law(np.array([1.0, 0.1, 5e-4, 8e-4, 2.6e-3, 8e-6, 0.5]), n0=224.0, floor_s=5.0, capture_size=512)
"""The shape without a profile, in units of a: 10-14 % a drafting pass (EAGLE and EAGLE-3 on an H100, vLLM issue 20780);
one weight read per 295 tokens past the ridge (peak rate over bandwidth of an H100 in bf16; the draft tokens' own term
holds a part of it) and 8e-6 a cached token (both seen on an 8B model on an H100 with vLLM 0.33); five base steps to
launch a step without a graph (there 35 ms against 6.5 and 7); half a base step for reading all experts (the fit to
Qwen3-235B, SGLang PR 22246, has 0.4 to 0.8)."""


def fit_law(points: Points, times_s: Floats, weights: Floats, prior: Law) -> Law:
    """The law that measured step times suggest.

    Args:
        points: where they were measured, shape ``(cells,)``.
        times_s: seconds a step, same shape.
        weights: 0 to 1 each, 1 for a cell with as many steps as are worth counting.
        prior: shape towards which terms go that the data do not tell; its scale is taken from the data.
    """
    ratio = times_s / prior.step_time_s(points)
    sound = ratio <= OUTLIER * np.sort(ratio)[(len(ratio) - 1) // 2]
    points, times_s, weights = points.where(sound), times_s[sound], weights[sound]
    scaled = prior.scaled(_scale(prior.step_time_s(points) / times_s, weights))
    inside = ~scaled.beyond(points)
    law = _fit_inside(points, times_s, weights * inside, scaled) if inside.any() else scaled
    return replace(law, floor_s=_floor_s(law, points, times_s, weights * ~inside))


def _fit_inside(points: Points, times_s: Floats, weights: Floats, prior: Law) -> Law:
    """Coefficients and n₀ of the least penalised squared relative error; cells of weight 0 do not count."""
    # A term that the prior does not have can still be learnt: it is held as if it had a tenth of the generic one.
    least = 0.1 * prior.coefficients[0] * GENERIC.coefficients
    penalty = np.diag(RIDGE / np.maximum(prior.coefficients, np.maximum(least, 1e-12)))
    target = np.concatenate([weights, np.diag(penalty) * prior.coefficients])
    terms = _terms(points, prior.n0, prior.experts) / times_s[:, None] * weights[:, None]
    design = np.vstack([terms, penalty])
    best: tuple[float, float, Floats] | None = None
    tokens, away = points.tokens, RIDGE_N0 * np.log2(RIDGES / prior.n0)
    for n0, penalty_n0 in zip(RIDGES.tolist(), (away**2).tolist(), strict=True):
        design[: len(times_s), PAST_RIDGE] = np.maximum(tokens - n0, 0.0) / times_s * weights
        coefficients, norm = nnls(design, target)
        cost = float(norm) ** 2 + penalty_n0
        if best is None or cost < best[0]:
            best = (cost, n0, coefficients)
    assert best is not None
    return replace(prior, coefficients=best[2], n0=best[1])


def _floor_s(law: Law, points: Points, times_s: Floats, weights: Floats) -> float:
    """Weighted geometric mean of the steps past the graphs that the law alone does not explain, and the prior's floor.

    Where all steps past the graphs are as short as the law says, there is no jump, and the floor is the shortest.
    """
    past = weights > 0
    if not past.any():
        return law.floor_s
    inside = _terms(points, law.n0, law.experts) @ law.coefficients
    bound = past & (inside < times_s)
    if not bound.any():
        return float(times_s[past].min())
    total = float(weights[bound].sum())
    mean = float(weights[bound] @ np.log(times_s[bound]))
    return float(np.exp((mean + FLOOR_WEIGHT * np.log(law.floor_s)) / (total + FLOOR_WEIGHT)))


def _scale(predicted_over_measured: Floats, weights: Floats) -> float:
    """The factor on the prior that fits the data best, in relative error."""
    w = weights**2
    return float((w @ predicted_over_measured) / (w @ predicted_over_measured**2))


PAST_RIDGE = 4
"""Index of the one term that depends on n₀."""


def _terms(points: Points, n0: float, experts: Experts | None) -> Floats:
    """Columns of the law, shape ``(points, 7)``."""
    batch, tokens = points.batch, points.tokens
    terms = np.empty((len(batch), 7))
    terms[:, 0] = 1.0
    terms[:, 1] = points.passes
    terms[:, 2] = batch
    terms[:, 3] = batch * points.num_speculative_tokens
    terms[:, PAST_RIDGE] = np.maximum(tokens - n0, 0.0)
    terms[:, 5] = batch * points.context
    terms[:, 6] = 0.0 if experts is None else experts.coverage(tokens)
    return terms
