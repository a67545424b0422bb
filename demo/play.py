"""The live part: users, observer and screen together, for as long as the scenario lasts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from demo import scenario
from demo.facts import Decision
from demo.live import Picture, Row, Screen
from demo.load import Load
from demo.neighbours import ApiServer, Engines, Prometheus
from demo.observer import Measured, Observer
from demo.scenario import Scenario
from tests.testbed.cluster import Cluster
from tests.testbed.errors import ClusterError, last_lines

SHOW_S = 0.5
GUARD_S = 2.0
TITLE = "Outrider on the local cluster"
LAST_ANSWERS_S = 45.0
"""Longest wait for requests that are still on their way when the live part ends."""


@dataclass(frozen=True, slots=True)
class Played:
    """What the live part gave."""

    observer: Observer
    loads: dict[str, Load]
    tokens: float
    """Tokens that the main service generated within the live part."""
    tpot_buckets: list[tuple[float, float]]
    """Its TPOT histogram, all requests included: (bound, cumulative count)."""
    pod_seconds: float


async def play(cluster: Cluster, story: Scenario, screen: Screen) -> Played:
    """Play the scenario on a stage that is set.

    Raises:
        NoAnswer: a neighbour was not there at the beginning or the end.
        ServiceGone: somebody deleted one of the services.
        ClusterError: a process of the cluster ended.
    """
    async with _observer(cluster) as observer:
        await observer.begin()
        requests = {scenario.SERVICE: story.requests(), scenario.SECOND_SERVICE: story.second_requests()}
        loads = {
            name: Load(name, wanted, lambda name=name: observer.addresses(name))  # type: ignore[misc]
            for name, wanted in requests.items()
        }
        watching = asyncio.create_task(observer.run())
        showing = asyncio.create_task(_show(observer, story, screen))
        guarding = asyncio.create_task(_guard(cluster))
        users = [asyncio.create_task(load.run(observer.began_s)) for load in loads.values()]
        try:
            await _until(story.seconds, observer, watching, showing, guarding, *users)
            tokens, _ = await observer.totals(scenario.SERVICE)
            pod_seconds = observer.facts[scenario.SERVICE].pod_seconds
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*users), LAST_ANSWERS_S)
            await asyncio.sleep(2 * scenario.SCRAPE_INTERVAL_S)
            _, buckets = await observer.totals(scenario.SERVICE)
        finally:
            for task in (watching, showing, guarding, *users):
                task.cancel()
            await asyncio.gather(watching, showing, guarding, *users, return_exceptions=True)
        return Played(observer, loads, tokens, buckets, pod_seconds)


async def _until(seconds: float, observer: Observer, *tasks: asyncio.Task[Any]) -> None:
    """Wait until the live part is over; a task that fails ends it at once."""
    while (left_s := seconds - observer.now_s()) > 0:
        done, _ = await asyncio.wait(tasks, timeout=left_s, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            _raise_fault(task)
        if len(done) == len(tasks):
            return
        tasks = tuple(task for task in tasks if not task.done())


def _raise_fault(task: asyncio.Task[Any]) -> None:
    """Raise what a task failed of: of several faults the first, without the groups that task groups put around it."""
    fault = task.exception()
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    if fault is not None:
        raise fault


@contextlib.asynccontextmanager
async def _observer(cluster: Cluster) -> AsyncIterator[Observer]:
    names = (scenario.SERVICE, scenario.SECOND_SERVICE)
    async with contextlib.AsyncExitStack() as closing:
        api = await ApiServer.connect(cluster.kubeconfig)
        closing.push_async_callback(api.close)
        engines, prometheus = Engines(api, scenario.NAMESPACE), Prometheus(cluster.prometheus_url)
        closing.push_async_callback(engines.close)
        closing.push_async_callback(prometheus.close)
        yield Observer(api, engines, prometheus, scenario.NAMESPACE, names)


async def _guard(cluster: Cluster) -> None:
    """Raise ClusterError when a process of the cluster ends, the operator's included."""
    expected = {process.name: process for process in cluster.processes()}
    while True:
        await asyncio.sleep(GUARD_S)
        for name in expected.keys() - {process.name for process in cluster.processes()}:
            log = expected[name].log
            raise ClusterError(f"{name} ended during the demo. The last lines of {log}:\n{last_lines(log)}")


async def _show(observer: Observer, story: Scenario, screen: Screen) -> None:
    while True:
        screen.show(picture(observer, story))
        await asyncio.sleep(SHOW_S)


def picture(observer: Observer, story: Scenario) -> Picture:
    """What the observer knows, as it is shown."""
    now_s = observer.now_s()
    decisions: list[Decision] = [one for facts in observer.facts.values() for one in facts.decisions]
    return Picture(
        title=TITLE,
        time_s=min(now_s, story.seconds),
        seconds=story.seconds,
        phase=story.phase(now_s) if now_s < story.seconds else "the last answers",
        rows=[row(observer, name) for name in observer.names],
        decisions=sorted(decisions, key=lambda one: one.time_s),
    )


def row(observer: Observer, name: str) -> Row:
    """One service as last measured."""
    seen: Measured = observer.timeline[name][-1]
    facts = observer.facts[name]
    return Row(
        service=name,
        ready=len(facts.serving),
        replicas=facts.desired,
        in_flight=seen.in_flight,
        target=seen.target,
        batch=seen.batch,
        speculative_tokens=seen.num_speculative_tokens,
        schedule="" if seen.schedule is None else str(seen.schedule),
        acknowledged=f"{seen.acknowledged}/{seen.ready}",
        acceptance_length=seen.acceptance_length,
        tpot_p95_s=seen.tpot_p95_s,
        objective_s=facts.objective_s,
        tokens_per_second=seen.tokens_per_second,
    )
