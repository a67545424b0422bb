"""What goes wrong in a replayed service, and a policy must survive. Times are seconds of the replay."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from outrider.simulator.step_times import Slowdown


@dataclass(frozen=True, slots=True)
class MetricsOutage:
    """No scrape succeeds; the engines go on."""

    from_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class SlowReplica:
    """One replica's steps take ``factor`` times as long: a throttled card, a noisy neighbour."""

    replica: int
    """Its number, in the order of creation from 0."""
    factor: float
    from_s: float = 0.0
    until_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Collapse:
    """On every replica, steps that draft this K take ``factor`` times as long (vLLM issue 49548: a fault of one K)."""

    num_speculative_tokens: int
    factor: float
    from_s: float = 0.0
    until_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Restart:
    """The engine's process ends and starts again in the same pod.

    What it has in flight is aborted; all counters start at 0; it boots anew and is ready after the usual time.
    """

    replica: int
    """Its number, in the order of creation from 0; nothing happens if that one is gone or starting."""
    at_s: float


Fault = MetricsOutage | SlowReplica | Collapse | Restart


def moments_s(faults: Iterable[Fault]) -> list[float]:
    """When something changes, ascending."""
    found: set[float] = set()
    for fault in faults:
        found |= {fault.at_s} if isinstance(fault, Restart) else {fault.from_s, fault.until_s}
    return sorted(moment for moment in found if moment < math.inf)


def metrics_out(faults: Iterable[Fault], now_s: float) -> bool:
    """Whether scrapes fail now."""
    return any(isinstance(fault, MetricsOutage) and _lasts(fault, now_s) for fault in faults)


def slowdown(faults: Iterable[Fault], replica: int, now_s: float) -> Slowdown:
    """How much slower than it should a replica is now."""
    every, by_k = 1.0, dict[int, float]()
    for fault in faults:
        if isinstance(fault, SlowReplica) and fault.replica == replica and _lasts(fault, now_s):
            every *= fault.factor
        elif isinstance(fault, Collapse) and _lasts(fault, now_s):
            k = fault.num_speculative_tokens
            by_k[k] = by_k.get(k, 1.0) * fault.factor
    return Slowdown(every, by_k)


def _lasts(fault: MetricsOutage | SlowReplica | Collapse, now_s: float) -> bool:
    return fault.from_s <= now_s < fault.until_s
