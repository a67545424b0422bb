"""How several services share a number of GPUs: the most replicas that each may have, by need, weight and missed
objectives.

Highest averages: GPUs go replica by replica to the service with the strongest claim for what it would then have. A
claim is the service's weight, raised by how far its users' objectives are missed, over its GPUs. So shares are in
proportion to claims where all are short; whoever needs less than its share leaves the rest to the others.

A replica that runs is taken away only for one that is needed more, only after that has been so for `SETTLE_S`, and one
at a time: loads come and go within minutes, and a model takes as long to load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

SETTLE_S = 600.0
"""For how long a running replica must be needed more elsewhere before it goes, and the time between two: longer than
most models take to load, so that each move shows before the next."""
MAX_SHORTFALL = 1.0
"""Objectives that are missed by more than this share count as missed by it: a service that cannot meet its objectives
with any number of replicas must not take all GPUs."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one service has and asks for; replicas are whole numbers, 0 or above."""

    name: str
    gpus: int
    """Of one replica, 1 or more."""
    least: int
    most: int
    wanted: int
    """Replicas that its load needs."""
    present: int
    """Replicas that it runs."""
    weight: float = 1.0
    """Above 0; twice the weight, twice the share where all are short."""
    shortfall: float = 0.0
    """How far its objectives are missed: 0 if they are met, 0.5 if times are half as long again as they may be."""

    def strength(self, replicas: int) -> float:
        """Of the claim to this many replicas."""
        return self.weight * (1.0 + min(max(self.shortfall, 0.0), MAX_SHORTFALL)) / (self.gpus * replicas)

    @property
    def need(self) -> int:
        """Replicas that its load needs and its own bounds allow."""
        return min(max(self.wanted, self.least), self.most)

    @property
    def held(self) -> int:
        """Replicas that run, within its bounds."""
        return min(max(self.present, self.least), self.most)


@dataclass(frozen=True, slots=True)
class Shares:
    """The most replicas that each service may have, by name."""

    most: Mapping[str, int]
    disputed_since_s: float | None = None
    """Since when somebody is short of what another one holds beyond its share; None if nobody is."""
    reason: str = ""
    """Why a running replica goes, if one does."""


def fair(claims: Sequence[Claim], gpus: int) -> dict[str, int]:
    """Shares of a budget that nobody has used yet, in replicas.

    The least that services ask for comes first, even beyond the budget: it is their owners' word. Then each that needs
    any gets one, then all get what they need, and what is left is room for bursts.
    """
    shares = {one.name: one.least for one in claims}
    for bound in (lambda one: min(1, one.need), lambda one: one.need, _most):
        _give(claims, gpus, shares, bound)
    return shares


def shared(before: Shares | None, claims: Sequence[Claim], gpus: int, now_s: float) -> Shares:
    """The shares of this moment; ``before`` are those of the last one."""
    goal = fair(claims, gpus)
    held = {one.name: one.held for one in claims}
    if _used(claims, held) > gpus:  # the budget shrank, or others were quicker than it: its owner's word
        held = {one.name: min(held[one.name], max(goal[one.name], one.least)) for one in claims}
    most = dict(held)
    _give(claims, gpus, most, lambda one: min(goal[one.name], one.need))  # needs before room for bursts
    short = [one for one in claims if most[one.name] < min(goal[one.name], one.need)]
    donors = [one for one in claims if held[one.name] > goal[one.name]]
    if not short or not donors:
        _give(claims, gpus, most, _most)
        return Shares(most)
    # What is free now is kept for whoever is short, who may need several GPUs at once.
    since_s = now_s if before is None or before.disputed_since_s is None else before.disputed_since_s
    if now_s < since_s + SETTLE_S:
        return Shares(most, since_s)
    donor = min(donors, key=lambda one: (one.strength(held[one.name]), one.name))
    receiver = max(short, key=lambda one: (one.strength(most[one.name] + 1), one.name))
    reason = f"{donor.name} gives up a replica of {held[donor.name]}: {receiver.name} needs it more"
    return Shares({**most, donor.name: held[donor.name] - 1}, now_s, reason)


def _most(one: Claim) -> int:
    return one.most


def _give(claims: Sequence[Claim], gpus: int, shares: dict[str, int], bound: Callable[[Claim], int]) -> None:
    """Replica by replica to the strongest claim below its bound that still fits."""
    left = gpus - _used(claims, shares)
    while True:
        open_ = [one for one in claims if shares[one.name] < bound(one) and one.gpus <= left]
        if not open_:
            return
        one = max(open_, key=lambda one: (one.strength(shares[one.name] + 1), one.name))
        shares[one.name] += 1
        left -= one.gpus


def _used(claims: Sequence[Claim], shares: Mapping[str, int]) -> int:
    return sum(one.gpus * shares[one.name] for one in claims)
