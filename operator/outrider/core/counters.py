"""Counters and gauges over a window: increases across restarts, and what one engine showed at each moment.

A counter is never negative; a sample that is NaN, infinite or negative is no sample (a scrape may hold them).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from outrider.core.series import Series

Samples = tuple[tuple[float, float], ...]
"""``(time_s, value)`` in ascending order of time."""

_INFINITY = float("inf")


def increase(samples: Samples, since_s: float, until_s: float, restarts: Sequence[float] = ()) -> float | None:
    """How much a counter rose in ``(since_s, until_s]``; None with fewer than two samples to compare.

    The base is the last sample at or before ``since_s``, so that neighbouring windows neither lose nor repeat a step. A
    value that falls, or one of ``restarts`` (moments) between two samples, means that the counter began again at zero:
    the second also catches a counter that has overtaken its old value by the next scrape.
    """
    first = max(0, bisect_right(samples, (since_s, _INFINITY)) - 1)
    while first > 0 and not 0.0 <= samples[first][1] < _INFINITY:
        first -= 1
    total, pairs, before_s, before = 0.0, 0, 0.0, -1.0
    for after_s, after in samples[first:]:
        if after_s > until_s:
            break
        if not 0.0 <= after < _INFINITY:  # NaN compares as false
            continue
        if before >= 0.0:
            restarted = after < before or (restarts and any(before_s < moment <= after_s for moment in restarts))
            total += after if restarted else after - before
            pairs += 1
        before_s, before = after_s, after
    return total if pairs else None


def changes(samples: Samples) -> list[float]:
    """Moments of the samples whose value differs from the one before.

    Of a series that tells when something began (a process, a counter), these are the first scrapes after it began anew.
    The value itself is of no use here: it is a time of the engine's clock, and samples carry times of the store's.
    """
    return [after_s for (_, before), (after_s, after) in pairwise(samples) if after != before]


def with_beginnings(family: Sequence[Series]) -> Sequence[Series]:
    """One engine's series of a counter with labels; those that appeared between two scrapes begin at zero before.

    A client shows a label's counter from its first count on: without its zero the steps of a K that runs for the first
    time are lost up to the next scrape. It appeared if others of the family have a sample at the very moment of its
    first one, hence from the same scrape, and one before. All of a family that begin together were cut off by the query
    or came with the engine, and what they counted before is not known to belong here.
    """
    begins = {one.samples[0][0]: one.samples for one in family}
    if len(begins) < 2:
        return family
    before_s = {moment: _before(moment, begins.values()) for moment in begins}
    return [_from_zero(one, before_s[one.samples[0][0]]) for one in family]


def _before(moment: float, others: Iterable[Samples]) -> float | None:
    """When the scrape was before that of a moment, by one of the series that have samples of both."""
    for samples in others:
        index = bisect_left(samples, (moment,))
        if 0 < index < len(samples) and samples[index][0] == moment:
            return samples[index - 1][0]
    return None


def _from_zero(one: Series, since_s: float | None) -> Series:
    return one if since_s is None else replace(one, samples=((since_s, 0.0), *one.samples))


def increase_once(tellers: Iterable[tuple[Samples, Sequence[float]]], since_s: float, until_s: float) -> float | None:
    """Increase of one counter that several series, each with its restarts, may tell of; None if none of them can.

    Series that follow one another are incarnations of an engine (a pod that was replaced under its name) and add up.
    Series that overlap in time say the same twice (two scrape jobs, two processes of one server) and count once.
    """
    total: float | None = None
    cluster_end_s, highest = -_INFINITY, 0.0
    for samples, restarts in sorted(tellers, key=lambda teller: teller[0][0][0]):
        risen = increase(samples, since_s, until_s, restarts)
        if risen is None:
            continue
        if samples[0][0] > cluster_end_s:
            total, highest = (total or 0.0) + risen, risen
        elif risen > highest:
            total, highest = (total or 0.0) + risen - highest, risen
        cluster_end_s = max(cluster_end_s, samples[-1][0])
    return total


def gauge(series: Iterable[Series], since_s: float, until_s: float) -> Samples:
    """What one engine's gauge showed in ``(since_s, until_s]``, by moment.

    Of several series with a sample at one moment (a label for each process of a server) the highest is taken.
    """
    highest: dict[float, float] = {}
    for one in series:
        for time_s, value in one.samples:
            if since_s < time_s <= until_s and 0.0 <= value < _INFINITY:
                highest[time_s] = max(value, highest.get(time_s, 0.0))
    return tuple(sorted(highest.items()))
