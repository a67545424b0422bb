"""Which engine processes a metrics store has seen: the series of pods, cut where a process ended and another began.

An engine process is told by its pod's UID and the time at which it says to have started, both from its own series. So
the processes of an hour ago are found as they were found then, by whoever asks the store again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

from outrider.core import engine_metrics as names
from outrider.core.series import Series

TRACK, REVISION = "serving_outrider_dev_track", "serving_outrider_dev_revision"
"""Labels of pods as Prometheus spells them."""
CANDIDATE = "candidate"


@dataclass(frozen=True, slots=True)
class Process:
    """One engine process and its series."""

    name: str
    """Unlike that of any other: the pod's UID, ``@`` and the start of the process."""
    pod: str
    """UID of its pod; the pod's name where a scrape does not tell the UID."""
    candidate: bool
    revision: str
    """Empty where a scrape does not tell."""
    series: tuple[Series, ...]


def processes(series: Iterable[Series]) -> list[Process]:
    """All processes with samples, in order of their first one; those that export no engine metrics are none.

    A server of several processes tells no start: its pod then counts as one process, and restarts are found within
    windows alone.
    """
    by_pod: dict[str, list[Series]] = defaultdict(list)
    for one in series:
        by_pod[one.labels.get("pod_uid") or one.labels.get("pod", "")].append(one)
    found = [(first_s, one) for pod, own in by_pod.items() for first_s, one in _of_pod(pod, own)]
    return [one for _, one in sorted(found, key=lambda pair: (pair[0], pair[1].name))]


def _of_pod(pod: str, series: Sequence[Series]) -> list[tuple[float, Process]]:
    engine = [one for one in series if one.name in names.GENERATION_TOKENS]
    if not engine:
        return []
    labels, starts = engine[0].labels, _starts(series, engine)
    lives = [
        (start, _between(series, begin_s, end_s)) for (begin_s, start), (end_s, _) in pairwise([*starts, (inf, 0.0)])
    ]
    return [
        (
            min(one.samples[0][0] for one in own),
            Process(
                name=f"{pod}@{start:.0f}",
                pod=pod,
                candidate=labels.get(TRACK) == CANDIDATE,
                revision=labels.get(REVISION, ""),
                series=own,
            ),
        )
        for start, own in lives
        if own
    ]


def _starts(series: Sequence[Series], engine: Sequence[Series]) -> list[tuple[float, float]]:
    """When each process was first scraped, and its start by its own clock; from before all time on, the first.

    A pod may run other processes beside the engine, and a server several: one that exports engine metrics stands for
    all.
    """
    instances = {one.labels.get("instance", "") for one in engine}
    telling = [
        one
        for aliases in (names.PROCESS_START, names.CREATED)
        for one in sorted(series, key=lambda one: (one.labels.get("instance", ""), -len(one.samples)))
        if one.name in aliases and one.labels.get("instance", "") in instances
    ]
    if not telling:
        return [(-inf, 0.0)]
    samples = telling[0].samples
    changed = [(after_s, after) for (_, before), (after_s, after) in pairwise(samples) if after != before]
    return [(-inf, samples[0][1]), *changed]


def _between(series: Sequence[Series], begin_s: float, end_s: float) -> tuple[Series, ...]:
    """The samples from ``begin_s`` on and before ``end_s``."""
    if (begin_s, end_s) == (-inf, inf):
        return tuple(series)
    found = []
    for one in series:
        first, last = bisect_left(one.samples, (begin_s,)), bisect_left(one.samples, (end_s,))
        if first < last:
            found.append(replace(one, samples=one.samples[first:last]))
    return tuple(found)
