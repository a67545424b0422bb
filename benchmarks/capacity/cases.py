"""The cases: which load, on which card, with which objective, and the settings that each baseline is played with.

All times are seconds. `QUICK` keeps every kind of case and thins out loads, settings and lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from outrider.simulator.request import Request
from outrider.simulator.traces import RecordedTrace, trace
from outrider.simulator.workload import Phase, geometric, with_phases

CEILING = 7
GOOD, BAD = 0.85, 0.4
"""Conditional acceptance of a draft token: two data sets, one that a drafter likes and one that it does not."""
CLASSES = (0.6, 0.75, 0.9)
"""Of the constant load, each a third of the requests."""
COLD_STARTS_S = (30.0, 120.0, 300.0)
STATED_S = 120.0
"""The cold start at which the reach against the oracle is stated."""
WARM_UP_S = 600.0
"""Not measured: a controller that knows nothing yet learns the service, and all arms start with the same replicas."""


HOURS = (0.0, 3.0, 6.0, 9.0, 11.0, 14.0, 17.0, 20.0, 22.0, 24.0)
LOADS = (0.40, 0.10, 0.18, 0.65, 0.85, 0.70, 0.80, 1.00, 0.80, 0.40)
"""Of a day, and the load then over that of the busiest hour: quiet at three, a peak before noon, a higher one in the
evening. Between them it is linear."""


class Source(Protocol):
    """A load; its acceptance is told by phases."""

    @property
    def duration_s(self) -> float:
        """Its length, warm-up included."""

    @property
    def phases(self) -> Sequence[Phase]:
        """Acceptance of what arrives from a moment on; the first one from 0."""

    def requests(self, seed: int) -> Iterator[Request]:
        """In the order of arrival."""


@dataclass(frozen=True)
class Recorded:
    """A stretch of a trace, with a step of acceptance in the middle of what is measured."""

    trace: str
    rate_factor: float
    offset_s: float
    duration_s: float
    before: float
    after: float

    @property
    def phases(self) -> Sequence[Phase]:
        """One step."""
        middle_s = (WARM_UP_S + self.duration_s) / 2
        return (Phase(0.0, geometric(self.before, CEILING)), Phase(middle_s, geometric(self.after, CEILING)))

    def requests(self, seed: int) -> Iterator[Request]:
        """As recorded, or drawn where the trace holds rates."""
        arrivals = trace(self.trace).requests(
            self.duration_s, rate_factor=self.rate_factor, offset_s=self.offset_s, seed=seed
        )
        return with_phases(arrivals, self.phases)


@dataclass(frozen=True)
class Day:
    """A day of chat, pressed together: quiet nights, two peaks, and drafts that fit badly in the afternoon.

    Arrivals are Poisson; lengths are drawn from those recorded in azure-conversation. Before the day comes a warm-up at
    its first rate.
    """

    day_s: float
    """How long the day takes here."""
    peak_rps: float
    drop: tuple[float, float] = (13.0, 20.0)
    """Hours of the day from and to which drafts fit badly."""

    @property
    def duration_s(self) -> float:
        """The day and the warm-up before it."""
        return WARM_UP_S + self.day_s

    @property
    def phases(self) -> Sequence[Phase]:
        """Down and up again."""
        curves = ((0.0, GOOD), (self._at_s(self.drop[0]), BAD), (self._at_s(self.drop[1]), GOOD))
        return tuple(Phase(from_s, geometric(one, CEILING)) for from_s, one in curves)

    def rate_rps(self, time_s: float) -> float:
        """Requests a second."""
        hour = max(0.0, time_s - WARM_UP_S) / self.day_s * 24.0
        return self.peak_rps * float(np.interp(hour, HOURS, LOADS))

    def requests(self, seed: int) -> Iterator[Request]:
        """Thinned from a Poisson process at the highest rate."""
        rng, time_s, number = np.random.default_rng((seed, 11)), 0.0, 0
        lengths = self._lengths
        while (time_s := time_s + float(rng.exponential(1.0 / self.peak_rps))) < self.duration_s:
            keep, which = rng.random(), int(rng.integers(len(lengths)))
            if keep < self.rate_rps(time_s) / self.peak_rps:
                request = Request(f"d{number}", time_s, *lengths[which])
                yield from with_phases([request], self.phases)
                number += 1

    def _at_s(self, hour: float) -> float:
        return WARM_UP_S + hour / 24.0 * self.day_s

    @cached_property
    def _lengths(self) -> list[tuple[int, int]]:
        recorded = trace("azure-conversation")
        assert isinstance(recorded, RecordedTrace)
        return [(max(1, one.prompt_tokens), max(1, one.output_tokens)) for one in recorded.arrivals]


@dataclass(frozen=True)
class Constant:
    """One mean rate for hours: Poisson arrivals of three classes of acceptance, lengths of one size."""

    rate_rps: float
    duration_s: float

    @property
    def phases(self) -> Sequence[Phase]:
        """The mean over the classes, which never changes."""
        curves = [geometric(one, CEILING) for one in CLASSES]
        return (Phase(0.0, tuple(sum(column) / len(column) for column in zip(*curves, strict=True))),)

    def requests(self, seed: int) -> Iterator[Request]:
        """Each with the acceptance of its class."""
        rng, time_s, number = np.random.default_rng((seed, 12)), 0.0, 0
        curves = [geometric(one, CEILING) for one in CLASSES]
        while (time_s := time_s + float(rng.exponential(1.0 / self.rate_rps))) < self.duration_s:
            output = int(rng.integers(400, 801))
            yield Request(f"k{number}", time_s, 128, output, curves[int(rng.integers(len(curves)))])
            number += 1


@dataclass(frozen=True)
class Case:
    """A load on a card with an objective, and what each baseline is played with."""

    name: str
    group: str
    """``trace``, ``day`` or ``constant``."""
    source: Source
    slowed: float
    """How many times slower than the measured card the engines are; a larger model, at the same number of steps."""
    tpot_ms: int
    settings: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """By baseline the targets, or for the oracle the shares of the law's capacity; elsewhere `ARMS` has the one."""


@dataclass(frozen=True)
class Extent:
    """How much of everything is played."""

    cases: tuple[Case, ...]
    cold_starts_s: tuple[float, ...]
    seeds: int = 1


SHARES = (0.4, 0.6, 0.9)
"""Of the capacity by the true law: how full the oracle's plan fills a replica."""


def _settings(in_flight: Sequence[int], rates: Sequence[float], tokens: Sequence[float]) -> Mapping[str, Any]:
    return {
        "in-flight": tuple(float(one) for one in in_flight), "request-rate": tuple(rates), "tokens": tuple(tokens),
        "oracle": SHARES,
    }  # fmt: skip


def _traces(length_s: float) -> tuple[Case, ...]:
    return (
        Case(
            "azure-conversation", "trace", Recorded("azure-conversation", 1.0, 0.0, length_s, GOOD, BAD), 4.0, 60,
            _settings((8, 14, 22, 34, 50), (0.6, 1.0, 1.6), (120, 200, 340)),
        ),
        Case(
            "azure-code", "trace", Recorded("azure-code", 1.0, 0.0, length_s, BAD, GOOD), 1.0, 50,
            _settings((1, 2, 3, 5, 9), (0.6, 1.2, 2.5), (16, 32, 64)),
        ),
        Case(
            "mooncake-conversation", "trace", Recorded("mooncake-conversation", 0.4, 0.0, length_s, GOOD, BAD), 1.0, 40,
            _settings((1, 2, 4, 7, 12), (0.2, 0.35, 0.6), (70, 120, 210)),
        ),
        Case(
            "servegen-small", "trace", Recorded("servegen-small", 0.01, 40_200.0, length_s, BAD, GOOD), 4.0, 60,
            _settings((8, 14, 22, 34, 50), (3.0, 5.0, 8.0), (45, 75, 120)),
        ),
    )  # fmt: skip


def _constant(rates_rps: Sequence[float], hours: float) -> Iterator[Case]:
    for rate_rps in rates_rps:
        yield Case(f"constant-{rate_rps:g}", "constant", Constant(rate_rps, WARM_UP_S + hours * 3600.0), 6.0, 90)


DAY_TARGETS = _settings((9, 14, 21, 32, 48), (0.5, 0.9, 1.5), (110, 190, 320))
FULL = Extent(
    (
        *_traces(WARM_UP_S + 1800.0),
        Case("day", "day", Day(3 * 3600.0, 8.0), 6.0, 90, DAY_TARGETS),
        *_constant((2.5, 5.0, 7.5, 10.0), 2.0),
    ),
    COLD_STARTS_S,
)
QUICK = Extent(
    (
        Case(
            "azure-code", "trace", Recorded("azure-code", 1.0, 0.0, WARM_UP_S + 300.0, BAD, GOOD), 1.0, 50,
            {"in-flight": (2.0, 8.0), "request-rate": (1.2,), "tokens": (32.0,), "oracle": (0.6,)},
        ),
        Case(
            "day", "day", Day(600.0, 4.0), 6.0, 90,
            {"in-flight": (14.0, 40.0), "request-rate": (0.6,), "tokens": (120.0,), "oracle": (0.6,)},
        ),
        *_constant((5.0,), 0.1),
    ),
    (STATED_S,),
)  # fmt: skip
