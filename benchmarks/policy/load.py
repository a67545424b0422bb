"""What the benchmark asks of an engine: clients that wait for their answers, or requests that come when they come."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from outrider.simulator.engine import SimulatedEngine
from outrider.simulator.request import Request
from outrider.simulator.workload import Phase, constant_rate, geometric, poisson, with_phases

PROMPT_TOKENS = 128
"""Short, so that a step is mostly decoding: what K decides about."""


class Source(Protocol):
    """A load while it is played on one engine."""

    def play(self, engine: SimulatedEngine, until_s: float) -> None:
        """Submit what comes up to a moment, and bring the engine there."""


@dataclass(frozen=True, slots=True)
class Clients:
    """So many clients, each asking again as soon as it is answered: the batch is what the level says."""

    levels: tuple[tuple[float, int], ...]
    """From when on, seconds, how many; the first one from 0."""
    phases: tuple[Phase, ...]
    """Acceptance of what is asked from a moment on; the first one from 0."""
    output_tokens: tuple[int, int] = (400, 1200)
    """Shortest and longest answer; drawn between them, so that answers do not end together."""

    def at(self, now_s: float) -> int:
        """Clients at a moment."""
        return self.levels[bisect_right(self.levels, (now_s, 1 << 30)) - 1][1]

    def source(self, seed: int, duration_s: float) -> Source:  # noqa: ARG002
        """Played once."""
        return _Asking(self, seed)


@dataclass(frozen=True, slots=True)
class Steadily:
    """Evenly spaced arrivals of one size."""

    rate_rps: float
    output_tokens: int
    acceptance: tuple[float, ...]

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Acceptance never changes."""
        return (Phase(0.0, self.acceptance),)

    def source(self, seed: int, duration_s: float) -> Source:  # noqa: ARG002
        """Played once."""
        arrivals = constant_rate(
            self.rate_rps, duration_s, prompt_tokens=PROMPT_TOKENS, output_tokens=self.output_tokens
        )
        return _Arriving(with_phases(arrivals, self.phases))


@dataclass(frozen=True, slots=True)
class Visitors:
    """Independent arrivals at a mean rate, each with an acceptance of its own class."""

    rate_rps: float
    output_tokens: int
    classes: tuple[float, ...]
    """Conditional acceptance of each class; every class is as frequent as the others."""
    positions: int

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The mean over the classes, which never changes."""
        curves = [geometric(one, self.positions) for one in self.classes]
        return (Phase(0.0, tuple(sum(column) / len(column) for column in zip(*curves, strict=True))),)

    def source(self, seed: int, duration_s: float) -> Source:
        """Played once."""
        arrivals = poisson(
            self.rate_rps, duration_s, prompt_tokens=PROMPT_TOKENS, output_tokens=self.output_tokens, seed=seed
        )
        return _Arriving(self._classified(arrivals, seed))

    def _classified(self, arrivals: Iterator[Request], seed: int) -> Iterator[Request]:
        rng = np.random.default_rng((seed, 1))
        for request in arrivals:
            curve = geometric(float(rng.choice(self.classes)), self.positions)
            yield from with_phases([request], [Phase(0.0, curve)])


class _Asking:
    def __init__(self, clients: Clients, seed: int) -> None:
        self._clients, self._rng, self._asked = clients, np.random.default_rng((seed, 2)), 0
        self._starts = [phase.from_s for phase in clients.phases]

    def play(self, engine: SimulatedEngine, until_s: float) -> None:
        """Step by step, since every answer is followed by a question."""
        while True:
            for _ in range(self._clients.at(engine.now_s) - engine.num_running - engine.num_waiting):
                engine.submit(self._request(engine.now_s), engine.now_s)
            engine.advance(engine.now_s)
            next_s = engine.next_event_s
            if next_s is None or next_s > until_s:
                break
            engine.advance(next_s)
        engine.advance(until_s)

    def _request(self, now_s: float) -> Request:
        self._asked += 1
        low, high = self._clients.output_tokens
        curve = self._clients.phases[bisect_right(self._starts, now_s) - 1].acceptance
        return Request(f"r{self._asked}", now_s, PROMPT_TOKENS, int(self._rng.integers(low, high + 1)), curve)


class _Arriving:
    def __init__(self, arrivals: Iterator[Request]) -> None:
        self._arrivals = arrivals
        self._next = next(arrivals, None)

    def play(self, engine: SimulatedEngine, until_s: float) -> None:
        """Whoever comes by then."""
        while self._next is not None and self._next.arrival_s <= until_s:
            engine.submit(self._next, self._next.arrival_s)
            self._next = next(self._arrivals, None)
        engine.advance(until_s)


def acceptance_at(phases: Sequence[Phase], now_s: float) -> tuple[float, ...]:
    """The curve of what arrives at a moment."""
    return phases[bisect_right([phase.from_s for phase in phases], now_s) - 1].acceptance
