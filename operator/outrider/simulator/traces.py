"""The traces shipped with the package, by name: recorded requests, or rates from which requests are drawn.

What they are and under which licence: `data/traces/README.md`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import Protocol

import numpy as np

from outrider.simulator.request import Request
from outrider.simulator.trace_names import RATES, RECORDED, TRACES
from outrider.simulator.workload import Arrival, read_trace, replay

MOST_BURSTY = 10.0  # coefficients of variation above it (19 windows of 2,016, one of 495) would put all in one instant


class Trace(Protocol):
    """Load over time. Its own time starts at 0."""

    @property
    def duration_s(self) -> float:
        """Its length."""

    def requests(
        self, duration_s: float, *, rate_factor: float = 1.0, offset_s: float = 0.0, seed: int = 0
    ) -> Iterator[Request]:
        """The requests of ``duration_s`` seconds, ``rate_factor`` times denser, from ``offset_s`` of its time on."""


@dataclass(frozen=True, slots=True)
class RecordedTrace:
    """Requests as they came; a factor presses them together, so that a shorter replay sees more of them."""

    arrivals: Sequence[Arrival]

    @property
    def duration_s(self) -> float:
        """From the first arrival to the last."""
        return self.arrivals[-1].time_s

    def requests(
        self, duration_s: float, *, rate_factor: float = 1.0, offset_s: float = 0.0, seed: int = 0
    ) -> Iterator[Request]:
        """The recorded ones, whatever the seed."""
        del seed
        return replay(self.arrivals, duration_s=duration_s, rate_factor=rate_factor, offset_s=offset_s)


@dataclass(frozen=True, slots=True)
class RateWindow:
    """What is known of a span of time."""

    start_s: float
    rate_rps: float
    cv: float
    """Coefficient of variation of the gaps between arrivals; 1 is Poisson."""
    mean_prompt_tokens: float
    mean_output_tokens: float


@dataclass(frozen=True, slots=True)
class RateTrace:
    """Windows of equal length; a factor multiplies their rates and leaves their time, night and day, as it is."""

    windows: Sequence[RateWindow]

    @property
    def window_s(self) -> float:
        """The length of each window."""
        return self.windows[1].start_s - self.windows[0].start_s

    @property
    def duration_s(self) -> float:
        """The length of all of them."""
        return len(self.windows) * self.window_s

    def requests(
        self, duration_s: float, *, rate_factor: float = 1.0, offset_s: float = 0.0, seed: int = 0
    ) -> Iterator[Request]:
        """Drawn: a renewal process with gamma gaps at each window's rate and variation, lengths exponential.

        A gap that reaches into another window goes on at that one's rate. The factor leaves the variation as it is.
        """
        rng, number, time_s = np.random.default_rng([seed, 3]), 0, offset_s
        end_s = min(offset_s + duration_s, self.duration_s)
        gap: float | None = None  # to the next arrival, in mean gaps
        while time_s < end_s:
            window = self.windows[int(time_s // self.window_s)]
            if gap is None:
                gap = float(rng.gamma(window.cv**-2, window.cv**2))
            rate_rps, left_s = window.rate_rps * rate_factor, window.start_s + self.window_s - time_s
            if gap >= rate_rps * left_s:
                gap -= rate_rps * left_s
                time_s = window.start_s + self.window_s
                continue
            time_s += gap / rate_rps
            gap = None
            if time_s < end_s:
                yield Request(
                    f"s{number}", time_s - offset_s,
                    ceil(rng.exponential(window.mean_prompt_tokens)), ceil(rng.exponential(window.mean_output_tokens)),
                )  # fmt: skip
                number += 1


def read_rates(path: Path) -> RateTrace:
    """Rates in the form of `data/traces/servegen_m_small_10min.csv`.

    Where a window's lengths or variation are unknown (0), those of all windows stand in, weighted by rate.
    """
    with path.open(newline="") as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]

    def filled(name: str) -> list[float]:
        known = [(row["rate_rps"], row[name]) for row in rows if row[name] > 0]
        mean = sum(rate * value for rate, value in known) / sum(rate for rate, _ in known)
        return [row[name] or mean for row in rows]

    prompts, outputs = filled("mean_input_tokens"), filled("mean_output_tokens")
    cvs = [min(cv, MOST_BURSTY) for cv in filled("cv_weighted")]
    return RateTrace(
        [
            RateWindow(row["window_start_s"], row["rate_rps"], cv, prompt, output)
            for row, cv, prompt, output in zip(rows, cvs, prompts, outputs, strict=True)
        ]
    )


def trace(name: str) -> Trace:
    """A trace of the package.

    Raises:
        ValueError: there is none of this name; the text names those there are.
    """
    folder = Path(str(files(__package__) / "data" / "traces"))
    if name in RECORDED:
        return RecordedTrace(read_trace(folder / RECORDED[name]))
    if name in RATES:
        return read_rates(folder / RATES[name])
    raise ValueError(f"no trace {name!r}; there are {', '.join(TRACES)}")
