"""Raw samples as a metrics store returns them, and the word for data that is not there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAX_SKEW_S = 30.0
"""As far as the clock of whoever dates samples may be from ours, and as old as the newest sample may be: to us, samples
of a clock so far away are no younger."""


@dataclass(frozen=True, slots=True)
class Series:
    """One time series of an engine: its name, its labels, and samples in ascending order of time.

    ``samples`` are ``(time_s, value)`` with the timestamps of the scrape; values are finite (NaN and infinity stop at
    the edge).
    """

    name: str
    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]

    @property
    def last(self) -> tuple[float, float]:
        """The newest sample; a series has at least one."""
        return self.samples[-1]


@dataclass(frozen=True, slots=True)
class Missing:
    """No data, and why: never zero, never an exception."""

    reason: str
    """CamelCase, fit for a condition: ``NoSeries``, ``TooFewSamples``, ``MetricsStale``, …"""
    message: str = ""

    def __str__(self) -> str:
        return self.message or self.reason
