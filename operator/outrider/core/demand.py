"""What a service asks of its autoscaler over the last minutes: replicas for its load, and how far it misses its
objectives.

Loads flutter from one look to the next, and so do percentiles of a minute. What is decided for several services at
once must not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from outrider.core.observation import Observation

LOOK_BACK_S = 120.0
"""The most that was wanted in that time counts."""
SMOOTH_S = 300.0
"""Time constant of the shortfall: an objective that is missed for a minute is no reason to move a replica."""
CAPPED_S = 60.0
"""For how long more must be wanted than may be before that is told: a burst is no news."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Of one service, from look to look."""

    looks: tuple[tuple[float, int], ...] = ()
    """When, and how many replicas the load needed then, whatever the bounds say; the oldest first."""
    shortfall: float = 0.0
    """How far objectives are missed, smoothed: 0.5 if times are half as long again as they may be."""
    capped_since_s: float | None = None
    """Since when more replicas are wanted than there may be; None if they are not."""

    @property
    def wanted(self) -> int | None:
        """Replicas that the load needs, None if it was not seen lately."""
        return max((replicas for _, replicas in self.looks), default=None)

    def capped(self, now_s: float) -> bool:
        """Whether more have been wanted than may be for long enough to be told."""
        return self.capped_since_s is not None and now_s >= self.capped_since_s + CAPPED_S


def seen(before: Demand, replicas: int, short: float, now_s: float) -> Demand:
    """The demand after one more look."""
    last_s = before.looks[-1][0] if before.looks else now_s - SMOOTH_S
    weight = min(1.0, max(0.0, now_s - last_s) / SMOOTH_S)
    looks = (*_recent(before, now_s), (now_s, replicas))
    return replace(before, looks=looks, shortfall=before.shortfall + weight * (short - before.shortfall))


def unseen(before: Demand, now_s: float) -> Demand:
    """The demand after a look that found no data: what was wanted is forgotten in its time, and nothing is missed."""
    looks = _recent(before, now_s)
    return replace(before, looks=looks, shortfall=before.shortfall if looks else 0.0)


def bounded(before: Demand, most: int, now_s: float) -> Demand:
    """The demand beside what the service may have."""
    wanted = before.wanted
    if wanted is None or wanted <= most:
        return replace(before, capped_since_s=None)
    return before if before.capped_since_s is not None else replace(before, capped_since_s=now_s)


def shortfall(window: Observation, percentile: float, tpot_s: float | None, ttft_s: float | None) -> float:
    """How far a window misses the objectives: 0 if it meets them, 0.5 if a time is half as long again as it may be."""
    missed = [0.0]
    for found, objective_s in ((window.tpot, tpot_s), (window.ttft, ttft_s)):
        slow_s = found.quantile(percentile)
        if objective_s is not None and slow_s is not None:
            missed.append(slow_s / objective_s - 1.0)
    return max(missed)


def _recent(before: Demand, now_s: float) -> tuple[tuple[float, int], ...]:
    return tuple(look for look in before.looks if now_s - LOOK_BACK_S < look[0] <= now_s)
