"""How far the load of a service rises while a replica is on its way.

The autoscaler answers the highest load it has seen, and its replicas come after `ControllerConfig.lead_s`. So the
question is by how much the highest load of such a time exceeds that of the one before.

Load has risen when both of its signs have, and by the lesser of them: tokens generated a second rise too when the
engines become faster, and requests in flight when they become slower or when a replica goes. What remains hardly
depends on the target, so that a move of the target does not change what moved it.

Rises are squared in logarithms and fade; loads that fall back teach nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log, sqrt

from outrider.core.step_cells import keep_after

HALF_LIFE_S = 3600.0
"""An hour holds some thirty rises of two minutes; the next hour's traffic is like this one's."""
PRIOR_RISE = 0.1
"""Standard deviation of a rise, as a logarithm, before any was seen: what 15 requests a second of chat traffic do by
chance alone."""
PRIOR_TIMES = 10.0
"""Weight of the prior in lead times."""
MAX_RISE = 1.5
"""No room is left for more than half as much again: a service that doubles within minutes is bought by
``minReplicas``, not by idle replicas all day."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The highest of each sign of load in some time, all engines together."""

    load_tps: float = 0.0
    """Tokens generated a second."""
    in_flight: float = 0.0
    """Requests running or waiting."""

    def over(self, other: Peak) -> Peak:
        """The highest of both times."""
        return Peak(max(self.load_tps, other.load_tps), max(self.in_flight, other.in_flight))

    def rise(self, before: Peak) -> float:
        """By which load has risen since, as a logarithm; 0 where it has not, or nothing ran."""
        if min(before.load_tps, before.in_flight, self.load_tps, self.in_flight) <= 0.0:
            return 0.0
        return max(0.0, min(log(self.load_tps / before.load_tps), log(self.in_flight / before.in_flight)))


@dataclass(frozen=True, slots=True)
class Bursts:
    """The peaks of this lead time and of the one before, and what rises there were."""

    since_s: float | None = None
    """When this lead time began."""
    highest: Peak = Peak()
    before: Peak = Peak()
    """Empty before a whole lead time was seen."""
    squares: float = 0.0
    """Discounted sum of squared rises, as logarithms."""
    times: float = 0.0
    """Discounted number of lead times."""

    @property
    def recent(self) -> Peak:
        """The peak of this lead time and the one before."""
        return self.highest.over(self.before)

    def rise(self, sigmas: float) -> float:
        """The factor that load may rise by while a replica comes, at so many standard deviations; 1 to `MAX_RISE`."""
        # Only rises were counted, and half of all moves are falls: hence twice.
        squares = 2.0 * self.squares + PRIOR_TIMES * PRIOR_RISE**2
        return min(MAX_RISE, exp(sigmas * sqrt(squares / (self.times + PRIOR_TIMES))))


def outdated(state: Bursts, now_s: float, lead_s: float) -> bool:
    """Whether nothing was seen for so long that the peaks say nothing of the present load."""
    return state.since_s is None or now_s - state.since_s >= 3.0 * lead_s


def update(state: Bursts, now: Peak, now_s: float, lead_s: float) -> Bursts:
    """Add what was seen since the last call, up to ``now_s``."""
    if outdated(state, now_s, lead_s):
        return replace(state, since_s=now_s, highest=now, before=Peak())
    assert state.since_s is not None
    if now_s - state.since_s < lead_s:
        return replace(state, highest=state.highest.over(now))
    keep, squares, times = keep_after(now_s - state.since_s, HALF_LIFE_S), state.squares, state.times
    if state.before != Peak():
        squares, times = keep * squares + state.highest.rise(state.before) ** 2, keep * times + 1.0
    return Bursts(now_s, now, state.highest, squares, times)
