"""One engine pod from its address to its end: configure, load, serve, probe, crash and come back, drain.

Not as in a kubelet, so that tests need not wait: probes run at least every second, whatever their period (thresholds
still count probes); the back-off of a crashing container grows from 1 to 16 s; preStop and drain end as soon as nothing
is in flight; liveness probes are not run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import aiohttp

from outrider.simulator.behaviour import CRASH, STATUS, Behaviour, named
from outrider.simulator.command_line import parse
from outrider.simulator.exits import EngineExit
from outrider.simulator.live import LiveEngine
from outrider.simulator.pod_documents import (
    ContainerConfigError,
    MountError,
    Objects,
    Reference,
    mounted_files,
    references,
    resolve_arguments,
    resolve_environment,
)
from outrider.simulator.pod_status import ContainerState, Exit, StatusWriter
from outrider.simulator.pods import EnginePod, Probe
from outrider.simulator.probing import ProbeCounts, passes
from outrider.simulator.profile import Profile
from outrider.simulator.server import EngineServer
from outrider.simulator.settings import EngineSettings

logger = logging.getLogger(__name__)

PROBE_S = 1.0  # longest time between two probes
RETRY_CONFIG_S = 0.5  # between two looks for a missing Secret or ConfigMap
REFRESH_S = 2.0  # between two looks at mounted documents
PULL_BACK_OFF_S = 2.0  # between two looks for an image
LONGEST_BACK_OFF_S = 16.0
FORGIVEN_S = 60.0  # a container that ran for so long starts its back-off anew
KILLED = 137  # exit status after SIGKILL


class KubeletServices(Protocol):
    """What a worker needs of the kubelet around it."""

    async def objects(self, namespace: str, wanted: set[Reference]) -> Objects:
        """The ConfigMaps and Secrets that a pod refers to."""

    async def services(self, namespace: str) -> Sequence[Mapping[str, Any]]:
        """The Services of a namespace."""

    async def write_status(self, pod: EnginePod, patch: Mapping[str, Any]) -> None:
        """Patch a pod's status."""

    async def remove(self, pod: EnginePod) -> None:
        """Delete the pod for good."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything that workers share."""

    kubelet: KubeletServices
    profile: Profile
    session: aiohttp.ClientSession


class PodWorker:
    """Plays one pod; `update` tells it of a new version, `run` is its life."""

    def __init__(self, pod: EnginePod, around: Surroundings) -> None:
        self._pod = pod
        self._around = around
        self._writer = StatusWriter(pod)
        self._deleted = asyncio.Event()
        self._files: dict[str, str] = {}
        self._mount_fault = ""
        self._crashes = 0
        self._speed = 1.0
        self._state = ContainerState(restart_count=restarts_before(pod))
        self.update(pod)

    def update(self, pod: EnginePod) -> None:
        """A new version of the pod; only its deletion matters here, since containers cannot be changed."""
        self._pod = pod
        if pod.deletion_grace_s is not None:
            self._deleted.set()

    async def run(self) -> None:
        """Until the pod is deleted and gone."""
        while not self._deleted.is_set():
            how = await self._run_container()
            if how is None:
                break
            self._crashes = 1 if how.finished_s - how.started_s > FORGIVEN_S else self._crashes + 1
            logger.info("%s: exit %d: %s", self._title, how.exit_code, how.message)
            await self._show(self._state.end(how))
            await self._back_off()
            self._state = replace(self._state, restart_count=self._state.restart_count + 1)  # shown by its next state
        await self._around.kubelet.remove(self._pod)

    # One life of the container. None: the pod was deleted meanwhile.

    async def _run_container(self) -> Exit | None:
        container_id, started_s = f"simulator://{self._pod.uid}-{self._state.restart_count}", time.time()
        try:
            configured = await self._configure()
            if configured is None:
                return None
            started_s = time.time()
            await self._show(self._state.run(container_id, started_s))
            await self._live_through(*configured)
        except EngineExit as error:
            status, message = error.exit_code, error.message
        except (
            Exception
        ) as fault:  # the edge of a pod: whatever fell over, the container ends, says so and starts again
            logger.exception("%s: the simulated engine failed", self._title)
            status, message = 1, f"the simulated engine failed: {type(fault).__name__}: {fault}"
        else:
            return None
        finished_s = time.time()
        return Exit(status, message, finished_s - (finished_s - started_s) * self._speed, finished_s, container_id)

    async def _live_through(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Load, serve, drain; returns when the pod was deleted, raises `EngineExit` when the process ends by itself."""
        settings = await self._load(arguments, environment)
        if settings is None:
            return
        seed = zlib.crc32(self._pod.uid.encode())
        live = LiveEngine(
            settings, self._around.profile, seed=seed, files=self._files, behaviour=self._behaviour(settings)
        )
        server = EngineServer(live)
        try:
            await self._serve(server, live)
            await self._drain(live)
        finally:
            await server.close()

    async def _load(self, arguments: Sequence[str], environment: Mapping[str, str]) -> EngineSettings | None:
        wishes, startup = self._pod.wishes, self._pod.probe("startup")
        self._speed = wishes.speed
        if wishes.crash is not None:
            raise EngineExit(*wishes.crash)
        outcome: EngineSettings | EngineExit
        try:
            outcome = parse(arguments, environment, plugin_installed=wishes.plugin, warn=self._warn)
        except EngineExit as error:
            if not error.after_load:
                raise
            outcome = error
        budget_s = math.inf if startup is None else startup.budget_s
        if await self._deleted_within(min(wishes.load_s, budget_s) / wishes.speed):
            return None
        if budget_s < wishes.load_s:
            # The kubelet tells of the kill in an event alone; what the pod shows is the end of the log.
            raise EngineExit(KILLED, f"Loading safetensors checkpoint shards: {100 * budget_s / wishes.load_s:.0f}%")
        if isinstance(outcome, EngineExit):
            raise outcome
        if self._behaviour(outcome).crash_at_start:
            raise EngineExit(STATUS, CRASH)
        return outcome

    def _behaviour(self, settings: EngineSettings) -> Behaviour:
        """What the names of draft and image ask for, and what the test does."""
        draft = "" if settings.speculation is None else settings.speculation.draft
        return named(draft, self._pod.image, self._pod.wishes.behaviour)

    async def _serve(self, server: EngineServer, live: LiveEngine) -> None:
        wishes, address = self._pod.wishes, self._pod.address
        assert address is not None  # workers start with an address
        try:
            await server.start(address)
        except OSError as error:
            raise EngineExit(1, f"cannot listen on {address}: {error}") from error
        logger.info("%s: serves on %s", self._title, address)
        await self._show(replace(self._state, started=True))
        began_s = refreshed_s = time.monotonic()
        probe = self._pod.probe("readiness")
        counts = ProbeCounts(probe)
        while True:
            await self._probe(probe, counts)
            up_s = time.monotonic() - began_s
            if wishes.hang_after_s is not None and up_s >= wishes.hang_after_s:
                live.hang()
            if wishes.crash_after_s is not None and up_s >= wishes.crash_after_s:
                raise EngineExit(1, f"crash asked for after {wishes.crash_after_s:g} s")
            enough = live.behaviour.crash_after_requests
            if enough is not None and live.answered >= enough:
                raise EngineExit(1, f"crash asked for after {enough} requests")
            if time.monotonic() - refreshed_s >= REFRESH_S:
                refreshed_s = time.monotonic()
                await self._refresh(live)
            events = [at - up_s for at in (wishes.hang_after_s, wishes.crash_after_s) if at is not None and at > up_s]
            if await self._deleted_within(min([PROBE_S if probe is None else min(probe.period_s, PROBE_S), *events])):
                return

    async def _drain(self, live: LiveEngine) -> None:
        """preStop, then SIGTERM: unready at once; what runs may end within the time that vLLM and the pod allow."""
        grace_s = self._pod.deletion_grace_s or 0.0
        ends_s = time.monotonic() + grace_s
        await self._show(replace(self._state, ready=False))
        await self._idle(live, min(ends_s, time.monotonic() + self._pod.pre_stop_s))
        live.draining = True
        await self._idle(live, min(ends_s, time.monotonic() + live.settings.shutdown_timeout_s))
        logger.info("%s: ended with %d requests in flight", self._title, live.in_flight)

    # Parts.

    async def _configure(self) -> tuple[list[str], dict[str, str]] | None:
        """Environment and documents, as soon as everything that they refer to exists."""
        kubelet, shown = self._around.kubelet, ""
        await self._pull()
        while not self._deleted.is_set():
            pod = self._pod
            objects = await kubelet.objects(pod.namespace, references(pod))
            try:
                services = await kubelet.services(pod.namespace) if pod.service_links else []
                environment = resolve_environment(pod, objects, services)
                self._files.clear()
                self._files.update(mounted_files(pod, objects))
                return resolve_arguments(pod, environment), environment
            except ContainerConfigError as error:
                waiting = ("CreateContainerConfigError", str(error))
            except MountError as error:
                waiting = ("ContainerCreating", str(error))
            if str(waiting) != shown:
                shown = str(waiting)
                logger.info("%s: waits: %s", self._title, waiting[1])
                await self._show(self._state.wait(*waiting))
            await self._deleted_within(RETRY_CONFIG_S)
        return None

    async def _pull(self) -> None:
        """An image that is nowhere is asked for until the pod is deleted, with the kubelet's two words in turn."""
        image, failed = self._pod.unreachable_image, True
        while image and not self._deleted.is_set():
            host = image.partition("/")[0]
            error = f'failed to pull and unpack image "{image}": dial tcp: lookup {host}: no such host'
            waiting = ("ErrImagePull", error) if failed else ("ImagePullBackOff", f'Back-off pulling image "{image}"')
            await self._show(self._state.wait(*waiting))
            await self._deleted_within(PULL_BACK_OFF_S)
            failed = not failed

    async def _refresh(self, live: LiveEngine) -> None:
        """Mounted documents follow their objects; one that went away keeps its last content, as in a kubelet."""
        pod = self._pod
        objects = await self._around.kubelet.objects(pod.namespace, references(pod))
        try:
            self._files.update(mounted_files(pod, objects))
            self._mount_fault = ""
        except MountError as error:
            if str(error) != self._mount_fault:
                logger.info("%s: mounted documents stay as they were: %s", self._title, error)
            self._mount_fault = str(error)
        live.refresh()

    async def _probe(self, probe: Probe | None, counts: ProbeCounts) -> None:
        ready = True if probe is None else counts.after(await passes(self._around.session, self._pod.address, probe))
        if ready != self._state.ready:
            logger.info("%s: %s", self._title, "ready" if ready else "not ready")
            await self._show(replace(self._state, ready=ready))

    async def _back_off(self) -> None:
        """The first restart comes at once, later ones after 1, 2, 4, … seconds."""
        if self._crashes < 2:
            return
        delay_s = min(LONGEST_BACK_OFF_S, 2.0 ** (self._crashes - 2))
        name = self._pod.engine["name"]
        message = f"back-off {delay_s:.0f}s restarting failed container={name} pod={self._pod.name}"
        await self._show(self._state.wait("CrashLoopBackOff", message))
        await self._deleted_within(delay_s)

    async def _idle(self, live: LiveEngine, until_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until_s - time.monotonic())):
                await live.idle.wait()

    async def _deleted_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._deleted.wait()
        except TimeoutError:
            return False
        return True

    async def _show(self, state: ContainerState) -> None:
        self._state = state
        await self._around.kubelet.write_status(self._pod, self._writer.patch(state, time.time()))

    def _warn(self, message: str) -> None:
        logger.warning("%s: %s", self._title, message)

    @property
    def _title(self) -> str:
        return f"{self._pod.namespace}/{self._pod.name}"


def restarts_before(pod: EnginePod) -> int:
    """Restarts of the engine's container so far; one that ran under an earlier simulator ended with it."""
    for status in pod.manifest.get("status", {}).get("containerStatuses", []):
        if status["name"] == pod.engine["name"]:
            return int(status.get("restartCount", 0)) + ("running" in status.get("state", {}))
    return 0
