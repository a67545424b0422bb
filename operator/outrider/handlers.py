"""Kopf's side of the operator: event handlers that hand on, start-up, clean-up and probes. The only module that knows
Kopf.

Event handlers alone put neither finalizers nor annotations on an object, so a resource can be deleted while the
operator is away, and Git sees nothing of us. Nothing is returned: Kopf would write it into status.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import replace
from typing import Any, Protocol

import kopf

from outrider.adapters.engine import EngineAdmin
from outrider.adapters.kube import Kube
from outrider.adapters.prometheus import Prometheus
from outrider.adapters.prometheus_access import Access
from outrider.api import GROUP, PLURAL, VERSION
from outrider.reconcile.control import ControlPass, every
from outrider.reconcile.lane import Lane
from outrider.reconcile.neighbours import Neighbours
from outrider.reconcile.objects import ObjectsPass
from outrider.reconcile.queue import WorkQueue
from outrider.reconcile.quotas import PERIODS as QUOTA_PERIODS
from outrider.reconcile.quotas import QuotaLook
from outrider.reconcile.registry import SERVICE_LABEL, Registry, ServiceKey
from outrider.reconcile.resync import EVERY_S as RESYNC_S
from outrider.reconcile.resync import Resync
from outrider.reconcile.scaling_look import PERIODS, ScalingLook
from outrider.settings import Settings

logger = logging.getLogger(__name__)

CHILDREN = (
    ("", "v1", "pods"),
    ("", "v1", "configmaps"),
    ("", "v1", "services"),
    ("", "v1", "serviceaccounts"),
    ("apps", "v1", "deployments"),
    ("autoscaling", "v2", "horizontalpodautoscalers"),
    ("networking.k8s.io", "v1", "networkpolicies"),
    ("policy", "v1", "poddisruptionbudgets"),
    ("keda.sh", "v1alpha1", "scaledobjects"),
)
"""Kinds of children that are watched, and the HPA that KEDA makes of one; Secrets are not, so that no right to list
them is needed."""
CONTROL_LATE = 4
"""Control periods without a finished pass, or a part of one, after which the process counts as dead and is restarted.
The first pass over thousands of services takes longer, and would never end if the process was."""


class Leads(Protocol):
    """Who knows whether this operator is the active one."""

    def leads(self) -> bool:
        """Whether it may act, at this moment."""

    def sentence(self) -> str:
        """How it stands, for people."""


class Operator:
    """One process: registry, queue, both passes, and the tasks that run them."""

    def __init__(self, settings: Settings, leadership: Leads) -> None:
        self.settings, self.leadership = settings, leadership
        self.registry = Registry()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = contextlib.AsyncExitStack()
        self._queue: WorkQueue[ServiceKey] | None = None
        self._resync: Resync | None = None
        self._control_s = time.monotonic()

    async def start(self) -> None:
        """Connect to the neighbours and start the two flows."""
        leads = self.leadership.leads
        kube, engines = await Kube.connect(may_write=leads), EngineAdmin(may_write=leads)
        self._closing.push_async_callback(kube.close)
        self._closing.push_async_callback(engines.close)
        store = Prometheus(self.settings.prometheus, Access.of(self.settings))
        neighbours = Neighbours(kube, store, engines, time.time, self.settings)
        objects = ObjectsPass(self.registry, neighbours, self._wake.set)
        self._queue = WorkQueue(objects.run)
        beside = replace(neighbours, kube=Lane(kube))
        control = ControlPass(self.registry, beside, self._queue.remind, got_on=self._control_got_on)

        async def control_pass() -> None:
            await control.run()
            self._control_got_on()

        look = ScalingLook(self.registry, kube, self._queue.add, self.settings.namespaces)
        quotas = QuotaLook(self.registry, kube, self.settings.namespaces)
        self._resync = Resync(self.registry, kube, self.settings.namespaces, self._queue.add)
        self._tasks = [
            asyncio.create_task(self._queue.run(), name="objects"),
            asyncio.create_task(every(self.settings.control_period_s, control_pass, self._wake), name="control"),
            asyncio.create_task(
                every(PERIODS * self.settings.control_period_s, look.run, asyncio.Event()), name="scaling path"
            ),
            asyncio.create_task(
                every(QUOTA_PERIODS * self.settings.control_period_s, quotas.run, asyncio.Event()), name="quotas"
            ),
            asyncio.create_task(every(RESYNC_S, self._resync.run, asyncio.Event()), name="resync"),
        ]
        for task in self._tasks:
            task.add_done_callback(_end_with)

    async def stop(self) -> None:
        """End the flows; what was decided is in the memory documents already."""
        for task in self._tasks:
            task.remove_done_callback(_end_with)
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._closing.aclose()

    def resource_event(self, event_type: str | None, body: Any) -> None:
        """A resource was seen, changed or deleted."""
        key, news = self.registry.resource_event(event_type, body)
        if news:
            self._enqueue(key)

    def child_event(self, event_type: str | None, body: Any) -> None:
        """A child was seen, changed or deleted."""
        key, news = self.registry.child_event(event_type, body)
        if news:
            self._enqueue(key)

    def _control_got_on(self) -> None:
        self._control_s = time.monotonic()

    def control_age_s(self) -> float:
        """Seconds since a control pass, or a part of one, ended.

        Raises:
            RuntimeError: too long ago; the liveness probe fails and the process is started again.
        """
        age_s = time.monotonic() - self._control_s
        if age_s > CONTROL_LATE * max(self.settings.control_period_s, 15.0):
            raise RuntimeError(f"control passes have not got on for {age_s:.0f} s")
        return age_s

    def watch(self) -> str:
        """That the watch of services tells what changes, as far as the lists know.

        Raises:
            RuntimeError: it has kept a change from us; the liveness probe fails and the process is started again.
        """
        if self._resync is not None and self._resync.silent is not None:
            name = "/".join(self._resync.silent)
            raise RuntimeError(f"the watch of services has not told of a change of {name} for {RESYNC_S:.0f} s")
        return "tells"

    def _enqueue(self, key: ServiceKey) -> None:
        if self._queue is not None:
            if self.registry.get(key) is None:
                self._queue.forget(key)
            else:
                self._queue.add(key)


def register(operator: Operator) -> kopf.OperatorRegistry:
    """Kopf's registry with our handlers bound to this operator."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        # Kopf's own readers of token files and kubeconfigs: the synchronous client would cost 70 MB for this alone.
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    # Permanent, or Kopf would try again in a minute, and hold the lease meanwhile without doing anything.
    @kopf.on.startup(errors=kopf.ErrorsMode.PERMANENT, registry=registry)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        _configure(settings)
        await operator.start()

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        await operator.stop()

    # Permanent, or Kopf would try again in a minute and leave the probe without an answer.
    @kopf.on.probe(id="control_pass_age_seconds", errors=kopf.ErrorsMode.PERMANENT, registry=registry)
    async def control_pass_age(**_: Any) -> float:
        return operator.control_age_s()

    @kopf.on.probe(id="leader", registry=registry)
    async def leader(**_: Any) -> str:
        return operator.leadership.sentence()

    @kopf.on.probe(id="watch", errors=kopf.ErrorsMode.PERMANENT, registry=registry)
    async def watch(**_: Any) -> str:
        return operator.watch()

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def resource(event: kopf.RawEvent, **_: Any) -> None:
        operator.resource_event(event["type"], event["object"])

    for group, version, plural in CHILDREN:

        @kopf.on.event(group, version, plural, labels={SERVICE_LABEL: kopf.PRESENT}, registry=registry, id=plural)
        async def child(event: kopf.RawEvent, **_: Any) -> None:
            operator.child_event(event["type"], event["object"])

    return registry


def _configure(settings: kopf.OperatorSettings) -> None:
    settings.posting.enabled = False  # we post our own events, about decisions
    settings.peering.standalone = True
    settings.watching.server_timeout = (
        300  # a watch that was cut without a word is replaced within five minutes at most
    )
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.process.ultimate_exiting_timeout = 20  # below the pod's grace period
    for group, version, plural in CHILDREN:
        settings.watching.label_selectors[group, version, plural] = SERVICE_LABEL


def _end_with(task: asyncio.Task[None]) -> None:
    """A flow that ends by itself leaves a process that looks alive and does nothing: end it, and be started again."""
    if not task.cancelled():
        logger.critical("the %s flow ended: %r", task.get_name(), task.exception())
        raise SystemExit(1)
