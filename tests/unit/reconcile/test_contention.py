"""Moves of the number of replicas: the autoscaler's, KEDA's, or somebody else's."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from outrider.reconcile.contention import MOST, NONE, REMEMBERED_S, TAKEN_OVER_S, Contention, asked, judge, moved

from .builders import World
from .fakes import NOW_S, Manifest

SCALED: dict[str, Any] = {"spec.autoscaling": {"minReplicas": 2, "maxReplicas": 6}}
OWN = ("outrider", "outrider-replicas")


def deployment(replicas: int, uid: str = "d", **holders: str) -> Manifest:
    """A Deployment with this number, and the managers that hold it with the times of their writes."""
    fields = [
        {"manager": name.replace("_", "-"), "time": time, "fieldsV1": {"f:spec": {"f:replicas": {}}}}
        for name, time in holders.items()
    ]
    return {"metadata": {"uid": uid, "managedFields": fields}, "spec": {"replicas": replicas}}


def after(*numbers: int, wants: int = 4) -> Contention:
    """What is known after these numbers one after another, with an HPA that wants this many all along."""
    known = asked(NONE, wants)
    for before, now in pairwise(numbers):
        known = moved(known, deployment(before), deployment(now), OWN)
    return known


def found(known: Contention, least: int = 2, late_s: float = TAKEN_OVER_S) -> list[tuple[int, int]]:
    """Moves that are somebody else's by then."""
    known = judge(judge(known, least, NOW_S), least, NOW_S + late_s)
    return [(move.before, move.after) for move in known.foreign]


@pytest.mark.parametrize(
    ("numbers", "least", "foreign"),
    [
        pytest.param((3, 4), 2, [], id="to what the HPA wants"),
        pytest.param((4, 1, 4), 2, [(4, 1)], id="away from it, and back by the HPA"),
        pytest.param((4, 10), 2, [(4, 10)], id="above it"),
        pytest.param((1, 2), 2, [], id="up to the minimum: KEDA, or ours"),
        pytest.param((4, 2), 2, [(4, 2)], id="down to the minimum"),
        pytest.param((4, 0), 0, [], id="to none, where there may be none: KEDA"),
        pytest.param((0, 1), 0, [], id="from none"),
        pytest.param((4, 0), 1, [(4, 0)], id="to none, where there may not"),
        pytest.param((4, 4), 2, [], id="no move"),
    ],
)
def test_whose_move_it_is(numbers: tuple[int, ...], least: int, foreign: list[tuple[int, int]]) -> None:
    assert found(after(*numbers), least) == foreign


def test_a_move_is_told_once_the_hpa_had_time_to_take_it_over() -> None:
    known = after(4, 1)
    assert found(known, late_s=TAKEN_OVER_S - 0.1) == []
    assert found(known, late_s=TAKEN_OVER_S) == [(4, 1)]


def test_a_number_that_the_hpa_takes_over_is_nobodys_fault() -> None:
    known = judge(after(4, 3), 2, NOW_S)
    assert found(asked(known, 3)) == []


def test_the_hpas_own_move_shows_before_its_wish_does() -> None:
    """Its controller writes the number first and its own status then."""
    known = judge(after(4, 6), 2, NOW_S)
    known = judge(asked(known, 6), 2, NOW_S + 1)
    assert found(asked(known, 5)) == [], "it has gone on since, and the move stays its own"


def test_without_an_hpa_there_is_nobody_to_contend_with() -> None:
    known = moved(NONE, deployment(4), deployment(1), OWN)
    assert judge(known, 2, NOW_S) == NONE
    assert judge(asked(after(4, 1), None), 2, NOW_S) == NONE


def test_another_deployment_of_the_name_is_no_move() -> None:
    assert moved(NONE, deployment(4), deployment(1, uid="e"), OWN) == NONE


def test_it_is_forgotten_after_a_while_and_not_before() -> None:
    known = judge(judge(after(4, 1), 2, NOW_S), 2, NOW_S + TAKEN_OVER_S)
    assert judge(known, 2, NOW_S + REMEMBERED_S - 1).foreign
    assert not judge(known, 2, NOW_S + REMEMBERED_S).foreign


def test_a_storm_of_writes_takes_no_more_room_than_a_few() -> None:
    known = after(*(4, 1) * 50)
    assert len(known.unclear) == MOST
    assert len(judge(judge(known, 2, NOW_S), 2, NOW_S + TAKEN_OVER_S).foreign) <= MOST


@pytest.mark.parametrize(
    ("before", "now", "named"),
    [
        pytest.param({}, {"argocd": "10:00"}, "argocd", id="a new holder"),
        pytest.param({"argocd": "10:00"}, {"argocd": "10:01"}, "argocd", id="one that writes again"),
        pytest.param({"argocd": "10:00"}, {"argocd": "10:00"}, "", id="one that holds it since before"),
        pytest.param({}, {"outrider_replicas": "10:00", "outrider": "10:00"}, "", id="our own"),
        pytest.param({}, {}, "", id="nobody left a name"),
        pytest.param({}, {"helm": "10:00", "flux": "10:01"}, "flux", id="of two the later one"),
    ],
)
def test_the_writer_is_who_took_hold_of_the_number_meanwhile(
    before: dict[str, str], now: dict[str, str], named: str
) -> None:
    known = moved(asked(NONE, 4), deployment(4, **before), deployment(1, **now), OWN)
    assert known.unclear[0].manager == named


def hpa(desired: int) -> Manifest:
    """The HPA that KEDA made."""
    meta = {"name": "keda-hpa-chat", "namespace": "ml", "labels": {"serving.outrider.dev/service": "chat"}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": meta,
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "chat"}},
        "status": {"desiredReplicas": desired},
    }


def write(world: World, replicas: int, manager: str | None) -> None:
    world.kube.edit("Deployment", "chat", {"spec": {"replicas": replicas}}, manager=manager)


async def contended(world: World) -> str:
    """What the condition says a while later; empty where it is not there."""
    await world.settle()
    world.clock.advance(TAKEN_OVER_S)
    await world.settle()
    return (world.condition("ReplicasContended") or ("", "", ""))[2]


async def scaled_to_four(changes: dict[str, Any] = SCALED) -> World:
    world = World()
    world.add(changes)
    await world.settle()
    world.kube.put(hpa(4))
    write(world, 4, None)
    await world.settle()
    return world


async def test_c21_what_the_autoscaler_set_is_nobodys_contention_whatever_happens() -> None:
    world = await scaled_to_four()
    for number in range(10):
        world.add(SCALED | {"metadata.labels": {"n": str(number)}})
        await world.reconcile()
    world.restart()
    assert await contended(world) == ""
    assert world.kube.replicas() == 4


async def test_c21_another_writer_is_named_and_not_fought() -> None:
    world = await scaled_to_four()
    for _ in range(3):
        write(world, 1, "argocd-controller")
        await world.settle()
        assert world.kube.replicas() == 1, "it is the HPA's to set it back"
        write(world, 4, "kube-controller-manager")
        await world.settle()
    said = await contended(world)
    assert said.startswith("field manager argocd-controller set replicas from 4 to 1")
    assert "3 times in the last 15 minutes; it asks for 4 now" in said
    assert world.status()["conditions"] != []
    assert (world.condition("Ready") or ("", ""))[1] != "Conflict"
    warned = [one["reason"] for one in world.kube.created("Event") if one["reason"] == "ForeignWriter"]
    assert warned == ["ForeignWriter"]
    world.clock.advance(REMEMBERED_S)
    await world.settle()
    assert world.condition("ReplicasContended") is None


async def test_a_writer_without_a_name_is_told_of_all_the_same() -> None:
    world = await scaled_to_four()
    write(world, 1, None)
    assert (await contended(world)).startswith("a writer that left no name as field manager set replicas from 4 to 1")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"spec.autoscaling": {"mode": "External"}}, id="external"),
        pytest.param({"spec.autoscaling": {"mode": "Off"}}, id="off"),
    ],
)
async def test_where_keda_does_not_scale_there_is_no_contention(changes: dict[str, Any]) -> None:
    world = await scaled_to_four()
    write(world, 1, "argocd-controller")
    world.add(changes)
    assert await contended(world) == ""
