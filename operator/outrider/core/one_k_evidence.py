"""What engines with one K tell of it in vLLM's own metrics, and what that says of every other K.

Without the plugin nobody counts steps, but whole requests tell enough of engines whose K never changes while they run:
a request's mean time per output token is the time of a step over the tokens that a step yields, so

    T(B, K) = TPOT · E(K)        E(K) = 1 + accepted / drafts

at the mean number B of requests that run. Prefill beside the decoding is in it, and the law puts it down to requests,
so that the gain of a smaller K under many requests is told too low (decision 0029). Such cells are fitted as measured
steps are (`latency`), and a K that never ran is predicted by the same law, with the error that it gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, log2

import numpy as np

from outrider.core import latency, objective
from outrider.core.drift import PRIOR_DESIGN_EFFECT
from outrider.core.latency import LatencyState
from outrider.core.objective import Yield
from outrider.core.observation import Observation
from outrider.core.step_cells import Cell, CellKey, keep_after
from outrider.core.steps import StepCell
from outrider.core.survival import Counts, lengths

TIMES_HALF_LIFE_S = 12 * 3600.0
"""What a K took is known until it runs again: some hours later at that time of the day."""
MOST_DRAFTS = 5000.0
"""Discounted drafts that a steady load adds up to, however many there are: what is known of positions that are drafted
no longer is too little to rest on after five half lives."""
OTHER_TEXT, SURE_DRAFTS = 0.1, 1000.0
"""A window of so many drafts whose first tokens are accepted so much more or less often is another text: what was
counted before is void, at positions that are drafted no longer too. It is three standard errors of such a window."""
LIKE = 0.25
"""A window whose batch size differs by more from that of the one before is not learnt from: requests that end in it
have lived in both."""
SIZES_PER_OCTAVE = 8
"""Times and load are kept within 5 % of their batch size: at the last one that the captured graphs hold a step costs
half of what it does beyond."""
SPREAD = 2.0 ** (0.5 / SIZES_PER_OCTAVE)
"""So far from its middle a cell reaches; those that reach across that edge hold steps of both kinds."""
NEXT = ((-0.25, 0.25), (0.0, 0.5), (0.25, 0.25))
"""Octaves from the batch sizes of late, and how much a K's yield there counts: it stays while the load moves on, and
by a quarter of an octave loads move within an hour. So no K is chosen for the last sizes that its graphs hold."""
MIN_TOKENS = 200.0
"""Generated tokens that a window needs."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Discounted sums; a value of its own, so that a restart of the operator forgets nothing."""

    cells: Mapping[CellKey, Cell] = field(default_factory=dict)
    """Step times of whole requests by batch size, in steps of `SIZES_PER_OCTAVE`, and K."""
    counts: Counts = field(default_factory=Counts)
    """Acceptance by position. It does not fade while nothing is drafted: nothing newer is known."""
    load: Mapping[int, float] = field(default_factory=dict)
    """Seconds of traffic of late, by batch size in steps of `SIZES_PER_OCTAVE`."""
    batch: float | None = None
    """Requests running on an engine in the last window."""
    watched_s: float = 0.0
    """Traffic seen since all engines have their present K."""
    blind_s: float = 0.0
    """Time since drafts were last seen."""
    until_s: float | None = None
    """End of the last window that is contained."""


def learn(known: Evidence, window: Observation, num_speculative_tokens: int, half_life_s: float) -> Evidence:
    """Take in what happened since the last look on engines that all have this K, each window once.

    ``half_life_s`` is that of acceptance and load; times are kept for `TIMES_HALF_LIFE_S`.
    """
    since_s = window.since_s if known.until_s is None else max(window.since_s, known.until_s)
    elapsed_s = window.until_s - since_s
    if elapsed_s <= 0:
        return known
    if window.generation_tokens < MIN_TOKENS or window.running <= 0:
        return replace(known, blind_s=known.blind_s + elapsed_s, until_s=window.until_s)
    batch, keep = window.batch, keep_after(elapsed_s, half_life_s)
    steady = known.batch is not None and abs(batch - known.batch) <= LIKE * max(known.batch, 1.0)
    cell = _cell(window, num_speculative_tokens, batch) if steady else None
    load = {key: keep * seconds for key, seconds in known.load.items()}
    load[_size(batch)] = load.get(_size(batch), 0.0) + elapsed_s
    drafted = sum(window.drafted_per_pos) > 0
    return Evidence(
        cells=known.cells if cell is None else _with(known.cells, cell, keep_after(elapsed_s, TIMES_HALF_LIFE_S)),
        counts=_counted(known.counts, window, keep) if drafted else known.counts,
        load={key: seconds for key, seconds in load.items() if seconds >= 1.0},
        batch=batch,
        watched_s=known.watched_s + elapsed_s,
        blind_s=0.0 if drafted else known.blind_s + elapsed_s,
        until_s=window.until_s,
    )


def predict(known: Evidence, values: Sequence[int], max_batch_size: int, capture_size: int) -> Yield | None:
    """What each of ``values`` would give at every batch size; 0 is an engine without a drafter. None before anything
    was measured."""
    model = latency.fit(LatencyState(cells=known.cells), capture_size, drafter=False, spread=SPREAD)
    if model is None:
        return None
    of = lengths(known.counts, max(values), PRIOR_DESIGN_EFFECT)
    return objective.predict(model, [of[k] for k in values], values, max_batch_size)


def gain(known: Evidence, predicted: Yield, present: int, other: int) -> tuple[float, float]:
    """Token goodput of another K over that of the present one at the load of late and next to it, less 1, and its
    standard error."""
    total = found = error = 0.0
    for size, seconds in _nearby(known, predicted.max_batch_size):
        ratio = float(predicted.row(present)[size - 1] / predicted.row(other)[size - 1])
        total += seconds
        found += seconds * (ratio - 1.0)
        error += seconds * ratio * predicted.error_between(present, other, size)
    return (found / total, error / total) if total > 0 else (0.0, float("inf"))


def sizes(known: Evidence, max_batch_size: int) -> list[tuple[int, float]]:
    """Batch sizes of late and the time at each, seconds."""
    return [
        (min(max_batch_size, max(1, round(2.0 ** (key / SIZES_PER_OCTAVE)))), seconds)
        for key, seconds in sorted(known.load.items())
    ]


def _nearby(known: Evidence, max_batch_size: int) -> list[tuple[int, float]]:
    """The same spread over what the load may be next."""
    return [
        (min(max_batch_size, max(1, round(size * 2.0**octaves))), weight * seconds)
        for size, seconds in sizes(known, max_batch_size)
        for octaves, weight in NEXT
    ]


def usual_batch(known: Evidence) -> int:
    """The batch size that half of the time was spent at or under; 1 without any."""
    found = sizes(known, 1 << 16)
    until = np.cumsum([seconds for _, seconds in found])
    return found[int(np.searchsorted(until, until[-1] / 2.0))][0] if found else 1


def _size(batch: float) -> int:
    return round(SIZES_PER_OCTAVE * log2(max(1.0, batch)))


def _with(cells: Mapping[CellKey, Cell], seen: StepCell, keep: float) -> dict[CellKey, Cell]:
    """The cells faded, and one with a window's steps; what is left of under one step is dropped."""
    faded = {key: cell.faded(keep) for key, cell in cells.items()}
    key = (_size(seen.mean_batch), seen.num_speculative_tokens)
    faded[key] = faded.get(key, Cell()).plus(seen, None)
    return {key: cell for key, cell in sorted(faded.items()) if cell.steps >= 1.0}


def _cell(window: Observation, num_speculative_tokens: int, batch: float) -> StepCell | None:
    """The window's requests as steps of one cell; None where no request ended, or what a step yields is not known."""
    length = 1.0 if num_speculative_tokens == 0 else window.acceptance_length
    if length is None or not window.tpot.mean:
        return None
    requests = window.generation_tokens / length
    steps = requests / max(1.0, batch)
    bucket = 1 << ceil(log2(max(1.0, batch)))
    return StepCell(bucket, num_speculative_tokens, False, steps, steps * window.tpot.mean * length, requests)


def _counted(counts: Counts, window: Observation, keep: float) -> Counts:
    seen = Counts(window.drafted_per_pos, window.accepted_per_pos)
    other = seen.drafts >= SURE_DRAFTS and counts.drafts > 0 and abs(_first(seen) - _first(counts)) > OTHER_TEXT
    if other:
        return _at_most(seen, MOST_DRAFTS)
    return counts.plus(_at_most(seen, MOST_DRAFTS * (1.0 - keep)), keep)


def _first(counts: Counts) -> float:
    """Acceptance of the first draft token."""
    drafted, accepted = counts.at(0)
    return accepted / drafted


def _at_most(counts: Counts, drafts: float) -> Counts:
    """The same shares of no more drafts."""
    share = min(1.0, drafts / max(counts.drafts, 1.0))
    return Counts(tuple(share * one for one in counts.drafted), tuple(share * one for one in counts.accepted))
