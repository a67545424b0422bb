"""What steps with prefill cost the requests that decode beside them, and how far apart requests lie.

The prefill of a prompt makes one step (or a few, in chunks) longer by x seconds than a step that only decodes. Everyone
who decodes meanwhile waits x once for each prompt. In a steady state one prompt arrives for each answer of g tokens, so
while all requests together generate g tokens, each of them waits x once:

    TPOT(B) = T(B, K) / E(K) + (B - 1)·c        c = x / g = X / G

with X the seconds that mixed steps took beyond what decode-only steps of their batch and K take, and G the tokens
generated meanwhile, both summed over all engines: c is in seconds a generated token for each other request in flight.
It depends on prompts and answers and hardly on the load, unlike the difference between measured TPOT and decode time,
which is high while a queue drains. Requests differ in both parts, and more in the second: a percentile is

    TPOT_p(B) = u·T/E + v·(B - 1)·c

with u and v learnt from windows without a queue. On simulated engines v is 1.5 for requests of one size and 2 to 3 for
a recorded chat trace, at the 95th percentile and any load, where percentile over mean goes from 1.1 to 1.8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from outrider.core.observation import Histogram, StepCell
from outrider.core.step_cells import Cell, CellKey, keep_after, merged

Floats = NDArray[np.float64]

HALF_LIFE_S = 180.0
"""Prompts and answers change with the traffic; three minutes hold hundreds of them at any load that matters."""
MIN_TOKENS = 500.0
"""Generated tokens before the overhead says anything: a few answers."""
DEFAULT_SPREAD = (1.1, 2.2)
"""u and v where nothing was learnt: for the 95th percentile, seen on simulated engines under a recorded chat trace."""
SPREAD_WEIGHT = 2.0
"""Weight of the default against windows: with fewer than about ten of them it decides what belongs to which part."""
SPREAD_HALF_LIFE_S = 1800.0
"""The spread is a property of the traffic's mix, and single windows are coarse."""
MAX_SPREAD = 3.0
"""A window whose percentile is this many times the mean held an outage and teaches nothing."""
MIN_REQUESTS = 20.0
"""Finished requests in a window before its percentile says anything."""
MAX_BUCKET = 0.35
"""Widest histogram bucket, relative to its upper bound, from which a percentile is read: an engine's default buckets go
from 10 to 25 ms at once."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Discounted sums over windows of d², d·i, i², d and i, with d and i the two parts of TPOT over its percentile."""

    sums: tuple[float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0)

    @property
    def factors(self) -> tuple[float, float]:
        """u and v: least squares of u·d + v·i = 1 with a ridge towards the default, each at least 1."""
        dd, di, ii, d, i = self.sums
        u, v = DEFAULT_SPREAD
        left = np.array([[dd + SPREAD_WEIGHT, di], [di, ii + SPREAD_WEIGHT]])
        u, v = np.linalg.solve(left, [d + SPREAD_WEIGHT * u, i + SPREAD_WEIGHT * v])
        return max(1.0, float(u)), max(1.0, float(v))

    def plus(self, decode: float, prefill: float, keep: float) -> Spread:
        """With one more window; its parts are relative to the percentile that was measured."""
        new = (decode**2, decode * prefill, prefill**2, decode, prefill)
        dd, di, ii, d, i = (keep * old + one for old, one in zip(self.sums, new, strict=True))
        return Spread((dd, di, ii, d, i))


@dataclass(frozen=True, slots=True)
class Interference:
    """Mixed steps by ``(batch band, K)`` and the tokens generated meanwhile, discounted, and the spread."""

    mixed: Mapping[CellKey, Cell] = field(default_factory=dict)
    tokens: float = 0.0
    spread: Spread = field(default_factory=Spread)


def update(
    state: Interference, cells: Iterable[StepCell], tokens: float, elapsed_s: float, context: float | None
) -> Interference:
    """Add a window's mixed steps and the tokens that all its steps generated, after ``elapsed_s``."""
    keep = keep_after(elapsed_s, HALF_LIFE_S)
    mixed = merged(state.mixed, (cell for cell in cells if cell.mixed), keep, context)
    return replace(state, mixed=mixed, tokens=keep * state.tokens + tokens)


def learn_spread(
    state: Interference,
    tpot: Histogram,
    percentile: float,
    elapsed_s: float,
    *,
    decode_s: float,
    prefill_s: float,
    queued: bool,
) -> Interference:
    """Follow the percentile of the requests that finished in a window, ``elapsed_s`` after the last one.

    ``decode_s`` and ``prefill_s`` are the mean parts of TPOT, T/E and (B - 1)·c, as predicted for the window's steps.
    """
    high = tpot.quantile(percentile)
    if high is None or not tells(tpot, percentile, queued=queued):
        return state
    keep = keep_after(elapsed_s, SPREAD_HALF_LIFE_S)
    return replace(state, spread=state.spread.plus(decode_s / high, prefill_s / high, keep))


def tells(tpot: Histogram, percentile: float, *, queued: bool) -> bool:
    """Whether the percentile of a window is worth learning from.

    Not while requests queue: those that finish then have lived under several loads, and the spread would hold the
    change of load. Nor where buckets are too coarse for it.
    """
    mean, high = tpot.mean, tpot.quantile(percentile)
    if queued or tpot.count < MIN_REQUESTS or not mean or not high or high > MAX_SPREAD * mean:
        return False
    return _resolved(tpot, high)


def overhead_s(state: Interference, step_time_s: Callable[[Floats, Floats, Floats], Floats]) -> float | None:
    """c: seconds that mixed steps add to a generated token for each other request in flight.

    ``step_time_s`` gives seconds of decode-only steps by batch, K and context, arrays of one shape. None before enough
    tokens were generated; 0 where no step ran prefill.
    """
    if state.tokens < MIN_TOKENS:
        return None
    if not state.mixed:
        return 0.0
    cells = list(state.mixed.values())
    batch = np.array([cell.mean_batch for cell in cells])
    context = np.array([cell.context for cell in cells])
    decode_s = step_time_s(batch, np.array([float(k) for _, k in state.mixed]), context)
    extra_s = sum(cell.seconds for cell in cells) - float(np.array([cell.steps for cell in cells]) @ decode_s)
    return max(0.0, extra_s / state.tokens)


def _resolved(tpot: Histogram, value_s: float) -> bool:
    lower = 0.0
    for upper, _ in tpot.buckets:
        if value_s <= upper:
            return upper < float("inf") and upper - lower <= MAX_BUCKET * upper
        lower = upper
    return False
