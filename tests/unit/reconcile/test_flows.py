"""Queue, objects pass and control pass together, for minutes of virtual time: how often neighbours hear from us."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from outrider.errors import OperatorError
from outrider.reconcile.control import ControlPass, every
from outrider.reconcile.neighbours import Neighbours
from outrider.reconcile.objects import ObjectsPass
from outrider.reconcile.queue import WorkQueue
from outrider.reconcile.registry import ServiceKey

from .builders import EAGER, KEY, World, busy_series, forbidden, pod, unavailable
from .fakes import NOW_S
from .virtual_time import in_virtual_time

MINUTE_S = 60.0


class VirtualClock:
    """Wall-clock time that follows the loop's."""

    def __call__(self) -> float:
        return NOW_S + asyncio.get_running_loop().time()


@asynccontextmanager
async def flowing(changes: dict[str, Any] | None = None) -> AsyncIterator[World]:
    """An operator whose flows run as `outrider.handlers` starts them, with one service and one ready engine."""
    world = World()
    world.clock = VirtualClock()  # type: ignore[assignment]
    world.neighbours = Neighbours(world.kube, world.metrics, world.engines, world.clock, world.settings)
    wake = asyncio.Event()
    queue: WorkQueue[ServiceKey] = WorkQueue(ObjectsPass(world.registry, world.neighbours, wake.set).run)
    control = ControlPass(world.registry, world.neighbours, queue.remind)

    def event(event_type: str, one: dict[str, Any]) -> None:
        # As handlers do: the resource always wakes the queue, a child when it brings news.
        if one["kind"] == "SpeculativeInferenceService":
            queue.add(world.registry.resource_event(event_type, one))
        elif "serving.outrider.dev/service" in one["metadata"].get("labels", {}) and one["kind"] not in (
            "Secret",
            "PodMonitor",
        ):
            key, news = world.registry.child_event(event_type, one)
            if news:
                queue.add(key)

    async def control_pass() -> None:
        world.metrics.series[KEY] = busy_series(world.clock(), rate=0.7)
        await control.run()

    world.kube.listeners = [event]
    tasks = [asyncio.create_task(queue.run()), asyncio.create_task(every(15.0, control_pass, wake))]
    world.add(EAGER if changes is None else changes)
    world.see(pod())
    try:
        await asyncio.sleep(MINUTE_S)
        yield world
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@in_virtual_time
async def test_a_service_comes_up_by_itself() -> None:
    async with flowing() as world:
        assert (world.condition("Ready") or ("",))[0] == "True"
        assert (world.condition("ScheduleApplied") or ("",))[0] == "True"
        assert world.condition("MetricsAvailable") == ("True", "Fresh", "engine metrics arrive")


@in_virtual_time
async def test_an_hour_of_calm_costs_a_dozen_saves_and_three_renewals() -> None:
    async with flowing() as world:
        world.forget_writes()
        await asyncio.sleep(60 * MINUTE_S)
        assert set(world.journal) == {"apply ConfigMap/chat-memory", "put 10.0.0.1 generation 1"}
        assert world.journal.count("apply ConfigMap/chat-memory") == 12
        assert 2 <= world.journal.count("put 10.0.0.1 generation 1") <= 3


@pytest.mark.failure(
    "API server",
    "ten minutes of one fault",
    status="few calls, ever more rarely",
    ends="by the back-off",
    guard="reconcile/queue.py:WorkQueue.remind",
)
@pytest.mark.parametrize(
    ("error", "least", "most"),
    [
        pytest.param(forbidden, 9, 13, id="a missing right: about once a minute"),
        pytest.param(unavailable, 8, 14, id="an API server that is away: ever more rarely"),
    ],
)
def test_ten_minutes_of_one_fault_are_few_calls(error: Callable[[], OperatorError], least: int, most: int) -> None:
    """The control pass goes on beside it, and must not wake what is waiting for its retry."""

    @in_virtual_time
    async def run() -> None:
        async with flowing() as world:
            calls = 0

            def count() -> OperatorError:
                nonlocal calls
                calls += 1
                return error()

            world.kube.fail(count, "apply", "Deployment/chat")
            world.add({**EAGER, "spec.engine": {"maxNumSeqs": 128}}, generation=4)
            await asyncio.sleep(10 * MINUTE_S)
            assert least <= calls <= most

    run()
