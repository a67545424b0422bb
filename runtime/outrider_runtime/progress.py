"""Whether the engine makes progress and should be sent more work; without vLLM and without a clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Refusal = Literal["no_progress", "queue"]


@dataclass(slots=True)
class Progress:
    """Signs of life of the engine behind one API server; times are seconds of the caller's clock."""

    max_num_seqs: int
    max_waiting: int
    no_progress_s: float
    heard_s: float = 0.0
    """When the engine last reported a step or answered a question."""
    token_s: float = 0.0
    """When it last reported a token."""
    waiting: int = 0
    """Requests in its queue at the last report."""
    in_flight: int = 0
    """Requests of this API server that have no full answer yet."""
    rejected: dict[Refusal, int] = field(default_factory=lambda: {"no_progress": 0, "queue": 0})
    _busy_since_s: float = 0.0

    def heard(self, now_s: float, *, tokens: bool = False, waiting: int | None = None) -> None:
        """The engine reported something."""
        self.heard_s = now_s
        if tokens:
            self.token_s = now_s
        if waiting is not None:
            self.waiting = waiting

    def enter(self, now_s: float) -> Refusal | None:
        """A request arrives: why it must not enter, or None when it may; then `leave` follows."""
        refusal = self._refusal(now_s)
        if refusal is not None:
            self.rejected[refusal] += 1
            return refusal
        if self.in_flight == 0:
            self._busy_since_s = now_s
        self.in_flight += 1
        return None

    def leave(self) -> None:
        """A request that had entered is answered, or its client is gone."""
        self.in_flight -= 1

    def silent_s(self, now_s: float) -> float:
        """How long the engine has said nothing while it has work; 0 when it has none."""
        return now_s - max(self.heard_s, self._busy_since_s) if self.in_flight else 0.0

    def stuck(self, now_s: float) -> bool:
        """Whether it has work and shows no sign of life."""
        return self.silent_s(now_s) > self.no_progress_s

    def _refusal(self, now_s: float) -> Refusal | None:
        if self.stuck(now_s):
            return "no_progress"
        # In flight counts at once, the engine's own figure knows of memory that holds fewer than its largest batch.
        if self.max_waiting and (
            self.in_flight >= self.max_num_seqs + self.max_waiting
            or (self.in_flight and self.waiting >= self.max_waiting)
        ):
            return "queue"
        return None
