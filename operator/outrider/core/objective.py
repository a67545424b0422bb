"""Which K yields most at each batch size, and what a schedule is worth.

Token goodput of B requests is B·E(K)/T(B, K); the mean time per output token of each is T(B, K)/E(K). At one batch size
the K that maximises the first minimises the second, so a TPOT objective never changes the choice of K: it limits how
large the batch may get, which is the capacity's business. All K that the engine was started with are tried (there are
at most six); nothing assumes that the best K falls with the batch, because for mixture-of-experts models it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.core import schedule as schedules
from outrider.core.acceptance import Estimate
from outrider.core.latency import LatencyModel
from outrider.core.schedule import Row, Schedule

Floats = NDArray[np.float64]

MARGIN = 0.02
"""A K within this share of the best is as good: the fit's own error inside its data."""
WIDENING_LOSS = 0.05
"""Goodput that a row may lose to fewer rows: the fit's error away from measured points."""
MIN_ROW = 1.35
"""A row spans at least this factor in batch size; a narrower one is a tile or padding effect that the fit cannot know
of."""


@dataclass(frozen=True, slots=True)
class Yield:
    """What each K is predicted to give at every batch size from 1 to ``max_batch_size``."""

    values: tuple[int, ...]
    """The K considered, ascending."""
    tpot_s: Floats
    """Seconds per output token, shape ``(len(values), max_batch_size)``, decode-only steps."""
    time_error: Floats
    """Standard deviation of the step time, relative; same shape."""
    length_error: Floats
    """The same of the acceptance length, shape ``(len(values),)``."""
    extrapolated: NDArray[np.bool_]
    """Where ``tpot_s`` rests on no measurement near by; same shape."""
    prefill_s: float = 0.0
    """What the prefill of each other request in flight adds to a token."""

    @property
    def max_batch_size(self) -> int:
        """The largest batch size considered."""
        return int(self.tpot_s.shape[1])

    def row(self, num_speculative_tokens: int) -> Floats:
        """TPOT by batch size for one K, shape ``(max_batch_size,)``."""
        return np.asarray(self.tpot_s[self.values.index(num_speculative_tokens)])

    def under(self, schedule: Schedule) -> Floats:
        """TPOT by batch size when the schedule picks K, shape ``(max_batch_size,)``."""
        return np.asarray(self.tpot_s[self.rows(schedule), np.arange(self.max_batch_size)])

    def rows(self, schedule: Schedule) -> NDArray[np.intp]:
        """Index in ``values`` of the K that the schedule picks by batch size, shape ``(max_batch_size,)``."""
        rows = np.empty(self.max_batch_size, dtype=np.intp)
        for row in schedule.rows:
            rows[row.first - 1 :] = self.values.index(row.num_speculative_tokens)
        return rows

    def error_between(self, k: int, other: int, batch: int) -> float:
        """Standard deviation of the ratio of two K's TPOT at one batch size, relative.

        Acceptance lengths share the positions up to the smaller K, and so most of their error.
        """
        i, j = self.values.index(k), self.values.index(other)
        lengths = self.length_error[i] - self.length_error[j]
        return float(np.sqrt(self.time_error[i, batch - 1] ** 2 + self.time_error[j, batch - 1] ** 2 + lengths**2))

    @property
    def trusted(self) -> tuple[int, int]:
        """The smallest and the largest batch size at which some K was measured near by."""
        known = np.flatnonzero(~self.extrapolated.all(axis=0)) + 1
        return (int(known[0]), int(known[-1])) if len(known) else (1, self.max_batch_size)

    def at(self, schedule: Schedule, batch: float) -> float:
        """TPOT under a schedule at one batch size; beyond the largest one considered, that of the largest."""
        size = min(max(1, round(batch)), self.max_batch_size)
        return float(self.tpot_s[self.values.index(schedule.at(size)), size - 1])


def predict(
    model: LatencyModel, lengths: Sequence[Estimate], values: Sequence[int], max_batch_size: int, prefill_s: float = 0.0
) -> Yield:
    """Predict TPOT for each K of ``values``; ``lengths[i]`` is E of ``values[i]``."""
    shape = (len(values), max_batch_size)
    batch = np.tile(np.arange(1.0, max_batch_size + 1), len(values))
    k = np.repeat(np.array(values, dtype=np.float64), max_batch_size)
    length = np.array([one.value for one in lengths])
    step_s, error = model.step_time_with_error(batch, k)
    return Yield(
        tuple(values),
        step_s.reshape(shape) / length[:, None],
        error.reshape(shape),
        np.array([one.error for one in lengths]) / length,
        model.extrapolated(batch, k).reshape(shape),
        prefill_s,
    )


def best_schedule(predicted: Yield, current: Schedule, allowed: Sequence[int], *, doubting: bool = True) -> Schedule:
    """The schedule of fewest rows whose K are as good as the best of ``allowed`` at every batch size.

    The current schedule is kept while it is as good everywhere, so that noise in the fit moves nothing. ``doubting``
    weighs predictions by their errors, in favour of what was measured.
    """
    permitted = np.array([k in allowed for k in predicted.values])[:, None]
    # What was measured is preferred to what is only predicted: by its error, which looks (`exploration`) then reduce.
    doubted = predicted.tpot_s * (1.0 + predicted.time_error) if doubting else predicted.tpot_s
    cost = _without_far_turns(predicted, np.where(permitted, doubted, np.inf))
    good = cost <= (1.0 + MARGIN) * cost.min(axis=0)
    present = predicted.rows(current)
    if good[present, np.arange(predicted.max_batch_size)].all():
        return current
    reach = _reach(good)
    lookup: list[int] = []
    while len(lookup) < predicted.max_batch_size:
        start = len(lookup)
        # The farthest reach gives the fewest rows; of several, the present K, then the cheapest.
        best = max(range(len(reach)), key=lambda i: (reach[i, start], i == present[start], -cost[i, start]))
        lookup += [predicted.values[best]] * (int(reach[best, start]) - start)
    return _widen(predicted, lookup)


def _without_far_turns(predicted: Yield, cost: Floats) -> Floats:
    """Beyond the measured batch sizes no boundary may go against the trend: K may fall there and not rise, and rise
    below them and not fall. A burst of unseen size then meets a K that is too small at worst."""
    first, last = predicted.trusted
    values = np.array(predicted.values)[:, None]
    best = np.array(predicted.values)[np.argmin(cost, axis=0)]
    most, least = np.full(predicted.max_batch_size, values.max()), np.full(predicted.max_batch_size, values.min())
    most[last - 1 :] = np.minimum.accumulate(best[last - 1 :])
    least[:first] = np.maximum.accumulate(best[:first][::-1])[::-1]
    sizes = np.arange(1, predicted.max_batch_size + 1)
    turns = ((sizes > last) & (values > most)) | ((sizes < first) & (values < least))
    return np.where(turns, np.inf, cost)


def _reach(good: NDArray[np.bool_]) -> NDArray[np.intp]:
    """End of the run of good batch sizes that begins at each one, by K; same shape."""
    size = good.shape[1]
    ends = np.where(good, size, np.arange(size))
    return np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]


def gain(predicted: Yield, current: Schedule, proposed: Schedule) -> Floats:
    """Relative gain in goodput of one schedule over another by batch size, shape ``(max_batch_size,)``."""
    return np.asarray(predicted.under(current) / predicted.under(proposed) - 1.0)


def best_band(gains: Floats) -> tuple[float, int]:
    """The best mean gain over a band of batch sizes as wide as the narrowest row, and where that band begins.

    A gain at a few sizes only, such as the last ones that miss the captured graphs, is worth no change.
    """
    sums = np.concatenate([[0.0], np.cumsum(gains)])
    starts = np.arange(1, len(gains) + 1)
    starts = starts[starts * MIN_ROW <= len(gains) + 1]
    ends = np.minimum(len(gains), np.maximum(starts, (starts * MIN_ROW).astype(np.intp)))
    means = (sums[ends] - sums[starts - 1]) / (ends - starts + 1)
    best = int(np.argmax(means))
    return float(means[best]), int(starts[best])


def _widen(predicted: Yield, lookup: list[int]) -> Schedule:
    """Give every row that is too narrow to the neighbour that loses less by it, narrowest first.

    A row whose loss would be large stays: leaving the captured graphs costs half and more, at a batch size that
    arithmetic knows, and a saturated engine may run in the last few sizes all the time.
    """
    rows = list(schedules.from_lookup(lookup).rows)
    while True:
        narrow = sorted((i for i in range(len(rows)) if _span(rows[i]) < MIN_ROW), key=lambda i: _span(rows[i]))
        merges = ((i, *_cheapest_neighbour(predicted, rows, i)) for i in narrow)
        merge = next(((i, k) for i, k, loss in merges if loss <= WIDENING_LOSS), None)
        if merge is None:
            return Schedule(tuple(rows))
        i, k = merge
        rows[i] = schedules.Row(rows[i].first, rows[i].last, k)
        rows = list(schedules.from_rows(rows).rows)


def _span(row: Row) -> float:
    return (row.last + 1) / row.first


def _cheapest_neighbour(predicted: Yield, rows: Sequence[Row], index: int) -> tuple[int, float]:
    """K of the neighbour that serves a row better, and the relative loss by it; no loss is small without neighbours."""
    row = rows[index]
    part = slice(row.first - 1, row.last)
    now = float(predicted.row(row.num_speculative_tokens)[part].sum())
    neighbours = [rows[i].num_speculative_tokens for i in (index - 1, index + 1) if 0 <= i < len(rows)]
    costs = [(float(predicted.row(k)[part].sum()), k) for k in neighbours]
    cost, k = min(costs, default=(float("inf"), row.num_speculative_tokens))
    return k, cost / now - 1.0
