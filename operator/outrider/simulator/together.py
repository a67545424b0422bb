"""Several services in one virtual time: each fleet takes its own steps, and none is ahead of another."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

from outrider.simulator.fleet import Fleet
from outrider.simulator.moments import BETWEEN, every
from outrider.simulator.request import Request


def run_together(
    fleets: Mapping[str, Fleet],
    requests: Mapping[str, Iterable[Request]],
    duration_s: float,
    between: Callable[[float], None],
) -> None:
    """Replay all fleets, by name, until each has its result.

    ``between`` is called with the time once in each control period, when all have decided and no autoscaler has had its
    turn; the fleets' periods and tails must be the same.
    """
    configs = [fleet.config for fleet in fleets.values()]
    period_s, end_s = _only([one.control_s for one in configs]), duration_s + _only([one.tail_s for one in configs])
    steps = [fleet.steps(requests[name], duration_s) for name, fleet in fleets.items()]
    shared = ((now_s, what) for now_s, what, _ in every(BETWEEN, period_s, end_s))
    # A step is given before it is done, and done when the next one of its fleet is asked for: merged by time, each is
    # done before any later one of another fleet is given.
    for now_s, what in heapq.merge(*steps, shared):
        if what == BETWEEN:
            between(now_s)


def _only(values: Sequence[float]) -> float:
    assert len(set(values)) == 1, f"fleets with periods or tails of their own: {values}"
    return values[0]
