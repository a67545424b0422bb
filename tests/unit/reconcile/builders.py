"""A small world to run passes in: one registry, both passes, and stand-ins for all neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.core import engine_metrics as names
from outrider.core.series import Series
from outrider.errors import Forbidden, Unavailable
from outrider.manifests.meta import TRACK_LABEL
from outrider.reconcile.control import ControlPass
from outrider.reconcile.neighbours import Neighbours
from outrider.reconcile.objects import ObjectsPass
from outrider.reconcile.registry import SERVICE_LABEL, Registry, Service, ServiceKey
from outrider.settings import Settings
from tests.unit.api.bodies import changed, example

from .fakes import NOW_S, FakeClock, FakeEngines, FakeKube, FakeMetrics, Manifest

KEY = ("ml", "chat")
UID = "5f0c"
ENGINE_UID = "pod-uid-"
FIXED_REPLICAS: dict[str, Any] = {"spec.autoscaling": {"mode": "Off", "minReplicas": 3}}
EAGER: dict[str, Any] = {"spec.speculation.tuning": {"mode": "Adaptive", "policy": "AcceptanceThreshold"}}
"""Changes under which one good window raises K from 3 to 5."""


def settings(**changes: Any) -> Settings:
    """Settings of an operator with the defaults of a platform team that set nothing else."""
    return Settings(prometheus_url="http://prometheus.monitoring:9090", **changes)  # type: ignore[arg-type]


def body(changes: Mapping[str, Any] | None = None, name: str = "chat", generation: int = 3) -> Manifest:
    """The minimal example as the API server has it."""
    meta = {"metadata.name": name, "metadata.uid": UID if name == "chat" else f"uid-{name}"}
    return changed(example(), meta | {"metadata.generation": generation} | dict(changes or {}))


def pod(
    name: str = "chat-a",
    *,
    service: str = "chat",
    address: str | None = "10.0.0.1",
    ready: bool = True,
    uid: str | None = None,
    terminating: bool = False,
    restarts: int = 0,
    container: Mapping[str, Any] | None = None,
    conditions: Sequence[Mapping[str, Any]] = (),
    revision: str = "r1",
    track: str = "stable",
    startup_s: int = 1800,
    grace_s: int = 90,
    ready_since: str | None = None,
    created: str | None = None,
    **status: Any,
) -> Manifest:
    """An engine pod as the API server has it; ``container`` is the container's state, ``status`` more of the pod's."""
    meta: Manifest = {
        "name": name,
        "namespace": "ml",
        "uid": uid or ENGINE_UID + name,
        "labels": {SERVICE_LABEL: service, TRACK_LABEL: track, "serving.outrider.dev/revision": revision},
    }
    if created is not None:
        meta["creationTimestamp"] = created
    if terminating:
        meta["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    readiness = {"type": "Ready", "status": "True" if ready else "False"}
    if ready_since is not None:
        readiness["lastTransitionTime"] = ready_since
    probe = {"periodSeconds": 5, "failureThreshold": startup_s // 5}
    spec = {"containers": [{"name": "engine", "startupProbe": probe}], "terminationGracePeriodSeconds": grace_s}
    status |= {
        "conditions": [readiness, *conditions],
        "containerStatuses": [
            {"name": "engine", "restartCount": restarts, **(container or {"state": {"running": {}}})}
        ],
    }
    if address is not None:
        status["podIP"] = address
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def busy_series(
    at_s: float, pods: Sequence[str] = ("chat-a",), *, rate: float = 0.9, k: int = 3, running: float = 8.0
) -> list[Series]:
    """The last minute of engines that draft steadily, ``rate`` of the drafted tokens accepted at every position."""
    times = [at_s - 60.0 + 5.0 * step for step in range(13)]

    def counter(pod: str, name: str, per_s: float, **labels: str) -> Series:
        samples = tuple((time_s, per_s * (time_s - NOW_S + 3600.0)) for time_s in times)
        return Series(name, {"pod": pod, "engine": "0", **labels}, samples)

    found = []
    for one in pods:
        found += [
            counter(one, names.GENERATION_TOKENS[0], 100.0),
            counter(one, names.NUM_DRAFTS[0], 50.0),
            counter(one, names.NUM_DRAFT_TOKENS[0], 50.0 * k),
            Series(
                names.NUM_REQUESTS_RUNNING[0],
                {"pod": one, "engine": "0"},
                tuple((time_s, running) for time_s in times),
            ),
        ]
        found += [
            counter(one, names.NUM_ACCEPTED_TOKENS_PER_POS[0], 50.0 * rate, position=str(position))
            for position in range(k)
        ]
    return found


def unavailable() -> Unavailable:
    """The API server does not answer."""
    return Unavailable("APIServerUnreachable", "no answer from the API server")


def forbidden() -> Forbidden:
    """The API server says that a right is missing."""
    return Forbidden("Forbidden", "cannot patch deployments", 403)


@dataclass
class World:
    """Everything an operator process has, on stand-ins; ``restart`` gives the same neighbours a new process."""

    settings: Settings = field(default_factory=settings)
    clock: FakeClock = field(default_factory=FakeClock)
    journal: list[str] = field(default_factory=list)
    metrics: FakeMetrics = field(default_factory=FakeMetrics)
    registry: Registry = field(default_factory=Registry)
    woken: int = 0
    queued: list[ServiceKey] = field(default_factory=list)
    """Services that the control pass asked an objects pass for."""

    def __post_init__(self) -> None:
        self.kube = FakeKube(self.journal)
        self.engines = FakeEngines(self.journal)
        self._start()

    def _start(self) -> None:
        self.neighbours = Neighbours(self.kube, self.metrics, self.engines, self.clock, self.settings)
        self.objects = ObjectsPass(self.registry, self.neighbours, self._wake)
        self.control = ControlPass(self.registry, self.neighbours, self.queued.append)
        self.kube.listeners = [self._event]

    def restart(self, **changes: Any) -> None:
        """Another process, perhaps with other settings: it sees all objects again and remembers nothing else."""
        self.settings = self.settings.model_copy(update=changes)
        self.registry = Registry()
        self._start()
        for one in list(self.kube.objects.values()):
            self._event(None, one)

    def _wake(self) -> None:
        self.woken += 1

    def _event(self, event_type: str | None, one: Manifest) -> None:
        if one["kind"] == "SpeculativeInferenceService":
            self.registry.resource_event(event_type, one)
        elif one["kind"] not in ("Secret", "PodMonitor", "Event") and SERVICE_LABEL in one["metadata"].get(
            "labels", {}
        ):
            self.registry.child_event(event_type, one)

    def add(self, changes: Mapping[str, Any] | None = None, name: str = "chat", generation: int = 3) -> Service:
        """A user applies a resource, or another version of it."""
        self.kube.put(body(changes, name, generation))
        return self.service(name)

    def service(self, name: str = "chat") -> Service:
        """The service as the registry has it."""
        found = self.registry.get(("ml", name))
        assert found is not None
        return found

    def see(self, *pods: Manifest) -> None:
        """Pods are there, or changed."""
        for one in pods:
            self.kube.put(one)

    async def reconcile(self, name: str = "chat") -> float | None:
        """One objects pass."""
        return await self.objects.run(("ml", name))

    async def settle(self, name: str = "chat") -> None:
        """As many objects passes as events would cause, and one more."""
        for _ in range(3):
            assert await self.reconcile(name) is None

    def forget_writes(self) -> None:
        """Look only at what comes now."""
        self.kube.writes.clear()
        self.kube.reads.clear()
        self.engines.asked.clear()
        self.journal.clear()
        self.queued.clear()

    def status(self, name: str = "chat") -> Manifest:
        """The status that users see."""
        found: Manifest = self.kube.live("SpeculativeInferenceService", name).get("status", {})
        return found

    def condition(self, type_: str, name: str = "chat") -> tuple[str, str, str] | None:
        """Status, reason and message of a condition."""
        for one in self.status(name).get("conditions", []):
            if one["type"] == type_:
                return one["status"], one["reason"], one["message"]
        return None

    def measure(self, *, rate: float = 0.9, k: int = 3, name: str = "chat") -> None:
        """Prometheus has a busy last minute of every ready pod of a service."""
        pods = [one.name for one in self.service(name).ready_pods]
        self.metrics.series["ml", name] = busy_series(self.clock(), pods, rate=rate, k=k)
