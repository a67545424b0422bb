"""When something happens in a replay, and what: arrivals, faults, and the periods of scrapes, control and scaling."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

from outrider.simulator.faults import Fault, moments_s
from outrider.simulator.request import Request

# What happens first at one moment: the scrape sees the arrivals before it, control and scaling see the scrape.
FAULT, ARRIVAL, SCRAPE, CONTROL, BETWEEN, SCALE = range(6)
"""``BETWEEN`` is nothing of one fleet's own: several of them have decided, and none has scaled yet."""

Moment = tuple[float, int, Request | None]
"""Seconds, what happens, and the request that arrives."""


def moments(
    requests: Iterable[Request], duration_s: float, faults: Sequence[Fault], periods_s: dict[int, float], end_s: float
) -> Iterator[Moment]:
    """All of one fleet in their order: requests that arrive within ``duration_s``, and by rank what comes in periods,
    until ``end_s``."""
    arrivals = ((request.arrival_s, ARRIVAL, request) for request in requests if request.arrival_s < duration_s)
    disturbed = ((moment_s, FAULT, None) for moment_s in moments_s(faults))
    periods = (every(what, period_s, end_s) for what, period_s in periods_s.items())
    return heapq.merge(arrivals, disturbed, *periods, key=lambda moment: moment[:2])


def every(what: int, period_s: float, until_s: float) -> Iterator[Moment]:
    """A period's moments; the first one is not at 0."""
    count = 1
    while count * period_s <= until_s:
        yield count * period_s, what, None
        count += 1
