"""A schedule on its way to the engines: put to every ready pod, acknowledged, renewed before its lease runs out.

Pods that are still to come find the same document in their mounted ConfigMap. A pod that does not take the schedule
holds nobody up: the refusal is noted, shown in status, and tried again with the next pass.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from outrider import telemetry
from outrider.errors import EngineError, KeyRefused, StaleGeneration
from outrider.reconcile import persistence
from outrider.reconcile.neighbours import Neighbours
from outrider.reconcile.registry import EnginePod, Service

logger = logging.getLogger(__name__)

RENEW_AFTER = 1 / 3
"""Share of the lease after which it is renewed: two renewals may be missed before an engine falls back."""
MAX_PARALLEL = 16
"""Open admin calls of one service: enough for a fleet of pods in a second, few enough to leave sockets to the
others."""


def due(service: Service, now_s: float, lease_s: int) -> list[EnginePod]:
    """Ready pods whose engine has not acknowledged the present generation, or not within a third of the lease."""
    assert service.state is not None
    fresh_s = now_s - lease_s * RENEW_AFTER
    pods = []
    for pod in service.ready_pods:
        generation, since_s = service.acknowledged.get(pod.uid, (None, 0.0))
        if pod.address and (generation != service.state.generation or since_s < fresh_s):
            pods.append(pod)
    return pods


async def bring_up_to_date(service: Service, neighbours: Neighbours) -> None:
    """Deliver the schedule to every pod that is due; where an engine turns out to be ahead of us, go on above it."""
    if service.state is None:
        return
    pods = due(service, neighbours.clock(), neighbours.settings.lease_s)
    if await deliver(service, pods, neighbours):
        await persistence.save(service, neighbours)
        await deliver(service, pods, neighbours)


async def deliver(service: Service, pods: Sequence[EnginePod], neighbours: Neighbours) -> bool:
    """Put the present schedule to these pods at once.

    Returns whether an engine turned out to hold a later generation: the state then continues above it, and the caller
    saves and delivers again.
    """
    if not pods or service.admin_key is None or service.state is None:
        return False
    gate = asyncio.Semaphore(MAX_PARALLEL)

    async def one(pod: EnginePod) -> int:
        async with gate:
            return await _put(service, pod, neighbours)

    latest = max(await asyncio.gather(*map(one, pods)))
    if latest <= service.state.generation:
        return False
    service.state = replace(service.state, generation=latest)
    return True


async def _put(service: Service, pod: EnginePod, neighbours: Neighbours) -> int:
    """Deliver to one pod; returns the generation that the service must have at least."""
    state, key = service.state, service.admin_key
    assert state is not None
    assert key is not None
    assert pod.address is not None
    try:
        answer = await neighbours.engines.put_schedule(
            pod.address, key, state.generation, state.schedule, neighbours.settings.lease_s
        )
    except EngineError as error:
        telemetry.DELIVERY_FAILURES.labels(error.reason).inc()
        service.refusals[pod.uid] = error.message
        service.acknowledged.pop(pod.uid, None)
        if isinstance(error, KeyRefused):
            service.admin_key = None  # read again with the next objects pass
        namespace, name = service.key
        extra = {"namespace": namespace, "service": name, "pod": pod.name, "reason": error.reason}
        logger.warning("schedule not taken: %s", error.message, extra=extra)
        return error.generation + 1 if isinstance(error, StaleGeneration) else 0
    telemetry.DELIVERY_SECONDS.observe(answer.seconds)
    service.refusals.pop(pod.uid, None)
    service.acknowledged[pod.uid] = (answer.generation, neighbours.clock())
    return answer.generation
