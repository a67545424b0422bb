"""Whether somebody else writes the number of replicas that the autoscaler sets.

A number that the HPA neither asked for nor takes over is somebody else's. The owner of the field would not tell: a
write through the scale subresource does not always leave one behind. The owner only serves to name the writer.

| the number of the Deployment moves to                         | whose move it is                         |
|---------------------------------------------------------------|------------------------------------------|
| what the HPA asks for, now or within `TAKEN_OVER_S`           | the HPA's, or one that it agrees with    |
| the minimum, from below                                       | KEDA's, or ours for a new Deployment     |
| none or from none, where there may be none                    | KEDA's                                   |
| anything else                                                 | somebody else's                          |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

TAKEN_OVER_S = 20.0
"""The HPA looks every 15 s: by then it has told what it wants instead, or settled for the number."""
REMEMBERED_S = 900.0
"""For how long a foreign write is told of: longer than tools that apply from Git wait between two times, 3 to 10
minutes."""
MOST = 16
"""Moves that are kept; more of them tell nothing new."""


@dataclass(frozen=True, slots=True)
class Move:
    """One change of a Deployment's number of replicas."""

    before: int
    after: int
    manager: str
    """The field manager that left its name; empty if none did."""
    seen_s: float | None = None
    """When a pass first looked at it; None before."""


@dataclass(frozen=True, slots=True)
class Contention:
    """Moves that are still to be told apart, and those that were somebody else's; newest last."""

    unclear: tuple[Move, ...] = ()
    foreign: tuple[Move, ...] = ()
    asked_for: int | None = None
    """What the HPA wants; None without one."""


NONE = Contention()


def moved(known: Contention, before: Mapping[str, Any], after: Mapping[str, Any], own: Iterable[str]) -> Contention:
    """Take note of another state of the Deployment; ``own`` are managers that never count."""
    numbers = before["spec"].get("replicas", 1), after["spec"].get("replicas", 1)
    if numbers[0] == numbers[1] or before["metadata"]["uid"] != after["metadata"]["uid"]:
        return known
    move = Move(*numbers, _writer(before, after, frozenset(own)))
    return replace(known, unclear=(*known.unclear, move)[-MOST:])


def asked(known: Contention, desired: int | None) -> Contention:
    """Take note of what the HPA wants; moves to that number were its own."""
    unclear = tuple(move for move in known.unclear if move.after != desired)
    return replace(known, unclear=unclear, asked_for=desired)


def judge(known: Contention, least: int, now_s: float) -> Contention:
    """Tell moves apart whose time has come; ``least`` is the fewest replicas that the autoscaler may ask for."""
    if known.asked_for is None:  # nobody to contend with
        return NONE
    dated = [move if move.seen_s is not None else replace(move, seen_s=now_s) for move in known.unclear]
    open_ = [move for move in dated if move.after != known.asked_for and not _of_keda(move, least)]
    foreign = [*known.foreign, *(move for move in open_ if _age_s(move, now_s) >= TAKEN_OVER_S)]
    return replace(
        known,
        unclear=tuple(move for move in open_ if _age_s(move, now_s) < TAKEN_OVER_S),
        foreign=tuple(move for move in foreign if _age_s(move, now_s) < REMEMBERED_S)[-MOST:],
    )


def _age_s(move: Move, now_s: float) -> float:
    return 0.0 if move.seen_s is None else now_s - move.seen_s


def _of_keda(move: Move, least: int) -> bool:
    return (move.before < move.after == least) or (least == 0 and 0 in (move.before, move.after))


def _writer(before: Mapping[str, Any], after: Mapping[str, Any], own: frozenset[str]) -> str:
    """The manager that took hold of the number, or wrote it again, between the two states."""
    earlier = _holders(before)
    news = {name: time for name, time in _holders(after).items() if name not in own and earlier.get(name) != time}
    return max(news, key=lambda name: news[name], default="")


def _holders(deployment: Mapping[str, Any]) -> dict[str, str]:
    """Managers with their hand on ``spec.replicas``, and when each last wrote."""
    return {entry.get("manager", ""): entry.get("time", "") for entry in owners(deployment)}


def owners(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Entries of the field managers that have their hand on ``spec.replicas`` of an object."""
    return [
        entry
        for entry in body["metadata"].get("managedFields") or ()
        if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
    ]
