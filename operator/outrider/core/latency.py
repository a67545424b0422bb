"""Step time T(B, K) of an engine: seconds for one step of B requests with K speculative tokens each.

Measured where there are steps, modelled where there are none. The model is linear in its coefficients,

    T(B, K) = a + c·max(K, 1) + s·B·(K + 1) + j·[B·(K + 1) > capture]

(launch and weight reads, each drafting pass, each token through the target, and the jump where a step is too large for
the captured CUDA graphs), all of them non-negative. At K = 0 the drafter still runs once a step, to keep its cache in
step (vLLM issue 53420): no K saves that pass, only an engine started without a drafter does. It is fitted by
non-negative least squares on relative errors, with a ridge towards a generic shape that is scaled to the data: with one
K in the data the terms cannot be told apart, and the shape decides. Measured cells then correct the model by a factor
of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import log2

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from outrider.core.observation import StepCell

Floats = NDArray[np.float64]

HALF_LIFE_S = 600.0
"""Step times change with the context and the card's company, not with the text: ten minutes of memory."""
MIN_STEPS = 20.0
"""A cell with fewer steps is not used: a single slow step must not pass for a law."""
WEIGHT_STEPS = 400.0
"""Steps beyond this many add no weight, or the busiest cell alone would decide."""
OUTLIER = 2.0
"""A cell this many times slower, against the shape, than the lower half of the cells is a fault and not a law (an
engine stalled, a graph fell away): it counts at its own place and is kept out of the fit."""
RIDGE = 0.05
"""Weight of the shape against the data; with three or more K in the data it changes predictions by under two
percent."""
SHAPE = np.array([1.0, 0.1, 1.0 / 295.0, 1.0])
"""The generic shape in units of a: 10-14 % a drafting pass (EAGLE and EAGLE-3 on an H100, vLLM issue 20780), one weight
read per 295 tokens (peak FLOP/s over bandwidth, H100 bf16), and a jump of one base step past the captured graphs
(12-17 ms on a base of 7, measured on an H100 with vLLM 0.33)."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Discounted sums of the decode-only steps of one batch bucket and K."""

    steps: float = 0.0
    seconds: float = 0.0
    requests: float = 0.0

    @property
    def mean_batch(self) -> float:
        """Requests a step."""
        return self.requests / self.steps

    @property
    def step_time_s(self) -> float:
        """Seconds a step."""
        return self.seconds / self.steps


@dataclass(frozen=True, slots=True)
class LatencyState:
    """Cells by ``(batch bucket, K)``."""

    cells: Mapping[tuple[int, int], Cell] = field(default_factory=dict)


def update(state: LatencyState, cells: Iterable[StepCell], elapsed_s: float) -> LatencyState:
    """Add a window's decode-only steps after ``elapsed_s``; steps with prefill follow another law and are left out."""
    keep = 0.5 ** (max(0.0, elapsed_s) / HALF_LIFE_S)
    merged = {
        key: Cell(keep * cell.steps, keep * cell.seconds, keep * cell.requests) for key, cell in state.cells.items()
    }
    for seen in cells:
        if seen.mixed:
            continue
        key = (seen.batch_bucket, seen.num_speculative_tokens)
        old = merged.get(key, Cell())
        merged[key] = Cell(old.steps + seen.steps, old.seconds + seen.seconds, old.requests + seen.requests)
    return LatencyState({key: cell for key, cell in sorted(merged.items()) if cell.steps >= 1.0})


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """A fitted law; ask it with `step_time_s`."""

    coefficients: Floats
    capture_size: int
    corrections: Mapping[int, tuple[Floats, Floats]]
    """By K: log2 of the measured batch sizes, ascending, and measured over modelled step time there."""

    def step_time_s(self, batch: ArrayLike, num_speculative_tokens: int) -> Floats:
        """Seconds a step for batch sizes of any shape; between measured batches the correction is interpolated in
        log2(B)."""
        sizes = np.asarray(batch, dtype=np.float64)
        modelled = _features(sizes, num_speculative_tokens, self.capture_size) @ self.coefficients
        nearest = self.corrections.get(num_speculative_tokens)
        if nearest is None:
            return np.asarray(modelled)
        factor = np.interp(np.log2(np.maximum(sizes, 1.0)), *nearest)
        return np.asarray(modelled * factor)

    def measured(self, num_speculative_tokens: int) -> bool:
        """Whether this K was ever run long enough to be measured."""
        return num_speculative_tokens in self.corrections


def fit(state: LatencyState, capture_size: int) -> LatencyModel | None:
    """The law that the cells suggest; None without a single well-measured cell.

    ``capture_size`` is the largest captured CUDA graph in tokens.
    """
    cells = {key: cell for key, cell in state.cells.items() if cell.steps >= MIN_STEPS}
    if not cells:
        return None
    rows = np.stack([_features(np.asarray(cell.mean_batch), k, capture_size) for (_, k), cell in cells.items()])
    times = np.array([cell.step_time_s for cell in cells.values()])
    weights = np.sqrt(np.array([min(cell.steps, WEIGHT_STEPS) for cell in cells.values()]) / WEIGHT_STEPS)
    relative = rows / times[:, None]
    sound = _sound(relative @ SHAPE)
    relative, weights = relative[sound], weights[sound]
    shape = _scale(relative @ SHAPE, weights) * SHAPE
    design = np.vstack([relative * weights[:, None], np.diag(RIDGE / shape)])
    target = np.concatenate([weights, np.full(len(SHAPE), RIDGE)])
    coefficients, _ = nnls(design, target)
    return LatencyModel(coefficients, capture_size, _corrections(cells, coefficients, capture_size))


def _sound(shape_over_measured: Floats) -> NDArray[np.bool_]:
    """Cells that are not far slower than the others; faults make steps slower and never faster, hence the lower
    median."""
    slowness = 1.0 / shape_over_measured
    reference = np.sort(slowness)[(len(slowness) - 1) // 2]
    return np.asarray(slowness <= OUTLIER * reference)


def _scale(predicted_over_measured: Floats, weights: Floats) -> float:
    """The factor on the shape that fits the data best, in relative error."""
    w = weights**2
    return float((w @ predicted_over_measured) / (w @ predicted_over_measured**2))


def _corrections(
    cells: Mapping[tuple[int, int], Cell], coefficients: Floats, capture_size: int
) -> dict[int, tuple[Floats, Floats]]:
    by_k: dict[int, list[tuple[float, float]]] = {}
    for (_, k), cell in cells.items():
        modelled = float(_features(np.asarray(cell.mean_batch), k, capture_size) @ coefficients)
        by_k.setdefault(k, []).append((log2(max(1.0, cell.mean_batch)), cell.step_time_s / modelled))
    return {
        k: (np.array([x for x, _ in sorted(points)]), np.array([y for _, y in sorted(points)]))
        for k, points in by_k.items()
    }


def _features(batch: Floats, num_speculative_tokens: int, capture_size: int) -> Floats:
    tokens = batch * (num_speculative_tokens + 1.0)
    passes = np.full_like(batch, max(num_speculative_tokens, 1))
    return np.stack([np.ones_like(batch), passes, tokens, (tokens > capture_size).astype(np.float64)], axis=-1)
