"""Step times by batch size and K, as the engine core sees them; without vLLM, so that it can be tested without one.

A step lasts from the end of the step before it (or from its own start, when the engine was idle) to its own end. With
asynchronous scheduling a step is scheduled while the one before still runs, so its own start would count that one
twice.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

STALL_S = 1.0
"""A step that takes longer than any decode step of a healthy engine."""
IDLE_S = 0.05
"""With nothing under way for so long the engine was idle, though requests were left: their clients hung up. Host work
between two steps takes a tenth of that."""

Cell = tuple[int, int, bool]
"""Upper bound of the bucket of requests in the step (a power of two), K, and whether prompts were computed in it."""


@dataclass(slots=True)
class Cells:
    """Sums over the steps of one kind."""

    steps: int = 0
    seconds: float = 0.0
    seconds_squared: float = 0.0
    requests: int = 0


@dataclass(slots=True)
class _Step:
    output: object
    started_s: float
    requests: int
    k: int
    mixed: bool
    settled: bool


@dataclass(slots=True)
class StepMeter:
    """What one engine core measured; all times are seconds of the caller's monotonic clock."""

    cells: dict[Cell, Cells] = field(default_factory=dict)
    steps_by_k: dict[int, int] = field(default_factory=dict)
    stalls: int = 0
    stall_seconds: float = 0.0
    last_step_s: float = 0.0
    last_token_s: float = 0.0
    enabled: bool = True
    _under_way: deque[_Step] = field(default_factory=deque)
    _last_end_s: float | None = None
    _last_k: int | None = None
    _longest_s: dict[str, float] = field(default_factory=dict)

    def scheduled(self, output: object, now_s: float, *, requests: int, k: int, mixed: bool) -> None:
        """A step with tokens was scheduled; ``output`` identifies it when it ends."""
        if not self._under_way and self._last_end_s is not None and now_s - self._last_end_s > IDLE_S:
            self._last_end_s = None
        # The first step after a change still verifies what the last one drafted: it belongs to neither K.
        self._under_way.append(_Step(output, now_s, requests, k, mixed, settled=k == self._last_k))
        self._last_k = k

    def idle(self) -> None:
        """Nothing could be scheduled: unless a step is under way, the next one starts its own time."""
        if not self._under_way:
            self._last_end_s = None

    def ended(self, output: object, now_s: float, *, tokens: bool, work_left: bool) -> None:
        """The results of a step arrived; ``tokens`` says whether any request got one, ``work_left`` whether the engine
        has more to do."""
        step = self._take(output)
        if step is None:
            return
        self.progressed(now_s, tokens=tokens)
        seconds = now_s - (step.started_s if self._last_end_s is None else self._last_end_s)
        self._last_end_s = now_s if work_left or self._under_way else None
        self._count(step, seconds)

    def progressed(self, now_s: float, *, tokens: bool) -> None:
        """Results arrived, and are not measured."""
        self.last_step_s = now_s
        if tokens:
            self.last_token_s = now_s

    def switch(self, enabled: bool) -> None:
        """Measure or not; what is under way belongs to neither time."""
        self.enabled = enabled
        self._forget_under_way()
        self._last_k = None

    def longest_step_s(self, reader: str) -> float:
        """The longest step since this reader asked last."""
        longest = self._longest_s.get(reader, 0.0)
        self._longest_s[reader] = 0.0
        return longest

    def reset(self) -> None:
        """Forget all steps: those of a warm-up say nothing about traffic."""
        self.cells.clear()
        self.steps_by_k.clear()
        self._longest_s.clear()
        self.stalls, self.stall_seconds = 0, 0.0
        self._forget_under_way()

    def as_rows(self) -> list[list[Any]]:
        """``[batch, K, mixed, steps, seconds, seconds squared, requests]`` by cell, in order."""
        return [
            [*cell, sums.steps, sums.seconds, sums.seconds_squared, sums.requests]
            for cell, sums in sorted(self.cells.items())
        ]

    def _forget_under_way(self) -> None:
        self._under_way.clear()
        self._last_end_s = None

    def _take(self, output: object) -> _Step | None:
        """The step that ended; None for one without tokens, which nobody scheduled here. Steps end in order; one that
        never ends (an error) is passed over."""
        if not any(step.output is output for step in self._under_way):
            return None
        while self._under_way:
            step = self._under_way.popleft()
            if step.output is output:
                return step
        return None

    def _count(self, step: _Step, seconds: float) -> None:
        self.steps_by_k[step.k] = self.steps_by_k.get(step.k, 0) + 1
        for reader, longest in self._longest_s.items():
            if seconds > longest:
                self._longest_s[reader] = seconds
        if seconds > STALL_S:
            self.stalls += 1
            self.stall_seconds += seconds
        if not step.settled:
            return
        cell = 1 << (step.requests - 1).bit_length(), step.k, step.mixed
        sums = self.cells.get(cell)
        if sums is None:
            sums = self.cells[cell] = Cells()
        sums.steps += 1
        sums.seconds += seconds
        sums.seconds_squared += seconds * seconds
        sums.requests += step.requests
