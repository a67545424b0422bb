"""A service of which no replica runs because nothing asks for it: as its owner wants it, and no fault."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.errors import Unreachable
from outrider.manifests.scaled_object import keeps
from tests.testbed.kstatus import verdict

from .builders import World, pod

IDLE: dict[str, Any] = {"spec.autoscaling": {"minReplicas": 0, "maxReplicas": 4, "idle": {"wakeQuery": "sum(q)"}}}


async def at(replicas: int, changes: dict[str, Any] = IDLE) -> World:
    """A service that KEDA has scaled to so many, without pods."""
    world = World()
    world.add(changes)
    await world.settle()
    world.kube.edit("Deployment", "chat", {"spec": {"replicas": replicas}}, manager="keda")
    await world.settle()
    return world


def states(world: World) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in world.status()["conditions"]}


async def test_a_new_service_starts_one_replica_and_proves_that_it_can() -> None:
    world = World()
    world.add(IDLE)
    await world.settle()
    assert world.kube.replicas() == 1
    assert states(world)["Ready"][0] == "False"


async def test_asleep_it_is_as_its_owner_wants_it() -> None:
    world = await at(0)
    found = states(world)
    assert found["Ready"] == ("True", "Idle")
    assert found["EngineReady"] == ("False", "Idle")
    assert found["MetricsAvailable"] == ("Unknown", "Idle")
    assert found["AutoscalingReady"] == ("True", "Idle")
    assert "Reconciling" not in found
    assert "Stalled" not in found
    assert verdict(world.kube.live("SpeculativeInferenceService", "chat")) == "Current"
    assert world.kube.replicas() == 0, "nobody wakes it but KEDA"


async def test_awake_it_tells_that_it_cannot_answer_yet_and_warns_of_nothing() -> None:
    world = await at(0)
    world.forget_writes()
    world.kube.edit("Deployment", "chat", {"spec": {"replicas": 1}}, manager="keda")
    world.see(pod(ready=False))
    await world.settle()
    assert states(world)["Ready"] == ("False", "Starting")
    assert states(world)["AutoscalingReady"] == ("Unknown", "Starting"), "KEDA's trigger errors are no news meanwhile"
    assert world.kube.created("Event") == []
    world.see(pod())
    await world.settle()
    assert states(world)["Ready"] == ("True", "EnginesServe")


async def test_a_pod_that_still_ends_is_told_of() -> None:
    world = await at(0)
    world.see(pod(terminating=True))
    await world.settle()
    assert states(world)["Ready"][1] != "Idle"


@pytest.mark.parametrize(
    ("changes", "replicas"),
    [
        pytest.param({"spec.autoscaling": {"mode": "Off"}}, 1, id="off: one is kept"),
        pytest.param({"spec.autoscaling": {"mode": "Off", "minReplicas": 2}}, 2, id="off with a number"),
        pytest.param({"spec.autoscaling": {"mode": "External"}}, 0, id="external: not ours to wake"),
    ],
)
async def test_another_mode_does_not_leave_it_asleep_by_mistake(changes: dict[str, Any], replicas: int) -> None:
    world = await at(0)
    world.add(changes)
    await world.settle()
    assert world.kube.replicas() == replicas
    assert states(world)["Ready"] != ("True", "Idle")


async def test_none_where_none_may_be_is_no_sleep() -> None:
    world = await at(0, {"spec.autoscaling": {"minReplicas": 1, "maxReplicas": 4}})
    assert states(world)["Ready"][0] == "False"


class TestWhatKedaCannotKnow:
    """KEDA may lose a trigger's error and take it for silence: it then takes the last replica away."""

    async def test_while_prometheus_is_gone_it_may_take_none_away(self) -> None:
        world = await awake()
        assert not keeps(scaled_object(world))
        world.metrics.error = GONE
        await world.control.run()
        await world.settle()
        assert keeps(scaled_object(world))
        world.metrics.error = None
        await world.control.run()
        await world.settle()
        assert not keeps(scaled_object(world))

    @pytest.mark.parametrize(
        ("pods", "kept"),
        [
            pytest.param([pod()], True, id="an engine serves: its triggers should have an answer"),
            pytest.param([pod(ready=False)], False, id="none serves: they have none"),
        ],
    )
    async def test_while_its_own_questions_fail_it_may_take_none_away(self, pods: list[Any], kept: bool) -> None:
        world = await at(1)
        world.see(*pods)
        await world.control.run()
        failing = {"conditions": [{"type": "Ready", "status": "False", "reason": "TriggerError"}]}
        world.kube.edit("ScaledObject", "chat", {"status": failing}, manager="keda")
        await world.settle()
        assert keeps(scaled_object(world)) is kept

    async def test_a_new_process_leaves_it_as_it_is_until_it_has_asked_itself(self) -> None:
        world = await awake()
        world.metrics.error = GONE
        await world.control.run()
        await world.settle()
        world.restart()
        await world.settle()
        assert keeps(scaled_object(world))

    async def test_where_one_always_runs_it_is_free(self) -> None:
        world = await awake({"spec.autoscaling": {"minReplicas": 1, "maxReplicas": 4}})
        world.metrics.error = GONE
        await world.control.run()
        await world.settle()
        assert not keeps(scaled_object(world))


GONE = Unreachable("PrometheusUnreachable", "Prometheus does not answer")


async def awake(changes: dict[str, Any] = IDLE) -> World:
    """A service with one engine that serves, and metrics that have just begun to come."""
    world = await at(1, changes)
    world.see(pod())
    await world.control.run()
    await world.settle()
    return world


def scaled_object(world: World) -> dict[str, Any]:
    return dict(world.kube.live("ScaledObject", "chat"))
