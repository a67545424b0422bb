"""The number of replicas changes hands without a dip: through whole objects passes, against server-side apply.

| before           | after                | replicas                                  | who holds the field  |
|------------------|----------------------|-------------------------------------------|----------------------|
| nothing          | autoscaled, from 1   | 1                                         | nobody               |
| nothing          | autoscaled, from 3   | 3, before the autoscaler's first look     | outrider-replicas    |
| nothing          | fixed 3              | 3                                         | outrider             |
| fixed 12         | autoscaled, 1 to 20  | 12                                        | outrider-replicas    |
| autoscaled at 12 | autoscaled otherwise | 12                                        | as it was            |
| autoscaled at 12 | fixed 3              | 3                                         | outrider             |
| fixed 3, edited  | fixed 3              | 3                                         | outrider             |
| nothing, at 12   | nothing              | 12, by an autoscaler of the user's own    | both                 |
| nothing          | external, from 3     | 1: the other autoscaler's to raise        | nobody               |
| fixed 12         | external             | 12                                        | outrider-replicas    |
| autoscaled at 12 | external             | 12                                        | as it was            |
| external at 12   | autoscaled or fixed  | 12                                        | see above            |
"""

from __future__ import annotations

from typing import Any

import pytest

from outrider.api.defaults import resolve
from outrider.errors import Forbidden
from outrider.reconcile import replicas
from outrider.reconcile.contention import owners
from tests.unit.api.bodies import resource

from .builders import World, forbidden
from .fakes import FakeKube

OURS, SECOND = "outrider", "outrider-replicas"


def autoscaled(least: int, most: int = 20) -> dict[str, Any]:
    return {"spec.autoscaling": {"minReplicas": least, "maxReplicas": most}}


def fixed(replicas: int) -> dict[str, Any]:
    return {"spec.autoscaling": {"mode": "Off", "minReplicas": replicas}}


def external(least: int = 1) -> dict[str, Any]:
    return {"spec.autoscaling": {"mode": "External", "minReplicas": least}}


def holders(world: World) -> set[str]:
    """Managers with their hand on the number."""
    live = world.kube.live("Deployment", "chat")
    return {entry["manager"] for entry in owners(live)}


def numbers(world: World) -> list[int]:
    """Fills with every number that the Deployment has from now on."""
    seen: list[int] = []

    def listen(_: str, one: dict[str, Any]) -> None:
        if one["kind"] == "Deployment":
            seen.append(one["spec"]["replicas"])

    world.kube.listeners.append(listen)
    return seen


async def running(
    changes: dict[str, Any], at: int | None = None, scaler: str | None = "kube-controller-manager"
) -> World:
    """A service that has run for a while, perhaps scaled to some number since."""
    world = World()
    world.add(changes)
    await world.settle()
    if at is not None:
        world.kube.edit("Deployment", "chat", {"spec": {"replicas": at}}, manager=scaler)
    return world


@pytest.mark.parametrize(
    ("changes", "replicas", "holder"),
    [
        pytest.param(autoscaled(1), 1, set(), id="autoscaled from one: the API server's own default"),
        pytest.param(
            autoscaled(3), 3, {SECOND}, id="autoscaled from three: at once, and not when the autoscaler looks"
        ),
        pytest.param(fixed(3), 3, {OURS}, id="a fixed number"),
        pytest.param({"spec.autoscaling": None}, 1, {OURS}, id="nothing said: one"),
        pytest.param(external(3), 1, set(), id="an external autoscaler raises the number itself"),
    ],
)
async def test_a_new_service(changes: dict[str, Any], replicas: int, holder: set[str]) -> None:
    world = await running(changes)
    assert world.kube.replicas() == replicas
    assert holders(world) == holder


async def test_turning_autoscaling_on_keeps_twelve_replicas_at_every_moment() -> None:
    world = await running(fixed(12))
    seen = numbers(world)
    world.add(autoscaled(1))
    await world.settle()
    assert set(seen) <= {12}
    assert world.kube.replicas() == 12
    assert holders(world) == {SECOND}


async def test_without_the_second_manager_they_would_fall_to_one() -> None:
    """Not our code, but why it is there; this is what a real API server does."""
    kube, deployment = (
        FakeKube(),
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat", "namespace": "ml"}},
    )
    await kube.apply({**deployment, "spec": {"replicas": 12, "paused": False}})
    await kube.apply({**deployment, "spec": {"paused": False}})
    assert kube.replicas() == 1


async def test_ours_is_not_dropped_when_the_second_manager_could_not_take_over() -> None:
    world = await running(fixed(12))
    world.kube.fail(forbidden, "apply", "Deployment/chat", times=1)
    world.add(autoscaled(1))
    await world.reconcile()
    assert world.kube.replicas() == 12
    assert holders(world) == {OURS}
    await world.settle()
    assert world.kube.replicas() == 12


async def test_a_crash_between_the_two_writes_of_the_hand_over_costs_nothing() -> None:
    world = await running(fixed(12))
    world.kube.meanwhile("apply", "Deployment/chat", lambda: world.kube.fail(forbidden, "apply", "Deployment/chat"))
    world.add(autoscaled(1))
    await world.reconcile()
    assert holders(world) == {OURS, SECOND}
    world.kube.heal()
    world.restart()
    await world.settle()
    assert world.kube.replicas() == 12
    assert holders(world) == {SECOND}


@pytest.mark.parametrize(
    "scaler",
    [
        pytest.param("kube-controller-manager", id="with an owner"),
        pytest.param(None, id="without leaving an owner behind"),
    ],
)
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(autoscaled(1), id="nothing changed"),
        pytest.param(autoscaled(3, 30), id="other bounds"),
        pytest.param(autoscaled(1) | {"spec.engine": {"maxNumSeqs": 128}}, id="another pod template"),
    ],
)
async def test_what_the_autoscaler_set_is_never_written_over(changes: dict[str, Any], scaler: str | None) -> None:
    world = await running(autoscaled(1), at=12, scaler=scaler)
    seen = numbers(world)
    world.restart()
    world.kube.listeners.append(
        lambda _, one: seen.append(one["spec"]["replicas"]) if one["kind"] == "Deployment" else None
    )
    world.add(changes)
    await world.settle()
    assert set(seen) <= {12}
    assert world.kube.replicas() == 12


async def test_turning_it_off_removes_the_autoscaler_before_the_number_is_set() -> None:
    world = await running(autoscaled(1), at=12)
    world.forget_writes()
    world.add(fixed(3))
    await world.settle()
    changes = [one for one in world.journal if one in ("delete ScaledObject/chat", "apply Deployment/chat")]
    assert changes == ["delete ScaledObject/chat", "apply Deployment/chat"]
    assert world.kube.replicas() == 3
    assert holders(world) == {OURS}


async def test_off_and_on_again() -> None:
    world = await running(autoscaled(1), at=12)
    world.add(fixed(8))
    await world.settle()
    seen = numbers(world)
    world.add(autoscaled(1))
    await world.settle()
    assert set(seen) <= {8}
    assert holders(world) == {SECOND}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(external(), autoscaled(1), id="external to KEDA"),
        pytest.param(autoscaled(1), external(), id="KEDA to external"),
        pytest.param(external(), {"spec.autoscaling": None}, id="external to nothing"),
        pytest.param({"spec.autoscaling": None}, external(), id="nothing to external"),
        pytest.param(external(), fixed(12), id="external to a fixed number that is the same"),
        pytest.param(fixed(12), external(), id="a fixed number to external"),
    ],
)
async def test_an_external_autoscaler_takes_over_and_gives_back_without_a_dip(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    world = await running(before, at=12)
    await world.settle()
    seen = numbers(world)
    world.add(after)
    await world.settle()
    world.restart()
    await world.settle()
    assert set(seen) <= {12}
    assert world.kube.replicas() == 12
    assert (OURS in holders(world)) == (after not in (external(), autoscaled(1)))


async def test_under_an_external_autoscaler_there_is_no_scaled_object() -> None:
    world = await running(autoscaled(1), at=12)
    world.add(external())
    await world.settle()
    assert ("ScaledObject", "ml", "chat") not in world.kube.objects
    for number in (5, 12):
        world.kube.edit("Deployment", "chat", {"spec": {"replicas": number}}, manager=None)
        await world.settle()
        assert world.kube.replicas() == number
    found = world.condition("AutoscalingReady")
    assert found is not None
    assert found[:2] == ("True", "ExternalAutoscaler")


async def test_a_fixed_number_that_somebody_edited_is_put_back() -> None:
    world = await running(fixed(3), at=5, scaler="kubectl")
    await world.settle()
    assert world.kube.replicas() == 3


async def test_without_the_block_another_autoscaler_sets_the_number_and_nobody_takes_it_back() -> None:
    world = await running({"spec.autoscaling": None})
    for number in (5, 12, 4):
        world.kube.edit("Deployment", "chat", {"spec": {"replicas": number}}, manager="kube-controller-manager")
        await world.settle()
        world.restart()
        seen = numbers(world)
        world.add({"spec.autoscaling": None, "spec.engine": {"maxNumSeqs": 100 + number}})  # another pod template
        await world.settle()
        assert set(seen) == {number}
        assert holders(world) == {OURS, "kube-controller-manager"}
        assert world.kube.replicas() == number


async def test_the_minimum_is_not_forced_on_an_autoscaler_that_has_spoken() -> None:
    world = await running(autoscaled(3), at=2)
    world.restart()
    await world.settle()
    assert world.kube.replicas() == 2


async def test_a_missing_right_for_the_second_manager_is_reported() -> None:
    world = World()
    world.add(autoscaled(3))
    world.kube.fail(lambda: Forbidden("Forbidden", "cannot patch deployments", 403), "apply", "Deployment/chat")
    await world.reconcile()
    assert world.condition("Ready") == ("False", "Forbidden", "cannot patch deployments")


@pytest.mark.parametrize(
    ("scaling", "running", "expected"),
    [
        pytest.param(None, None, 1, id="new, without a word about replicas"),
        pytest.param(None, 12, 12, id="the block was removed: nobody's replica goes"),
        pytest.param({"mode": "Off"}, 12, 12, id="turned off: nobody's replica goes"),
        pytest.param({"mode": "Off", "minReplicas": 3}, 12, 3, id="turned off with a number: that number"),
        pytest.param({"mode": "Off"}, 0, 1, id="never none"),
    ],
)
def test_the_number_without_an_autoscaler(scaling: dict[str, Any] | None, running: int | None, expected: int) -> None:
    changes = {} if scaling is None else {"spec.autoscaling": scaling}
    resolved = resolve(resource({"spec.autoscaling": None} | changes).spec)
    live = None if running is None else {"spec": {"replicas": running}}
    assert replicas.fixed(resolved, live) == expected
