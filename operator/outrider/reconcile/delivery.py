"""A schedule on its way to the engines: put to every ready pod, acknowledged, renewed before its lease runs out.

Pods that are still to come find the same document in their mounted ConfigMap. A pod that does not take the schedule
holds nobody up: the refusal is noted, shown in status, and tried again with the next pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from outrider import telemetry
from outrider.adapters.engine import Acknowledgement
from outrider.core.obedience import judge
from outrider.core.observation import Observation
from outrider.core.state import ControllerState
from outrider.errors import (
    EngineError,
    EngineUnreachable,
    KeyRefused,
    NotControllable,
    ScheduleRefused,
    StaleGeneration,
)
from outrider.reconcile import persistence
from outrider.reconcile.engine_pod import EnginePod
from outrider.reconcile.neighbours import Neighbours
from outrider.reconcile.redaction import MASK, first_words
from outrider.reconcile.registry import Service

logger = logging.getLogger(__name__)

RENEW_AFTER = 1 / 3
"""Share of the lease after which it is renewed: two renewals may be missed before an engine falls back."""
WORDS = 300
"""Characters of an engine's refusal that are kept."""
MAX_PARALLEL = 64
"""Open admin calls of one service: enough for a fleet of pods in a second, few enough to leave sockets to the
others."""


def due(service: Service, now_s: float, lease_s: int) -> list[EnginePod]:
    """Pods of either track that serve and have not acknowledged the present generation, or not within a third of the
    lease."""
    assert service.state is not None
    pause_s = lease_s * RENEW_AFTER
    pods = []
    for pod in service.serving_pods:
        answers = (service.acknowledged.get(pod.uid), service.declined.get(pod.uid))
        # A clock that was set back must not stop renewals: an answer from the future is none.
        settled = any(
            answer is not None and answer[0] == service.state.generation and now_s - pause_s <= answer[1] <= now_s
            for answer in answers
        )
        if pod.address and not settled:
            pods.append(pod)
    return pods


def check(service: Service, window: Observation) -> None:
    """Note which engines do not run what they acknowledged, until they are seen to, or acknowledge it anew."""
    assert service.state is not None
    generation = service.state.generation
    pods = {pod.name: pod for pod in service.ready_pods if pod.uid in service.acknowledged}
    told = {name: service.acknowledged[pod.uid] for name, pod in pods.items()}
    for name, why in judge(window, told, generation, service.state.schedule).items():
        pod = pods[name]
        if not why:
            service.refusals.pop(pod.uid, None)
            continue
        if pod.uid in service.refusals:
            continue
        telemetry.DELIVERY_FAILURES.labels("Disobedient").inc()
        service.refusals[pod.uid] = (
            f"engine {pod.address} acknowledged schedule {generation}, and {why}: restart pod {name}; if it does so"
            " again, report its versions of vLLM and of the runtime plugin"
        )
        logger.warning("schedule not followed: %s", service.refusals[pod.uid], extra=_keys(service, pod, "Disobedient"))


async def bring_up_to_date(service: Service, neighbours: Neighbours) -> None:
    """Deliver the schedule to every pod that is due; where an engine turns out to be ahead of us, go on above it.

    Raises:
        KubeError, NotReady: the memory document could not be written, so nothing was delivered.
    """
    if service.state is None:
        return
    await persistence.record(service, neighbours)
    pods = due(service, neighbours.clock(), neighbours.settings.lease_s)
    if await deliver(service, pods, neighbours):
        await persistence.record(service, neighbours)
        await deliver(service, pods, neighbours)


async def deliver(service: Service, pods: Sequence[EnginePod], neighbours: Neighbours) -> bool:
    """Put the present schedule to these pods at once.

    Returns whether an engine turned out to hold a later generation: the state then continues above it, and the caller
    saves and delivers again.
    """
    if not pods or service.admin_key is None or service.state is None:
        return False
    gate, state, keys = asyncio.Semaphore(MAX_PARALLEL), service.state, (service.admin_key, *service.older_keys)

    async def one(pod: EnginePod) -> int:
        async with gate:
            return await _put(service, state, keys, pod, neighbours)

    latest = max(await asyncio.gather(*map(one, pods)))
    if latest <= service.state.generation:
        return False
    service.state = replace(service.state, generation=latest)
    return True


async def _put(
    service: Service, state: ControllerState, keys: Sequence[str], pod: EnginePod, neighbours: Neighbours
) -> int:
    """Deliver to one pod; returns the generation that the service must have at least."""
    try:
        answer = await _with_any(keys, state, pod, neighbours)
    except EngineError as error:
        # Whoever answers there may say anything, and repeat what it was asked with.
        said = first_words(reduce(lambda text, key: text.replace(key, MASK), keys, error.message), WORDS)
        _refused(service, state, pod, error, said, neighbours)
        return error.generation + 1 if isinstance(error, StaleGeneration) else 0
    telemetry.DELIVERY_SECONDS.observe(answer.seconds)
    service.refusals.pop(pod.uid, None)
    service.declined.pop(pod.uid, None)
    if pod.name in service.pods:
        service.acknowledged[pod.uid] = (answer.generation, neighbours.clock())
    return answer.generation


async def _with_any(
    keys: Sequence[str], state: ControllerState, pod: EnginePod, neighbours: Neighbours
) -> Acknowledgement:
    """Put the schedule with the first key that the engine takes: the kubelet brings it a new one within minutes."""
    assert pod.address is not None
    document = (state.generation, state.schedule, neighbours.settings.lease_s)
    for key in keys[:-1]:
        with contextlib.suppress(KeyRefused):
            return await neighbours.engines.put_schedule(pod.address, key, *document)
    return await neighbours.engines.put_schedule(pod.address, keys[-1], *document)


def _refused(
    service: Service, state: ControllerState, pod: EnginePod, error: EngineError, said: str, neighbours: Neighbours
) -> None:
    """Take note of it, and of whether asking again can help; a pod that went meanwhile leaves nothing behind."""
    telemetry.DELIVERY_FAILURES.labels(error.reason).inc()
    service.acknowledged.pop(pod.uid, None)
    if pod.name in service.pods:
        service.refusals[pod.uid] = said
        plain = isinstance(error, EngineUnreachable) and not service.controllable
        if plain or isinstance(error, NotControllable | ScheduleRefused):
            service.declined[pod.uid] = (state.generation, neighbours.clock())
    if isinstance(error, KeyRefused):
        service.admin_key = None  # the next objects pass reads it again
    logger.warning("schedule not taken: %s", said, extra=_keys(service, pod, error.reason))


def _keys(service: Service, pod: EnginePod, reason: str) -> dict[str, str]:
    return {"namespace": service.key[0], "service": service.key[1], "pod": pod.name, "reason": reason}
