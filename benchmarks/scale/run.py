"""One size from an empty cluster to its figures, a phase at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp

from benchmarks.scale import flame, objects
from benchmarks.scale.client import MERGE, Client, each
from benchmarks.scale.engines import PER_PAGE, pod_name, service_name
from benchmarks.scale.found import Extent, Run, decisions
from benchmarks.scale.station import address
from benchmarks.scale.witness import Passes, Use, audited, sample, scraped, writes
from tests.testbed import operator
from tests.testbed.cluster import Cluster
from tests.testbed.errors import ClusterError

SELECTOR = "app.kubernetes.io/managed-by=outrider"
SERVICES = "api/v1/services"
RESOURCES = "apis/serving.outrider.dev/v1alpha1/speculativeinferenceservices"
PROFILE = "profile.folded"
MANY = 2000
"""Services above which pods are there before the operator: a second start would take too long."""


class Scene:
    """A cluster with services on it, and the operator."""

    def __init__(self, cluster: Cluster, client: Client, services: int, settings: Mapping[str, str]) -> None:
        self.cluster, self.client, self.services, self.settings = cluster, client, services, settings
        self.run = Run(services)
        self.command = (sys.executable, "-m", "benchmarks.scale.sampled", str(cluster.logs / PROFILE))
        self.passes = Passes("")
        self._tasks: list[asyncio.Task[None]] = []
        self._runs = False

    async def create(self) -> None:
        """Namespaces and resources, as users apply them."""
        began_s = time.monotonic()
        for namespace in dict.fromkeys(service_name(number)[0] for number in range(self.services)):
            named = {"metadata": {"name": namespace}}
            await self.client.call("POST", "api/v1/namespaces", named)
            account = {"metadata": {"name": "default"}}  # a controller's work, and no controllers run
            await self.client.call("POST", f"api/v1/namespaces/{namespace}/serviceaccounts", account)

        async def one(number: int) -> None:
            namespace, name = service_name(number)
            path = objects.RESOURCES.format(namespace, "").rstrip("/")
            await self.client.call("POST", path, objects.resource(namespace, name))

        await each(one, range(self.services))
        self.run.created_s = time.monotonic() - began_s

    async def start_operator(self) -> None:
        """Start it, and follow its passes."""
        operator.start(self.cluster, self.settings, command=self.command)
        self._runs = True
        port = self.cluster.port(f"{operator.PROCESS}-metrics")
        own = {"namespace": operator.NAMESPACE, "__scrape_interval__": "15s", "__scrape_timeout__": "10s"}
        self.cluster.add_scrape_target(operator.PROCESS, f"127.0.0.1:{port}", own)  # as often as with our chart
        self.passes = Passes(f"http://127.0.0.1:{port}/metrics")
        self._tasks = [asyncio.create_task(self.passes.follow())]

    async def stop_operator(self) -> None:
        """End it as a node does."""
        self._runs = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(ClusterError):  # it may have ended by itself
            await asyncio.to_thread(self.cluster.stop_process, operator.PROCESS, patience_s=60.0)

    @property
    def pid(self) -> int:
        """The operator's process.

        Raises:
            RuntimeError: it has ended by itself; with what it said last.
        """
        for one in self.cluster.processes():
            if one.name == operator.PROCESS:
                return one.pid
        raise RuntimeError(f"the operator has ended: {self.log()[-1].get('message', '')[:300]}")

    async def watched(self, phase: Callable[[], Awaitable[None]]) -> None:
        """A phase, which ends with a RuntimeError where the operator does."""
        playing = asyncio.ensure_future(phase())
        try:
            while not (await asyncio.wait({playing}, timeout=2.0))[0]:
                if self._runs:
                    self.run.peak_rss_mib = max(self.use().peak_rss_mib, self.run.peak_rss_mib or 0.0)
            await playing
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)

    def use(self) -> Use:
        """What the operator takes."""
        return Use.of(self.pid)

    async def queries(self) -> float:
        """Questions that Prometheus has answered so far."""
        async with aiohttp.ClientSession() as session:
            text = await scraped(session, f"{self.cluster.prometheus_url}/metrics")
        self.run.series = int(sample(text, "prometheus_tsdb_head_series"))
        return sample(text, "prometheus_http_requests_total", handler="/api/v1/query")

    # The phases.

    async def cold_start(self) -> None:
        """From the start of the operator's process until every status tells of its resource."""
        waiting = {service_name(number) for number in range(self.services)}
        async with self.client.seen(RESOURCES) as next_one:
            began_s = time.monotonic()
            await self.start_operator()
            while waiting:
                body = await next_one()
                meta = body["metadata"]
                status = body.get("status", {})
                # Its replicas are known once there is a Deployment, the last child that is applied.
                if status.get("observedGeneration") == meta["generation"] and "replicas" in status:
                    waiting.discard((meta["namespace"], meta["name"]))
            self.run.cold_start_s = time.monotonic() - began_s

    async def pods_ahead(self) -> None:
        """The pods of Deployments that the operator is still to make, for a size at which it takes long to do so."""
        await start_engines(self.cluster, self.services)
        await each(lambda number: self._pod(number, objects.deployment(*service_name(number))), range(self.services))

    async def bring_pods(self) -> None:
        """The engines begin to serve, and every Deployment gets its one pod, which is ready at once.

        The operator is away: with it every pod would be news four times, at the pace of a client and not of a cluster.
        """
        self.run.peak_rss_mib = self.use().peak_rss_mib
        await self.stop_operator()
        await start_engines(self.cluster, self.services)

        async def one(number: int) -> None:
            namespace, name = service_name(number)
            apps = f"apis/apps/v1/namespaces/{namespace}/deployments/{name}"
            deployment = await self.client.call("GET", apps)
            await self._pod(number, deployment)
            whole = objects.deployment_status(deployment["metadata"]["generation"], _now())
            await self.client.call("PATCH", f"{apps}/status", whole, MERGE)

        await each(one, range(self.services))

    async def _pod(self, number: int, deployment: objects.Manifest) -> None:
        namespace, name = service_name(number)
        pods = f"api/v1/namespaces/{namespace}/pods"
        await self.client.call("POST", pods, objects.pod(deployment))
        engine = deployment["spec"]["template"]["spec"]["containers"][0]["name"]
        ready = objects.pod_status(address(self.cluster.pod_range, number), _now(), engine)
        await self.client.call("PATCH", f"{pods}/{pod_name(name)}/status", ready, MERGE)

    async def restart(self) -> None:
        """A new process finds everything in place: until it has looked at every service once."""
        began_s = time.monotonic()
        await self.start_operator()
        while self.passes.reconciled < self.services:  # noqa: ASYNC110  # as long as it takes a scrape to tell
            await asyncio.sleep(0.2)
        self.run.restart_s = time.monotonic() - began_s

    async def rest(self, seconds: float) -> None:
        """Constant noisy load, nobody changes anything."""
        run, began_s = self.run, time.time()
        before, queries = self.use(), await self.queries()
        await asyncio.sleep(seconds)
        ended_s = time.time()
        after = self.use()
        run.rest_minutes = (ended_s - began_s) / 60.0
        run.queries_per_minute = (await self.queries() - queries) / run.rest_minutes
        run.rest_cpu_cores = (after.cpu_s - before.cpu_s) / (ended_s - began_s)
        run.rest_rss_mib = after.rss_mib
        run.passes_s += self.passes.durations_s(began_s, ended_s)
        found = audited(self.cluster.logs, began_s, ended_s)
        run.rest_writes = writes(found)
        run.rest_reads = found.total() - sum(run.rest_writes.values())
        run.rest_changes = decisions(self.log(), began_s, ended_s)

    async def single_changes(self, seconds: float) -> None:
        """One change after another, evenly over the time, so that control passes come in between."""
        count = min(self.services, int(2 * seconds))
        began_s = time.time()
        self.run.single_s = await self._changes(range(count), 1, pace_s=seconds / count)
        self.run.passes_s += self.passes.durations_s(began_s, time.time())

    async def burst(self) -> None:
        """A tenth of the services change at once, five hundred at most."""
        count = min(500, max(1, self.services // 10))
        self.run.burst_s = await self._changes(range(self.services - count, self.services), count, pace_s=0.0)

    async def moving(self, seconds: float) -> None:
        """Load and acceptance of every service move."""
        await move_load(self.cluster, "moving")
        began_s = time.time()
        await asyncio.sleep(seconds)
        ended_s = time.time()
        self.run.moving_minutes = (ended_s - began_s) / 60.0
        self.run.moving_writes = writes(audited(self.cluster.logs, began_s, ended_s))
        self.run.passes_moving_s = self.passes.durations_s(began_s, ended_s)
        await move_load(self.cluster, "steady")

    async def sampled(self, seconds: float) -> None:
        """Let the operator be sampled under constant load."""
        os.kill(self.pid, signal.SIGUSR2)
        await asyncio.sleep(seconds)
        os.kill(self.pid, signal.SIGUSR2)
        written = self.cluster.logs / PROFILE
        while not written.exists():  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.1)
        self.run.profile = written.read_text()
        self.run.shares = flame.shares(flame.read(self.run.profile))

    async def end(self) -> None:
        """End the operator, and see what it warned of."""
        if not self.passes.url:
            return  # it was never started
        await self.stop_operator()
        self.run.warnings = dict(
            Counter(line["reason"] for line in self.log() if line["level"] != "info").most_common()
        )

    def log(self) -> list[dict[str, Any]]:
        """The operator's log."""
        found = []
        for line in operator.log(self.cluster).splitlines():
            with contextlib.suppress(ValueError):
                found.append({"reason": "", **json.loads(line)})
        return found

    # Helpers.

    async def _changes(self, numbers: range, at_once: int, pace_s: float) -> list[float]:
        """Send changes; how long each took from its sending to the Service that shows it, where it came in time."""
        sent: dict[tuple[str, str], float] = {}
        took: list[float] = []
        marker = int(time.time())

        async def send(number: int) -> None:
            namespace, name = service_name(number)
            sent[namespace, name] = time.monotonic()
            path = objects.RESOURCES.format(namespace, name)
            await self.client.call("PATCH", path, objects.change(marker), MERGE)
            await asyncio.sleep(pace_s)

        async with self.client.seen(SERVICES, SELECTOR) as next_one:
            sending = asyncio.create_task(each(send, numbers, at_once))
            try:
                while len(took) < len(numbers):
                    meta = (await next_one())["metadata"]
                    if meta.get("annotations", {}).get(objects.CHANGED) == str(marker):
                        took.append(time.monotonic() - sent.pop((meta["namespace"], meta["name"])))
            finally:
                await sending
        return took


async def start_engines(cluster: Cluster, services: int) -> None:
    """The pages and admin ports, and Prometheus told of them."""
    port = cluster.port("station")
    arguments = [sys.executable, "-m", "benchmarks.scale.station"]
    cluster.start_process("station", [*arguments, str(services), cluster.pod_range, str(port)])
    for number in range(-(-services // PER_PAGE)):
        cluster.add_scrape_target(f"page-{number}", f"127.0.0.1:{port}", {"__metrics_path__": f"/page/{number}"})
    while True:
        with contextlib.suppress(aiohttp.ClientError):
            return await move_load(cluster, "steady")
        await asyncio.sleep(0.2)


async def move_load(cluster: Cluster, what: str) -> None:
    """``moving`` or ``steady``."""
    url = f"http://127.0.0.1:{cluster.port('station')}/load/{what}"
    async with aiohttp.ClientSession() as session, session.post(url):
        pass


async def measure(
    services: int, extent: Extent, settings: Mapping[str, str], *, scrape_interval_s: float, until_s: float
) -> Run:
    """Everything at one size, or up to the phase that does not end until then (on the monotonic clock)."""
    with Cluster({"prometheus"}, scrape_interval_s=scrape_interval_s) as cluster:
        operator.install(cluster)
        async with Client(cluster.kubeconfig) as client:
            scene = Scene(cluster, client, services, settings)
            for what, phase in _phases(scene, extent):
                began_s = time.monotonic()
                try:
                    async with asyncio.timeout(max(0.0, until_s - began_s)):
                        await scene.watched(phase)
                except (TimeoutError, ExceptionGroup, RuntimeError, aiohttp.ClientError) as error:
                    scene.run.ended_at = f"{what}: {_first(error) or 'no time was left'}"
                    _tell(f"{services}: {scene.run.ended_at}")
                    break
                _tell(f"{services}: {what} took {time.monotonic() - began_s:.1f} s")
            await scene.end()
    return scene.run


def _phases(scene: Scene, extent: Extent) -> tuple[tuple[str, Callable[[], Awaitable[None]]], ...]:
    starts: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = (
        ("cold start", scene.cold_start),
        ("pods", scene.bring_pods),
        ("restart", scene.restart),
    )
    if scene.services > MANY:
        starts = (("pods", scene.pods_ahead), ("cold start", scene.cold_start))
    return (
        ("resources", scene.create),
        *starts,
        ("single changes", lambda: scene.single_changes(extent.changes_s)),
        ("profile", lambda: scene.sampled(extent.profile_s)),
        ("settling", lambda: asyncio.sleep(extent.settle_s)),
        ("rest", lambda: scene.rest(extent.rest_s)),
        ("changes at once", scene.burst),
        ("moving load", lambda: scene.moving(extent.moving_s)),
    )


def _first(error: BaseException) -> str:
    """What an error says, or the first of a group's."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else str(error)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)  # noqa: T201
