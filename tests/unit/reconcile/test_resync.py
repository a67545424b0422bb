"""What vanished while a watch was cut is found by looking."""

from __future__ import annotations

from outrider.reconcile.resync import Resync

from .builders import KEY, World, pod, unavailable


def resync(world: World) -> tuple[Resync, list[object]]:
    told: list[object] = []
    return Resync(world.registry, world.kube, (), told.append), told


async def serving() -> World:
    world = World()
    world.add()
    world.see(pod(), pod("chat-b", address="10.0.0.2"))
    await world.settle()
    return world


async def test_a_pod_that_went_unseen_is_dropped_and_its_service_looked_at() -> None:
    world = await serving()
    world.kube.vanish("Pod", "chat-b")
    one, told = resync(world)
    await one.run()
    assert [each.name for each in world.service().ready_pods] == ["chat-a"]
    assert told == [KEY]


async def test_a_service_that_went_unseen_is_controlled_no_more() -> None:
    world = await serving()
    world.kube.vanish("SpeculativeInferenceService", "chat")
    await resync(world)[0].run()
    assert world.registry.get(KEY) is None


async def test_what_is_there_stays() -> None:
    world = await serving()
    one, told = resync(world)
    await one.run()
    assert len(world.service().ready_pods) == 2
    assert told == []


async def test_an_api_server_that_does_not_answer_proves_nothing() -> None:
    world = await serving()
    world.kube.fail(unavailable, "list")
    await resync(world)[0].run()
    assert world.registry.get(KEY) is not None
