"""What one request asks of an engine, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrives; times are seconds on the engine's clock."""

    id: str
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    """Tokens of the answer, at least 1. The model stops there: a simulated text has no end of its own."""
    acceptance: tuple[float, ...] | None = None
    """Unconditional probability that draft position 1, 2, … is accepted; None takes the profile's curve."""
    finish_reason: str = "length"
    """``length`` when the answer ends at ``max_tokens``, ``stop`` when the text itself ends."""


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A finished request; all times are seconds on the engine's clock."""

    request: Request
    scheduled_s: float
    """When its first prefill chunk was scheduled."""
    first_token_s: float
    finished_s: float
    output_tokens: int
    finish_reason: str
    num_preemptions: int

    @property
    def ttft_s(self) -> float:
        """Arrival to first token, queueing included."""
        return self.first_token_s - self.request.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """Decode time over output tokens - 1; None for an answer of one token, which has no gap to measure."""
        if self.output_tokens < 2:
            return None
        return (self.finished_s - self.first_token_s) / (self.output_tokens - 1)

    @property
    def e2e_s(self) -> float:
        """Arrival to last token."""
        return self.finished_s - self.request.arrival_s


class Listener(Protocol):
    """Who wants to hear of a request while it runs; called from inside `SimulatedEngine.advance`."""

    every_step: bool
    """Whether `emitted` is wanted: without it a request costs nothing more than its arithmetic."""

    def emitted(self, num_tokens: int, now_s: float) -> None:
        """A step gave the request this many tokens, at least 1."""

    def finished(self, record: RequestRecord) -> None:
        """No more tokens will come."""


def extended(curve: Sequence[float], length: int) -> list[float]:
    """The first ``length`` positions of an acceptance curve, continued with its last conditional acceptance.

    >>> extended([0.8, 0.4], 4)
    [0.8, 0.4, 0.2, 0.1]
    """
    values = list(curve)
    ratio = values[-1] / values[-2] if len(values) > 1 and values[-2] > 0 else values[-1]
    while len(values) < length:
        values.append(values[-1] * ratio)
    return values[:length]
