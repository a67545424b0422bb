"""What is known of the GPU quota of a namespace, and of each service's share of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.core.budget import Gain, Shares

BudgetKey = tuple[str, str]
"""Namespace and GPU resource."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What a namespace's ResourceQuotas leave to engines of one GPU resource."""

    name: str
    """Of the ResourceQuota that leaves least."""
    hard: int
    others: int
    """Held by pods that are no replicas: those of others, and of candidates."""

    @property
    def gpus(self) -> int:
        """That engines may have together."""
        return max(0, self.hard - self.others)


@dataclass(frozen=True, slots=True)
class Shared:
    """Shares in force, and since when."""

    shares: Shares
    changed_s: float


@dataclass(frozen=True, slots=True)
class Share:
    """One service's part of a quota, and what an operator that starts again has to know of it."""

    most: int
    """Replicas."""
    disputed_since_s: float | None = None
    gain: Gain | None = None
    words: str = field(default="", compare=False)
    """The quota, and what the others have of it."""
