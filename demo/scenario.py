"""What is played: the load by time, the drop in acceptance, and how the surroundings are set. Values only.

Every length is a share of the live part, so that a shorter demo plays the same story. Constants say what they are
chosen for; the summary repeats them, so that nobody takes the scaled card for a real one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt

from outrider.simulator.request import Request
from outrider.simulator.workload import (
    Arrival,
    Phase,
    conversation_trace,
    fitted,
    geometric,
    poisson,
    read_trace,
    with_phases,
)

NAMESPACE = "ml"
SERVICE = "chat"
"""The service of ``examples/01-minimal.yaml``; all headline numbers are about it."""
SECOND_SERVICE = "code"
"""The service of ``demo/second-service.yaml``: another policy, a light and steady load."""

DILATION = 4.0
"""The simulated card is so many times slower than the measured H100: two cores can then play a fleet that is busy."""
CONTROL_PERIOD_S = 5.0
SCRAPE_INTERVAL_S = 1.0
"""A third of the operator's own periods, or less: a story of five minutes has no room for 15 s."""
SCALE_DOWN_STABILIZATION_S = 30
"""Half a minute: peaks of load are then kept for one as well, and replicas go before the end."""
HPA_SYNC_S = 3.0
KEDA_POLLING_S = 15.0
"""How old the load may be that the autoscaler sees: KEDA's polling interval in the operator's ScaledObject."""
POD_START_S = 2.0
"""From a pod's creation to its readiness on the local cluster, where nothing is loaded."""

MAX_MODEL_LENGTH = 8192
POSITIONS = 8
"""Acceptance is given for so many draft positions; services of the demo draft fewer."""
ACCEPTANCE_BEFORE, ACCEPTANCE_AFTER = 0.8, 0.3
"""Conditional acceptance of each draft token: a drafter that fits its traffic, and one that no longer does."""
SECOND_ACCEPTANCE = 0.9

SHAPE: tuple[tuple[float, float], ...] = ((0.0, 3.0), (0.15, 3.0), (0.3, 8.0), (0.58, 8.0), (0.64, 1.0), (1.0, 1.0))
"""Requests a second by share of the live part, linear between the points: one dilated replica carries about four."""
DROP_SHARE = 0.42
"""When acceptance drops, as a share of the live part: amid the high load, after the first target was found."""
SECOND_RATE_RPS = 0.5
SECOND_TOKENS = (400, 200)
"""Prompt and output tokens of the second service's requests."""
SHORTEST_S, DEFAULT_S = 240.0, 320.0
"""A shorter live part leaves no quiet minute between a schedule change and a change of the target."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One story, made repeatable by its seed."""

    seconds: float = DEFAULT_S
    seed: int = 0
    shape: tuple[tuple[float, float], ...] = SHAPE

    @property
    def drop_s(self) -> float:
        """When acceptance drops, seconds from the start."""
        return DROP_SHARE * self.seconds

    def points(self) -> list[tuple[float, float]]:
        """The load's shape as (seconds, requests a second)."""
        return [(share * self.seconds, rate) for share, rate in self.shape]

    def rate_at(self, time_s: float) -> float:
        """Requests a second that the shape asks for at a moment."""
        points = self.points()
        for (start_s, before), (end_s, after) in pairwise(points):
            if time_s < end_s:
                return before + (after - before) * (time_s - start_s) / (end_s - start_s)
        return points[-1][1]

    def acceptance_at(self, time_s: float) -> float:
        """Conditional acceptance of the requests that arrive at a moment."""
        return ACCEPTANCE_BEFORE if time_s < self.drop_s else ACCEPTANCE_AFTER

    def phase(self, time_s: float) -> str:
        """What is being played at a moment, in a few words."""
        rising = self.rate_at(time_s + 0.03 * self.seconds) - self.rate_at(time_s)
        load = "load rises" if rising > 0.1 else "load falls" if rising < -0.1 else "steady load"
        drafts = "the drafter fits" if time_s < self.drop_s else "acceptance has dropped"
        return f"{load}, {drafts}"

    def requests(self) -> list[Request]:
        """The main service's requests, with the acceptance of the moment at which they arrive."""
        warped = warp(read_trace(conversation_trace()), self.points(), offset_s=_offset_s(self.seed))
        phases = [
            Phase(0.0, geometric(ACCEPTANCE_BEFORE, POSITIONS)),
            Phase(self.drop_s, geometric(ACCEPTANCE_AFTER, POSITIONS)),
        ]
        return list(fitted(with_phases(warped, phases), MAX_MODEL_LENGTH))

    def second_requests(self) -> list[Request]:
        """The second service's requests."""
        prompt, output = SECOND_TOKENS
        arrivals = poisson(SECOND_RATE_RPS, self.seconds, prompt_tokens=prompt, output_tokens=output, seed=self.seed)
        return list(with_phases(arrivals, [Phase(0.0, geometric(SECOND_ACCEPTANCE, POSITIONS))]))


def warp(
    trace: Sequence[Arrival], points: Sequence[tuple[float, float]], *, offset_s: float = 0.0
) -> Iterator[Request]:
    """Replay a trace at a rate that follows ``points`` (seconds, requests a second; linear between them).

    The trace's own time is stretched and squeezed so that its mean rate becomes the wanted one at each moment: bursts
    and lulls stay, and so do the lengths. ``offset_s`` is where in the trace to begin.
    """
    mean_rps = len(trace) / trace[-1].time_s
    start, sums = [time_s for time_s, _ in points], [0.0]
    for (before_s, before), (after_s, after) in pairwise(points):
        sums.append(sums[-1] + (after_s - before_s) * (before + after) / 2)
    for number, arrival in enumerate(trace):
        wanted = (arrival.time_s - offset_s) * mean_rps
        if wanted < 0:
            continue
        if wanted >= sums[-1]:
            return
        leg = bisect_right(sums, wanted) - 1
        time_s = start[leg] + _time_within(points[leg], points[leg + 1], wanted - sums[leg])
        yield Request(f"r{number}", time_s, max(1, arrival.prompt_tokens), max(1, arrival.output_tokens))


def _time_within(begin: tuple[float, float], end: tuple[float, float], arrivals: float) -> float:
    """Seconds from the leg's beginning until the integral of its linear rate reaches so many arrivals."""
    seconds, slope = end[0] - begin[0], (end[1] - begin[1]) / (end[0] - begin[0])
    if abs(slope) < 1e-9:
        return min(seconds, arrivals / begin[1])
    root = max(0.0, begin[1] ** 2 + 2 * slope * arrivals)
    return min(seconds, (sqrt(root) - begin[1]) / slope)


def _offset_s(seed: int) -> float:
    """Another part of the hour for each seed: five minutes further on, from the start again after nine.

    The first two minutes of the trace are thinner than the rest and left out.
    """
    return 120.0 + 300.0 * (seed % 9)


def steady(scenario: Scenario, rate_rps: float, seconds: float) -> list[Request]:
    """The main service's traffic before the drop at one rate, for load tests."""
    flat = replace(scenario, seconds=seconds, shape=((0.0, rate_rps), (1.0, rate_rps)))
    trace = warp(read_trace(conversation_trace()), flat.points(), offset_s=_offset_s(scenario.seed))
    before = [Phase(0.0, geometric(ACCEPTANCE_BEFORE, POSITIONS))]
    return list(fitted(with_phases(trace, before), MAX_MODEL_LENGTH))
