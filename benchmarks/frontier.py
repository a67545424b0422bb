"""What a rule with one free number buys: misses over replica-hours, read off between the settings that were played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Frontier:
    """Replica-hours and the share of requests that missed, 0 to 1, of each setting, the fewest hours first.

    A setting that costs more and misses more than another would not be kept, so the least up to each cost counts.
    Between two settings the logarithm of the misses is interpolated (shares fall by factors).
    """

    hours: tuple[float, ...]
    misses: tuple[float, ...]

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]]) -> Frontier:
        """Of pairs of replica-hours and a share of misses above 0, in any order."""
        ordered = sorted(points)
        return cls(
            tuple(hours for hours, _ in ordered),
            tuple(np.minimum.accumulate([misses for _, misses in ordered]).tolist()),
        )

    def spans(self, hours: float) -> bool:
        """Whether there are settings on both sides."""
        return self.hours[0] <= hours <= self.hours[-1]

    def misses_at(self, hours: float) -> float:
        """The share of misses at so many hours; beyond the last setting on either side its own share stands."""
        return float(np.exp(np.interp(hours, self.hours, np.log(self.misses))))

    def hours_at(self, misses: float) -> float:
        """The fewest hours with no more misses than these; the most played if no setting missed as little, and the
        fewest if every one did."""
        if misses < self.misses[-1]:
            return self.hours[-1]
        # Misses fall as hours rise; of several settings with the same misses the cheapest counts.
        pairs: dict[float, float] = {}
        for hours, share in zip(self.hours, self.misses, strict=True):
            pairs.setdefault(share, hours)
        shares = sorted(pairs)
        return float(np.interp(np.log(misses), np.log(shares), [pairs[share] for share in shares]))


def floored(misses: float, num_requests: int) -> float:
    """No share counts as less than one request's: its logarithm must exist."""
    return max(misses, 1.0 / max(1, num_requests))
