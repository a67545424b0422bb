"""A histogram's window: observations by bucket, and what can be read from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outrider.core.engine_reader import EngineReader, number


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observations of a window: ``buckets`` are ``(upper bound, cumulative count)``, ascending, the last bound
    infinite."""

    count: float = 0.0
    sum: float = 0.0
    buckets: tuple[tuple[float, float], ...] = ()

    @property
    def mean(self) -> float | None:
        """None without observations."""
        return self.sum / self.count if self.count > 0 else None

    def quantile(self, share: float) -> float | None:
        """Interpolated within its bucket; the last finite bound if it lies beyond; None without observations."""
        if self.count <= 0 or not self.buckets:
            return None
        rank = share * self.buckets[-1][1]
        lower, below = 0.0, 0.0
        for upper, cumulative in self.buckets:
            if cumulative >= rank and cumulative > below:
                return (
                    lower if upper == float("inf") else lower + (upper - lower) * (rank - below) / (cumulative - below)
                )
            lower, below = (lower if upper == float("inf") else upper), cumulative
        return lower

    def share_at_most(self, bound: float) -> float | None:
        """Share of observations up to ``bound``, interpolated within its bucket; None without observations."""
        if self.count <= 0 or not self.buckets:
            return None
        lower, below, total = 0.0, 0.0, self.buckets[-1][1]
        for upper, cumulative in self.buckets:
            if bound < upper:
                within = 0.0 if upper == float("inf") else (bound - lower) / (upper - lower)
                return (below + (cumulative - below) * within) / total
            lower, below = upper, cumulative
        return 1.0


def read_histogram(readers: Sequence[EngineReader], aliases: Sequence[str]) -> Histogram:
    """The observations of all engines; buckets are added up, so that a quantile is one of all requests."""
    buckets: dict[float, float] = defaultdict(float)
    for reader in readers:
        for bound, count in reader.increases(aliases, _bound, "_bucket").items():
            buckets[bound] += count
    return Histogram(
        count=sum(reader.increase(aliases, "_count") or 0.0 for reader in readers),
        sum=sum(reader.increase(aliases, "_sum") or 0.0 for reader in readers),
        buckets=tuple(sorted(buckets.items())),
    )


def _bound(labels: Mapping[str, str]) -> float | None:
    return number(labels.get("le", ""))
