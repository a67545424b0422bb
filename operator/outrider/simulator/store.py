"""A metrics store in virtual time: it scrapes engines and hands out windows with the labels that Prometheus adds."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from outrider.core import engine_metrics as names
from outrider.core.series import Series
from outrider.simulator.metrics import Exposition

_HISTOGRAMS = names.TPOT + names.TTFT + names.E2E_LATENCY + names.ITERATION_TOKENS
STORED: frozenset[str] = frozenset(
    name for family in vars(names).values() if isinstance(family, tuple) for name in family
) | frozenset(name + suffix for name in _HISTOGRAMS for suffix in ("_bucket", "_sum", "_count"))
"""What is kept: every name that the operator knows."""


@dataclass(slots=True)
class _Track:
    name: str
    labels: Mapping[str, str]
    samples: deque[tuple[float, float]] = field(default_factory=deque)


class MetricsStore:
    """Samples by series, for as long as ``retention_s``."""

    def __init__(self, retention_s: float = 600.0, stored: Collection[str] = STORED) -> None:
        self._retention_s = retention_s
        self._stored = stored
        self._tracks: dict[tuple[str, ...], _Track] = {}

    def scrape(self, exposition: Exposition, pod_labels: Mapping[str, str], now_s: float) -> None:
        """Take every stored sample of one engine at this moment."""
        pod = pod_labels["pod_uid"]
        for name, labels, value in exposition.samples(now_s, self._stored):
            key = (pod, name, *labels.values())
            track = self._tracks.get(key)
            if track is None:
                track = self._tracks[key] = _Track(name, {**labels, **pod_labels, "__name__": name})
            track.samples.append((now_s, value))

    def window(self, since_s: float, until_s: float) -> list[Series]:
        """Every series with samples in the closed window, oldest pod first."""
        self._forget(until_s - self._retention_s)
        found = []
        for track in self._tracks.values():
            samples = tuple(sample for sample in track.samples if since_s <= sample[0] <= until_s)
            if samples:
                found.append(Series(track.name, track.labels, samples))
        return found

    def total(self, aliases: Collection[str], pods: Collection[str], since_s: float) -> float | None:
        """Sum over pods (by uid) of the newest value not older than ``since_s``; None if there is none at all."""
        newest = [
            track.samples[-1][1]
            for key, track in self._tracks.items()
            if key[0] in pods and track.name in aliases and track.samples and track.samples[-1][0] >= since_s
        ]
        return sum(newest) if newest else None

    def _forget(self, before_s: float) -> None:
        for key, track in list(self._tracks.items()):
            while track.samples and track.samples[0][0] < before_s:
                track.samples.popleft()
            if not track.samples:
                del self._tracks[key]
