"""How a ReplicaSet's controller goes on whose pods are refused: it tries again ever more rarely."""

from __future__ import annotations

from dataclasses import dataclass

SHORTEST_S, LONGEST_S = 5.0, 1000.0
"""Between two attempts: the step of a replay, and the controller's own bound."""


@dataclass(slots=True)
class BackOff:
    """Attempts to make pods. Each failed one waits as long again as all before it took: client-go's exponential
    back-off from 5 ms, less the first ones, which no replay tells apart."""

    since_s: float | None = None
    """Since when attempts fail; None while none does."""
    next_s: float = 0.0
    """When the next attempt is due."""

    def failed(self, now_s: float) -> None:
        """One more attempt was refused."""
        self.since_s = now_s if self.since_s is None else self.since_s
        self.next_s = now_s + min(max(now_s - self.since_s, SHORTEST_S), LONGEST_S)

    def due(self, now_s: float) -> bool:
        """Whether to try again."""
        return self.since_s is not None and now_s >= self.next_s

    def end(self) -> None:
        """Nothing is missing, or something else is wanted."""
        self.since_s = None
