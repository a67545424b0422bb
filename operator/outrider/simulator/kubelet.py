"""The kubelet's part for engine pods: one worker a pod, started and told of changes by a list and a watch."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from outrider.simulator.pod_api import ApiError, Manifest, PodApi
from outrider.simulator.pod_documents import Objects, Reference
from outrider.simulator.pod_worker import PodWorker, Surroundings
from outrider.simulator.pods import EnginePod
from outrider.simulator.profile import Profile

logger = logging.getLogger(__name__)

RELIST_S = 1.0  # after a watch broke; a clean end lists again at once
RESTART_S = 0.3  # until a pod whose worker fell over gets another
REFRESH_S = 2.0  # how old a mounted object may be; a real kubelet takes up to a minute or more
_RETRIES = 6
_FIRST_RETRY_S = 0.1


@dataclass(slots=True)
class Kubelet:
    """Runs until it is cancelled; then the engines end, their pods stay as they are."""

    api: PodApi
    profile: Profile
    """Already slowed by the dilation."""
    _present: dict[str, EnginePod] = field(default_factory=dict)
    """Every engine pod there is, by UID, as last seen."""
    _workers: dict[str, tuple[PodWorker, asyncio.Task[None]]] = field(default_factory=dict)
    _objects: dict[tuple[str, Reference], tuple[float, Manifest | None]] = field(default_factory=dict)

    async def run(self) -> None:
        """List, watch, and list again."""
        async with aiohttp.ClientSession() as session:
            try:
                while True:
                    try:
                        await self._follow(session)
                    except ApiError as error:
                        logger.warning("watching pods: %s", error)
                        await asyncio.sleep(RELIST_S)
            finally:
                tasks = [task for _, task in self._workers.values()]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, session: aiohttp.ClientSession) -> None:
        pods, version = await self.api.list_pods()
        listed = [EnginePod(manifest) for manifest in pods]
        for uid in set(self._present) - {pod.uid for pod in listed}:
            self._drop(uid)
        for pod in listed:
            self._see(pod, session)
        async for kind, manifest in self.api.watch_pods(version):
            if kind == "DELETED":
                self._drop(manifest["metadata"]["uid"])
            else:
                self._see(EnginePod(manifest), session)

    def _see(self, pod: EnginePod, session: aiohttp.ClientSession) -> None:
        self._present[pod.uid] = pod
        if pod.uid in self._workers:
            self._workers[pod.uid][0].update(pod)
        elif pod.scheduled and (pod.deletion_grace_s is not None or (pod.address and not pod.ended)):
            worker = PodWorker(pod, Surroundings(self, self.profile, session))
            task = asyncio.create_task(worker.run(), name=f"{pod.namespace}/{pod.name}")
            self._workers[pod.uid] = (worker, task)
            task.add_done_callback(lambda ended: self._ended(pod.uid, ended, session))

    def _ended(self, uid: str, task: asyncio.Task[None], session: aiohttp.ClientSession) -> None:
        """Its pod is removed, or the worker fell over: then another one takes the pod, or it would hang for ever."""
        if task.cancelled():
            return
        self._workers.pop(uid, None)
        if task.exception() is not None:
            logger.error("worker of pod %s failed", task.get_name(), exc_info=task.exception())
            asyncio.get_running_loop().call_later(RESTART_S, self._again, uid, session)

    def _again(self, uid: str, session: aiohttp.ClientSession) -> None:
        if uid in self._present and not session.closed:
            self._see(self._present[uid], session)

    def _drop(self, uid: str) -> None:
        """The pod is gone from the API server, by force or by our own delete."""
        self._present.pop(uid, None)
        worker = self._workers.pop(uid, None)
        if worker is not None:
            worker[1].cancel()

    # What workers ask of it.

    async def objects(self, namespace: str, wanted: set[Reference]) -> Objects:
        """The objects that a pod refers to, at most `REFRESH_S` old; absent ones are looked for each time."""
        found: dict[Reference, Manifest | None] = {}
        for reference in wanted:
            read_s, known = self._objects.get((namespace, reference), (float("-inf"), None))
            if known is None or time.monotonic() - read_s >= REFRESH_S:
                try:
                    known = await self.api.get(reference[0], namespace, reference[1])
                except ApiError as error:
                    # What was there stays; what was never read counts as absent, and its pod waits and asks again.
                    logger.warning("reading %s %s/%s: %s", reference[0], namespace, reference[1], error)
                self._objects[namespace, reference] = (time.monotonic(), known)
            found[reference] = known
        return found

    async def services(self, namespace: str) -> Sequence[Manifest]:
        """The Services of a namespace; none if they cannot be read, as for a kubelet that starts without them."""
        try:
            return await self.api.list_services(namespace)
        except ApiError as error:
            logger.warning("reading Services of %s: %s", namespace, error)
            return []

    async def write_status(self, pod: EnginePod, patch: Mapping[str, Any]) -> None:
        """Patch a pod's status, again and again for a while; a pod that is gone is no fault."""
        try:
            await _insist(lambda: self.api.patch_status(pod.namespace, pod.name, patch), gone=(404,))
        except ApiError as error:
            logger.warning("status of %s/%s not written: %s", pod.namespace, pod.name, error)

    async def remove(self, pod: EnginePod) -> None:
        """Delete the pod for good: nothing of it runs any more. A conflict means that another one has its name."""
        await _insist(lambda: self.api.delete_pod(pod.namespace, pod.name, pod.uid), gone=(404, 409))


async def _insist(call: Callable[[], Awaitable[None]], *, gone: Collection[int]) -> None:
    """Repeat a call for a while where that may help; the statuses of ``gone`` leave nothing to do.

    Raises:
        ApiError: the last one.
    """
    delay_s = _FIRST_RETRY_S
    for attempt in range(_RETRIES):
        try:
            return await call()
        except ApiError as error:
            if error.status in gone:
                return None
            refused = 400 <= error.status < 500 and error.status not in (409, 429)
            if refused or attempt == _RETRIES - 1:
                raise
        await asyncio.sleep(delay_s)
        delay_s *= 2
    return None
