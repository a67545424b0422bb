"""A candidate's pods beside the replicas: told like them, learned from by nobody, and no capacity."""

from __future__ import annotations

from outrider.reconcile.quotas import QuotaLook

from .builders import EAGER, World, busy_series, pod
from .test_sharing import engines, quota

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


async def with_candidate(*, ready: bool = True) -> World:
    """`chat` with two replicas, and the pod of a candidate that accepts next to nothing."""
    world = World()
    world.add(EAGER)
    world.see(pod("chat-a", address=A), pod("chat-b", address=B))
    world.see(pod("chat-candidate-c", address=C, track="candidate", revision="r2", ready=ready))
    await world.settle()
    own = busy_series(world.clock(), ["chat-a", "chat-b"], rate=0.9)
    other = busy_series(world.clock(), ["chat-candidate-c"], rate=0.05, running=200.0)
    world.metrics.series["ml", "chat"] = [*own, *other]
    return world


async def test_a_candidate_gets_the_schedule_that_the_replicas_get() -> None:
    world = await with_candidate()
    await world.control.run()
    state = world.service().state
    assert state is not None
    held = {address: engine.schedule for address, engine in world.engines.engines.items()}
    assert held == dict.fromkeys((A, B, C), state.schedule)


async def test_nothing_is_learned_from_a_candidate() -> None:
    world = await with_candidate()
    await world.control.run()
    service = world.service()
    assert service.outcome is not None
    assert service.outcome.acceptance_rate is not None
    assert service.outcome.acceptance_rate > 0.8
    assert service.outcome.in_flight == 16.0


async def test_a_candidate_is_no_replica_in_status() -> None:
    world = await with_candidate()
    await world.control.run()
    await world.settle()
    assert world.status()["replicas"]["ready"] == 2
    assert world.status()["tuning"]["acknowledged"] == "2/2"
    applied = world.condition("ScheduleApplied")
    assert applied is not None
    assert applied[0] == "True"


async def test_a_candidate_that_starts_leaves_its_service_ready() -> None:
    world = await with_candidate(ready=False)
    await world.control.run()
    await world.settle()
    engine = world.condition("EngineReady")
    assert engine is not None
    assert engine[0] == "True"


async def test_without_replicas_a_candidate_alone_decides_nothing() -> None:
    world = World()
    world.add(EAGER)
    world.see(pod("chat-candidate-c", address=C, track="candidate", revision="r2"))
    await world.settle()
    world.metrics.series["ml", "chat"] = busy_series(world.clock(), ["chat-candidate-c"])
    await world.control.run()
    missing = world.service().metrics
    assert missing is not None
    assert missing.reason == "NoReadyEngine"


async def test_what_a_candidate_holds_of_a_quota_is_not_shared_out() -> None:
    world = World()
    world.add()
    replicas, candidate = engines("chat", 2), engines("chat", 3)[2]
    candidate["metadata"]["labels"]["serving.outrider.dev/track"] = "candidate"
    world.see(*replicas, candidate)
    await world.settle()
    world.kube.put(quota(8, used=3))
    look = QuotaLook(world.registry, world.kube, ())
    for _ in range(3):
        await look.run()
    assert world.registry.quotas is not None
    assert world.registry.quotas["ml", "nvidia.com/gpu"].others == 1


def test_pods_of_before_the_label_are_replicas() -> None:
    one = pod("chat-a")
    del one["metadata"]["labels"]["serving.outrider.dev/track"]
    world = World()
    service = world.add()
    world.see(one)
    assert [pod.name for pod in service.ready_pods] == ["chat-a"]
