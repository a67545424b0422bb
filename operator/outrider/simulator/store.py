"""A metrics store in virtual time: it scrapes engines and hands out windows with the labels that Prometheus adds."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from outrider.core import engine_metrics as names
from outrider.core.series import Series
from outrider.simulator.metrics import Exposition, Family

_HISTOGRAMS = names.TPOT + names.TTFT + names.E2E_LATENCY + names.ITERATION_TOKENS
STORED: frozenset[str] = frozenset(
    name for family in vars(names).values() if isinstance(family, tuple) for name in family
) | frozenset(name + suffix for name in _HISTOGRAMS for suffix in ("_bucket", "_sum", "_count"))
"""What is kept: every name that the operator knows."""


@dataclass(slots=True)
class _Track:
    """One series, oldest sample first."""

    name: str
    labels: Mapping[str, str]
    samples: list[tuple[float, float]] = field(default_factory=list)


@dataclass(slots=True)
class _Target:
    """What is read of one engine, and where it goes. None instead of a track: not kept."""

    exposition: Exposition
    num_cells: int
    sources: list[tuple[Family, list[_Track | None]]]


class MetricsStore:
    """Samples by series, for as long as ``retention_s``."""

    def __init__(self, retention_s: float = 600.0, stored: Collection[str] = STORED) -> None:
        self._retention_s = retention_s
        self._stored = stored
        self._tracks: dict[tuple[str, ...], _Track] = {}
        self._targets: dict[str, _Target] = {}

    def scrape(self, exposition: Exposition, pod_labels: Mapping[str, str], now_s: float) -> None:
        """Take every stored sample of one engine at this moment."""
        target = self._targets.get(pod_labels["pod_uid"])
        if target is None or (target.exposition, target.num_cells) != (exposition, exposition.num_cells):
            target = self._target(exposition, pod_labels)
        for family, tracks in target.sources:
            for track, value in zip(tracks, family.read(now_s), strict=True):
                if track is not None:
                    track.samples.append((now_s, float(value)))

    def window(self, since_s: float, until_s: float) -> list[Series]:
        """Every series with samples in the closed window, oldest pod first."""
        self._forget(until_s - self._retention_s)
        found = []
        for track in self._tracks.values():
            samples = track.samples
            first, last = bisect_left(samples, (since_s,)), bisect_right(samples, (until_s, math.inf))
            if first < last:
                found.append(Series(track.name, track.labels, tuple(samples[first:last])))
        return found

    def total(self, aliases: Collection[str], pods: Collection[str], since_s: float) -> float | None:
        """Sum over pods (by uid) of the newest value not older than ``since_s``; None if there is none at all."""
        newest = [
            track.samples[-1][1]
            for key, track in self._tracks.items()
            if key[0] in pods and track.name in aliases and track.samples and track.samples[-1][0] >= since_s
        ]
        return sum(newest) if newest else None

    def rate(self, aliases: Collection[str], pods: Collection[str], since_s: float) -> float | None:
        """Growth a second of a counter, added up over pods (by uid), between the first and the last sample of each that
        is not older than ``since_s``; None where no pod has two."""
        rates = []
        for key, track in self._tracks.items():
            if key[0] in pods and track.name in aliases:
                kept = track.samples[bisect_left(track.samples, (since_s,)) :]
                if len(kept) > 1:
                    rates.append((kept[-1][1] - kept[0][1]) / (kept[-1][0] - kept[0][0]))
        return sum(rates) if rates else None

    def _target(self, exposition: Exposition, pod_labels: Mapping[str, str]) -> _Target:
        pod = pod_labels["pod_uid"]
        sources: list[tuple[Family, list[_Track | None]]] = []
        for family in exposition.families(self._stored):
            tracks: list[_Track | None] = []
            for name, labels in family.samples:
                key = (pod, name, *labels.values())
                if name in self._stored and key not in self._tracks:
                    self._tracks[key] = _Track(name, {**labels, **pod_labels, "__name__": name})
                tracks.append(self._tracks.get(key))
            sources.append((family, tracks))
        target = self._targets[pod] = _Target(exposition, exposition.num_cells, sources)
        return target

    def _forget(self, before_s: float) -> None:
        gone = set()
        for key, track in list(self._tracks.items()):
            del track.samples[: bisect_left(track.samples, (before_s,))]
            if not track.samples:
                del self._tracks[key]
                gone.add(key[0])
        for pod in gone:
            self._targets.pop(pod, None)
