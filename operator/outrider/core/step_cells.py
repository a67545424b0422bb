"""Discounted sums of steps, by batch band and K."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log2

from outrider.core.observation import StepCell

CellKey = tuple[int, int]
"""Batch band (`band`) and K."""
BANDS_PER_OCTAVE = 2
"""Engines count steps by powers of two, but a window of steady load has a mean batch, and windows of other loads have
theirs: kept apart, 96 and 128 requests do not blur into one another."""

DEFAULT_CONTEXT = 800.0
"""Cached tokens a request where nobody says: half a prompt and answer of the order of the measured profile's."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Steps of one batch band and K: discounted sums, hence no whole numbers."""

    steps: float = 0.0
    seconds: float = 0.0
    requests: float = 0.0
    context: float = DEFAULT_CONTEXT
    """Mean cached tokens of a request in these steps."""

    @property
    def mean_batch(self) -> float:
        """Requests a step."""
        return self.requests / self.steps

    @property
    def step_time_s(self) -> float:
        """Seconds a step."""
        return self.seconds / self.steps

    def faded(self, keep: float) -> Cell:
        """The same cell with this share of its evidence."""
        return Cell(keep * self.steps, keep * self.seconds, keep * self.requests, self.context)

    def slowed(self, factor: float) -> Cell:
        """The same steps, each so many times as long."""
        return Cell(self.steps, factor * self.seconds, self.requests, self.context)

    def plus(self, seen: StepCell, context: float | None) -> Cell:
        """With a window's steps added; a context that is not known is taken to be the cell's own."""
        requests = self.requests + seen.requests
        share = seen.requests / requests
        mean = self.context if context is None else self.context + share * (context - self.context)
        return Cell(self.steps + seen.steps, self.seconds + seen.seconds, requests, mean)


def band(mean_batch: float) -> int:
    """The band of a mean batch size, 0 for one request."""
    return round(BANDS_PER_OCTAVE * log2(max(1.0, mean_batch)))


def merged(
    old: Mapping[CellKey, Cell], seen: Iterable[StepCell], keep: float, context: float | None
) -> dict[CellKey, Cell]:
    """The old cells faded and the window's steps added; what is left of under one step is dropped."""
    cells = {key: cell.faded(keep) for key, cell in old.items()}
    for one in seen:
        key = (band(one.mean_batch), one.num_speculative_tokens)
        before = cells.get(key, Cell() if context is None else Cell(context=context))
        cells[key] = before.plus(one, context)
    return {key: cell for key, cell in sorted(cells.items()) if cell.steps >= 1.0}


def keep_after(elapsed_s: float, half_life_s: float) -> float:
    """Share of the evidence that is left after this time, 0 to 1."""
    return float(0.5 ** (max(0.0, elapsed_s) / half_life_s))
