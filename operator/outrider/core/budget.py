"""How several services share a number of GPUs: the most replicas that each may have, by need, weight and missed
objectives.

Highest averages: GPUs go replica by replica to the service with the strongest claim for what it would then have. A
claim is the service's weight, raised by how far its users' objectives are missed, over its GPUs. So shares are in
proportion to claims where all are short; whoever needs less than its share leaves the rest to the others.

A replica that runs is taken away only for one that is needed more, only after that has been so for `SETTLE_S`, and one
at a time: loads come and go within minutes, and a model takes as long to load. Whoever got one so keeps it for as long
again, and for twice as long each time that it went back: an objective that is met with it and missed without it would
else carry it to and fro for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

SETTLE_S = 600.0
"""For how long a running replica must be needed more elsewhere before it goes, and the time between two: longer than
most models take to load, so that each move shows before the next."""
PACE = 0.1
"""Of `SETTLE_S`, a minute: the wait for somebody who has no replica at all, and between two replicas that go since the
budget shrank, so that each can finish its requests."""
MARGIN = 1.1
"""A running replica goes to a claim that is stronger by a tenth, the dead band of targets."""
MAX_SHORTFALL = 1.0
"""Objectives that are missed by more than this share count as missed by it: a service that cannot meet its objectives
with any number of replicas must not take all GPUs."""
HEADROOM = 4
"""Who needs more than it might have gets a quarter more than it needs, so that a rising load is not followed replica
by replica."""
MOST_TURNS = 5
"""A replica is kept for `SETTLE_S` times two to this power at most, five hours; after four times that without another
turn its going to and fro is forgotten."""


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
class Gain:
    """That a service got a replica which another one had to give up."""

    at_s: float
    turns: int = 0
    """How often it has given one up after such a gain."""

    def kept_s(self, settle_s: float) -> float:
        """Until when it gives none up for a claim that is only stronger."""
        return self.at_s + settle_s * 2.0 ** min(self.turns, MOST_TURNS)


@dataclass(frozen=True, slots=True)
class Shares:
    """The most replicas that each service may have, by name, and what the next sharing has to know of this one."""

    most: Mapping[str, int]
    disputed_since_s: float | None = None
    """Since when somebody is short of what another one holds beyond its share; None if nobody is."""
    gains: Mapping[str, Gain] = field(default_factory=dict)
    """By name of who gained; those of some hours ago are forgotten."""
    donor: str = ""
    """Who gives up a running replica, if one does."""
    reason: str = ""
    """Why it does."""


def fair(claims: Sequence[Claim], gpus: int) -> dict[str, int]:
    """Shares of a budget that nobody has used yet, in replicas.

    The least that services ask for comes first, even beyond the budget: it is their owners' word. Then each that needs
    any gets one, then all get what they need, and what is left is room for bursts.
    """
    shares = {one.name: one.least for one in claims}
    for bound in (lambda one: min(1, one.need), lambda one: one.need, _most):
        _give(claims, gpus, shares, bound)
    return shares


def shared(
    before: Shares | None, claims: Sequence[Claim], gpus: int, now_s: float, *, settle_s: float = SETTLE_S
) -> Shares:
    """The shares of this moment; ``before`` are those of the last one.

    They stay as they are while everybody has what it needs: room for bursts moves only to whoever needs it.
    """
    past = before or Shares({})
    goal = fair(claims, gpus)
    # An autoscaler that has not given its replica up yet does not get it back.
    held = {one.name: max(one.least, min(one.held, past.most.get(one.name, one.held))) for one in claims}
    gains = {
        name: gain
        for name, gain in past.gains.items()
        if name in held and now_s < gain.at_s + settle_s * 2 ** (MOST_TURNS + 2)
    }
    most = dict(held)
    promised = {name for name, gain in gains.items() if now_s < gain.at_s + settle_s}
    _give(claims, gpus, most, lambda one: min(past.most.get(one.name, 0), one.need) if one.name in promised else 0)
    _give(claims, gpus, most, lambda one: min(goal[one.name], one.need))  # needs before room for bursts
    move = _move(claims, gpus, _State(goal, held, most, gains, now_s, settle_s))
    if move is None:
        _give(claims, gpus, most, lambda one: _with_headroom(one, past.most))
        _give(claims, gpus, most, lambda one: min(past.most.get(one.name, 0), one.most))
        _give(claims, gpus, most, _most)
        return Shares(most, gains=gains)
    # What is free now is kept for whoever is short, who may need several GPUs at once.
    since_s = now_s if past.disputed_since_s is None else past.disputed_since_s
    if now_s < since_s + move.wait_s:
        return Shares(most, since_s, gains)
    donor = move.donor.name
    given = gains.get(donor)
    if given is not None:
        gains[donor] = Gain(given.at_s, given.turns + 1)
    most[donor] = held[donor] - 1
    if move.receiver is not None:
        turns = gains[move.receiver].turns if move.receiver in gains else 0
        gains[move.receiver] = Gain(now_s, turns)
        promise = most[move.receiver] + 1
        _give(claims, gpus, most, lambda one: promise if one.name == move.receiver else 0)
    return Shares(most, now_s, gains, donor, move.reason)


@dataclass(frozen=True, slots=True)
class _State:
    """What a move is decided by, in replicas by name."""

    goal: Mapping[str, int]
    held: Mapping[str, int]
    most: Mapping[str, int]
    gains: Mapping[str, Gain]
    now_s: float
    settle_s: float


@dataclass(frozen=True, slots=True)
class _Move:
    """A running replica that should go."""

    donor: Claim
    receiver: str | None
    """None where the budget shrank."""
    wait_s: float
    reason: str


def _move(claims: Sequence[Claim], gpus: int, state: _State) -> _Move | None:
    """The running replica that should go next, if one should: of the weakest claim beyond its share, for the strongest
    that is short of its own."""
    goal, held, most = state.goal, state.held, state.most
    donor = _weakest(claims, held, goal)
    if donor is None:
        return None
    pace_s = PACE * state.settle_s
    if _used(claims, held) > gpus:
        reason = f"{donor.name} gives up a replica of {held[donor.name]}: the budget is {gpus} GPUs now"
        return _Move(donor, None, pace_s, reason)
    short = [one for one in claims if most[one.name] < min(goal[one.name], one.need)]
    if not short:
        return None
    receiver = max(short, key=lambda one: (most[one.name] == 0, one.strength(most[one.name] + 1), one.name))
    first = most[receiver.name] == 0
    donors = claims if first else [one for one in claims if not _kept(one, state)]
    strength = inf if first else receiver.strength(most[receiver.name] + 1) / MARGIN
    # A replica of several GPUs takes several others' to start: unless all of them may go, none does, or the first would
    # go to and fro for ever.
    left, after, giving = gpus - _used(claims, most), dict(held), _weakest(donors, held, goal)
    donor = giving
    while left < receiver.gpus:
        if giving is None or giving.strength(after[giving.name]) > strength:
            return None
        after[giving.name] -= 1
        left += giving.gpus
        giving = _weakest(donors, after, goal)
    if donor is None:
        return None
    reason = f"{donor.name} gives up a replica of {held[donor.name]}: {receiver.name} needs it more"
    return _Move(donor, receiver.name, pace_s if first else state.settle_s, reason)


def _weakest(claims: Sequence[Claim], held: Mapping[str, int], goal: Mapping[str, int]) -> Claim | None:
    """Whose last replica beyond its share has the weakest claim; None if nobody has more than its share."""
    beyond = [one for one in claims if held[one.name] > goal[one.name]]
    return min(beyond, key=lambda one: (one.strength(held[one.name]), one.name), default=None)


def _kept(one: Claim, state: _State) -> bool:
    """Whether it got a replica a short while ago."""
    gain = state.gains.get(one.name)
    return gain is not None and state.now_s < gain.kept_s(state.settle_s)


def _with_headroom(one: Claim, before: Mapping[str, int]) -> int:
    """A quarter more than the need of whoever might have had less than it needs."""
    if one.need <= before.get(one.name, one.most):
        return one.need
    return min(one.most, one.need + max(1, one.need // HEADROOM))


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
