"""What vanished while a watch was cut is found by looking."""

from __future__ import annotations

import copy

import pytest

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


@pytest.mark.failure(
    "API server",
    "a watch is cut, and something goes meanwhile",
    status="pods and services that went are dropped",
    ends="next look, within five minutes",
    guard="reconcile/resync.py:Resync.run",
)
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


class TestWatch:
    """A change that the watch has not told of by the next look will not come."""

    def change(self, world: World) -> None:
        """A change that no event tells of."""
        kept, world.kube.listeners = world.kube.listeners, []
        meta = world.kube.objects["SpeculativeInferenceService", "ml", "chat"]["metadata"]
        meta["resourceVersion"] = meta.get("resourceVersion", "") + "1"
        world.kube.listeners = kept

    async def test_a_watch_that_tells_everything_is_trusted(self) -> None:
        world = await serving()
        one, _ = resync(world)
        for _ in range(3):
            await one.run()
        assert one.silent is None

    async def test_one_look_is_not_enough_for_an_event_may_be_on_its_way(self) -> None:
        world = await serving()
        one, _ = resync(world)
        self.change(world)
        await one.run()
        assert one.silent is None

    async def test_a_change_that_is_still_untold_at_the_next_look_gives_the_watch_away(self) -> None:
        world = await serving()
        one, _ = resync(world)
        self.change(world)
        await one.run()
        self.change(world)
        await one.run()
        assert one.silent == KEY

    async def test_a_busy_resource_whose_events_come_late_is_no_silence(self) -> None:
        world = await serving()
        one, _ = resync(world)
        for _ in range(3):
            self.change(world)
            await one.run()
            changed = world.kube.objects["SpeculativeInferenceService", "ml", "chat"]
            world.registry.resource_event("MODIFIED", copy.deepcopy(changed))
        assert one.silent is None

    async def test_a_watch_that_tells_again_is_trusted_again(self) -> None:
        world = await serving()
        one, _ = resync(world)
        self.change(world)
        for _ in range(2):
            await one.run()
        assert one.silent == KEY
        changed = world.kube.objects["SpeculativeInferenceService", "ml", "chat"]
        world.registry.resource_event("MODIFIED", copy.deepcopy(changed))
        await one.run()
        assert one.silent is None
