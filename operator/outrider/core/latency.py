"""Step time T(B, K) of an engine: what was measured, and the law fitted to it.

Measured where there are steps, modelled where there are none: `step_time` has the law and its fit, `local_error` what
measured points say of their neighbours, `interference` what steps with prefill add, `step_time_shift` the alarm when
an engine no longer behaves as it did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from math import ceil, log2, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outrider.core import interference, step_time_shift
from outrider.core.interference import Interference
from outrider.core.local_error import NOISE, LocalError, local_error
from outrider.core.observation import Observation, StepCell
from outrider.core.step_cells import Cell, CellKey, keep_after, merged
from outrider.core.step_time import GENERIC, Experts, Law, Points, fit_law, points_of
from outrider.core.step_time_shift import StepTimeShift, Watch

Floats = NDArray[np.float64]

HALF_LIFE_S = 600.0
"""Step times change with the card's company and the traffic, not with the text: ten minutes of memory."""
MIN_STEPS = 20.0
"""A cell with fewer steps is not used: a single slow step must not pass for a law."""
SECOND_VARIANCE = 0.02
"""Relative variance of the mean step time of one second: windows of 0.6 s on a measured H100 are off by some 10 %, and
part of that noise lasts for seconds; a window of 15 s is then off by 4 %."""
REACH = 1.5
"""Predictions up to this factor beyond the smallest and largest measured batch count as measured."""
ERROR_PER_OCTAVE = 0.10
"""Standard deviation that a prediction gains for each doubling beyond the measured batches: fitted to batches to 96
on a measured H100, the root mean square error from 128 to 256 is 10 %."""
ERROR_PER_K = 0.03
"""The same for each step from the nearest K that was run; one K left out there is off by 3 % on average."""
NEAR_CAPTURE = 1.25
"""A bucket whose mean number of tokens is within this factor of the largest graph, and that reaches across it, mixes
both kinds of step."""
NEAR_DISCOUNT = 20.0
"""What such a bucket's weight is divided by: it decides only where nothing else is known, since the two kinds differ by
half and more."""

KEEP_AFTER_SHIFT = 0.25
"""Share of their weight that older steps keep when the engine has changed."""
MAX_SHIFT = 2.0
"""Older steps are scaled by at most this factor."""


@dataclass(frozen=True, slots=True)
class LatencyState:
    """Decode-only steps by ``(batch band, K)``, and what is kept of the others."""

    cells: Mapping[CellKey, Cell] = field(default_factory=dict)
    interference: Interference = field(default_factory=Interference)
    watch: Watch = field(default_factory=Watch)


def update(
    state: LatencyState,
    cells: Iterable[StepCell],
    elapsed_s: float,
    *,
    generation_tokens: float = 0.0,
    context_tokens: float | None = None,
) -> LatencyState:
    """Add a window's steps after ``elapsed_s``; those with prefill follow another law and go to `interference`.

    Args:
        state: what is known so far.
        cells: the window's steps.
        elapsed_s: since the last update.
        generation_tokens: that all engines generated in the window; without them no overhead of prefill is learnt.
        context_tokens: mean cached tokens of a running request in the window, where known.
    """
    seen, keep = list(cells), keep_after(elapsed_s, HALF_LIFE_S)
    decode_only = [cell for cell in seen if not cell.mixed]
    return replace(
        state,
        cells=merged(state.cells, decode_only, keep, context_tokens),
        interference=interference.update(state.interference, seen, generation_tokens, elapsed_s, context_tokens),
    )


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """A fitted law with what is known around its measured points; ask it with `step_time_s`."""

    law: Law
    local: LocalError
    context: float
    """Mean cached tokens of a request in the measured steps: what is assumed where nobody says otherwise."""
    values: Set[int]
    """The K that were run long enough to be measured."""
    smallest_batch: float
    largest_batch: float
    """Of all measured cells."""
    drafter: bool = True
    """False for an engine that was started without one."""

    def at(self, points: Points) -> Floats:
        """Seconds a decode-only step at each point."""
        return np.asarray(self.law.step_time_s(points) * self.local.factor(points))

    def step_time_s(self, batch: ArrayLike, num_speculative_tokens: int, context: float | None = None) -> Floats:
        """Seconds a decode-only step for batch sizes of any shape, at a mean context in tokens a request."""
        of = self.context if context is None else context
        return self.at_points(batch, num_speculative_tokens, of).reshape(np.shape(batch))

    def at_points(self, batch: ArrayLike, num_speculative_tokens: ArrayLike, context: ArrayLike) -> Floats:
        """The same for points, shape ``(points,)``, each with its own batch, K and context, or one number for all."""
        return self.at(points_of(batch, num_speculative_tokens, context, drafter=self.drafter))

    def tpot_s(
        self, batch: ArrayLike, num_speculative_tokens: int, acceptance_length: float, overhead_s: float
    ) -> Floats:
        """Mean seconds per output token, T/E + (B - 1)·c, for E tokens a step and c from `mixed_overhead`."""
        others = np.maximum(np.asarray(batch, dtype=np.float64) - 1.0, 0.0)
        return np.asarray(self.step_time_s(batch, num_speculative_tokens) / acceptance_length + others * overhead_s)

    def no_drafter_step_time_s(self, batch: ArrayLike, context: float | None = None) -> Floats:
        """Seconds a step of the same engine started without its drafter: K = 0 that saves the drafter's pass.

        Another arm, which only a roll-out reaches; measured on an H100, 5-10 % less than K = 0 with the drafter.
        """
        bare = points_of(batch, 0, self.context if context is None else context, drafter=False)
        return self.at(bare).reshape(np.shape(batch))

    def measured(self, num_speculative_tokens: int) -> bool:
        """Whether this K was ever run long enough to be measured."""
        return num_speculative_tokens in self.values

    def extrapolated(self, batch: ArrayLike, num_speculative_tokens: ArrayLike) -> NDArray[np.bool_]:
        """Where no boundary of a schedule may rest on the prediction; arguments of one shape, or broadcast to one.

        That is: a K that was never run, a batch more than `REACH` beyond the measured ones, or a step past the captured
        graphs while none such was seen.
        """
        points = points_of(batch, num_speculative_tokens, self.context, drafter=self.drafter)
        outside = (points.batch > REACH * self.largest_batch) | (points.batch * REACH < self.smallest_batch)
        seen = self.local.places.beyond
        unseen = np.where(self.law.beyond(points), not seen.any(), seen.all())
        unrun = self._steps_of_k(points) > 0
        return (outside | unseen | unrun).reshape(np.broadcast(batch, num_speculative_tokens).shape)

    def step_time_with_error(self, batch: ArrayLike, num_speculative_tokens: ArrayLike) -> tuple[Floats, Floats]:
        """Seconds a decode-only step at points, shape ``(points,)``, and the standard deviation of the prediction,
        relative: at least 1.5 %, about 7 % away from all measured points."""
        points = points_of(batch, num_speculative_tokens, self.context, drafter=self.drafter)
        factor, deviation = self.local.factor_and_deviation(points)
        away = np.maximum(points.batch / self.largest_batch, self.smallest_batch / points.batch)
        octaves = np.log2(np.maximum(away, 1.0))
        far = (ERROR_PER_OCTAVE * octaves) ** 2 + (ERROR_PER_K * self._steps_of_k(points)) ** 2
        return np.asarray(self.law.step_time_s(points) * factor), np.asarray(np.sqrt(deviation**2 + far))

    def _steps_of_k(self, points: Points) -> Floats:
        """From the nearest K that was run."""
        return np.asarray(np.minimum.reduce([np.abs(points.num_speculative_tokens - k) for k in self.values]))


def fit(
    state: LatencyState,
    capture_size: int,
    *,
    prior: Law = GENERIC,
    experts: Experts | None = None,
    drafter: bool = True,
    spread: float | None = None,
) -> LatencyModel | None:
    """The law that the cells suggest; None without a single well-measured cell.

    Args:
        state: what was measured.
        capture_size: largest captured CUDA graph in tokens; 0 without graphs.
        prior: shape where the cells say nothing; `prior.from_profile` makes one of a measured profile.
        experts: for a mixture-of-experts model.
        drafter: False for an engine that was started without one.
        spread: factor to either side of its mean within which the batch sizes of a cell lie; by default a cell holds
            those of a power of two, as engines count them.
    """
    known = {key: cell for key, cell in state.cells.items() if cell.steps >= MIN_STEPS}
    if not known:
        return None
    cells = list(known.values())
    measured = points_of(
        [cell.mean_batch for cell in cells],
        [float(k) for _, k in known],
        [cell.context for cell in cells],
        drafter=drafter,
    )
    times_s = np.array([cell.step_time_s for cell in cells])
    weights = np.array([_weight(k, cell, capture_size, spread) for (_, k), cell in known.items()])
    context = float(np.average(measured.context, weights=[cell.requests for cell in cells]))
    model = fit_points(measured, times_s, weights, prior.for_engine(capture_size, experts), context=context)
    return replace(model, drafter=drafter)


def fit_points(
    points: Points, times_s: Floats, weights: Floats, prior: Law, *, context: float | None = None
) -> LatencyModel:
    """The model that step times at these points suggest; arguments as in `step_time.fit_law`.

    ``context`` is what to assume where nobody says otherwise; by default the mean of the points.
    """
    law = fit_law(points, times_s, weights, prior)
    return LatencyModel(
        law=law,
        local=local_error(law, points, times_s, weights),
        context=float(points.context.mean()) if context is None else context,
        values=frozenset(int(k) for k in points.num_speculative_tokens),
        smallest_batch=float(points.batch.min()),
        largest_batch=float(points.batch.max()),
    )


def mixed_overhead(state: LatencyState, model: LatencyModel) -> float | None:
    """c of `interference`: seconds that prefill adds to a generated token for each other request in flight.

    None before enough tokens were generated.
    """
    return interference.overhead_s(state.interference, model.at_points)


def residual(model: LatencyModel, cells: Iterable[StepCell]) -> float | None:
    """Measured over predicted time of a window's decode-only steps; None where none is within the model's reach."""
    enough = [cell for cell in cells if not cell.mixed and cell.steps >= MIN_STEPS]
    batch = np.array([cell.mean_batch for cell in enough])
    k = np.array([float(cell.num_speculative_tokens) for cell in enough])
    known = ~model.extrapolated(batch, k)
    if not known.any():
        return None
    predicted_s = np.array([cell.steps for cell in enough]) * model.at_points(batch, k, model.context)
    measured_s = np.array([cell.seconds for cell in enough])
    return float(measured_s[known].sum() / predicted_s[known].sum())


def look(
    state: LatencyState, model: LatencyModel, cells: Iterable[StepCell]
) -> tuple[LatencyState, StepTimeShift | None]:
    """Compare a window's steps with the model of the windows before it, so call it before `update`.

    On an alarm what was measured before is scaled by the shift, since most causes slow all steps alike, and keeps a
    quarter of its weight, since some do not.
    """
    ratio = residual(model, cells)
    if ratio is None:
        return state, None
    watch, shift = step_time_shift.look(state.watch, ratio)
    if shift is None:
        return replace(state, watch=watch), None
    factor = min(MAX_SHIFT, max(1.0 / MAX_SHIFT, shift.ratio))
    cells_then = {key: cell.faded(KEEP_AFTER_SHIFT).slowed(factor) for key, cell in state.cells.items()}
    return replace(state, cells=cells_then, watch=watch), shift


def learn_spread(
    state: LatencyState,
    model: LatencyModel,
    window: Observation,
    acceptance_length: Callable[[int], float],
    percentile: float,
    elapsed_s: float,
    overhead_s: float,
) -> LatencyState:
    """Follow how far a percentile of TPOT lies from its mean; nothing is learnt while more than one request an engine
    waits.

    ``acceptance_length`` gives E(K); ``elapsed_s`` is the time since the last call; ``overhead_s`` is that of
    `mixed_overhead`.
    """
    cells, queued = window.cells, window.waiting > len(window.engines)
    if not cells or not interference.tells(window.tpot, percentile, queued=queued):
        return state
    # A request sees the batches that it is in: each step counts once for every request.
    share = np.array([cell.requests for cell in cells])
    share = share / share.sum()
    batch = np.array([cell.mean_batch for cell in cells])
    k = np.array([float(cell.num_speculative_tokens) for cell in cells])
    length = np.array([acceptance_length(cell.num_speculative_tokens) for cell in cells])
    decode_s = float(share @ (model.at_points(batch, k, model.context) / length))
    prefill_s = float(share @ np.maximum(batch - 1.0, 0.0)) * overhead_s
    learnt = interference.learn_spread(
        state.interference,
        window.tpot,
        percentile,
        elapsed_s,
        decode_s=decode_s,
        prefill_s=prefill_s,
        queued=queued,
    )
    return replace(state, interference=learnt)


def percentile_tpot_s(state: LatencyState, decode_s: ArrayLike, batch: ArrayLike, overhead_s: float) -> Floats:
    """TPOT at the percentile that `learn_spread` follows, u·T/E + v·(B - 1)·c, for ``decode_s`` = T/E; same shapes."""
    u, v = state.interference.spread.factors
    others = np.maximum(np.asarray(batch, dtype=np.float64) - 1.0, 0.0)
    return np.asarray(u * np.asarray(decode_s, dtype=np.float64) + v * others * overhead_s)


def _weight(k: int, cell: Cell, capture_size: int, spread: float | None) -> float:
    """1 for a cell of minutes that lies on one side of the largest graph; a quarter of it has four times the error."""
    full = NOISE / sqrt(NOISE**2 + SECOND_VARIANCE / cell.seconds)
    if spread is None:
        last = float(1 << ceil(log2(max(1.0, cell.mean_batch))))
        first = last // 2 + 1
    else:
        first, last = cell.mean_batch / spread, cell.mean_batch * spread
    across = first * (k + 1) <= capture_size < last * (k + 1)
    near = capture_size > 0 and 1 / NEAR_CAPTURE < cell.mean_batch * (k + 1) / capture_size < NEAR_CAPTURE
    return full / NEAR_DISCOUNT if across and near else full
