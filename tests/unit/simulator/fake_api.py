"""An API server that keeps pods in memory, and the pod that the operator would render."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from outrider.simulator.pod_api import ApiError, Manifest
from tests.unit.simulator.builders import own_address

TABLE = [[1, 1, 0], [2, 2, 1], [3, 3, 2], [4, 4, 3], [5, 256, 5]]
SPECULATION = {
    "method": "eagle3",
    "model": "org/draft",
    "num_speculative_tokens": 5,
    "num_speculative_tokens_per_batch_size": TABLE,
}
PREFIX = "simulator.outrider.dev/"
LONGEST_WAIT_S = 60.0


@dataclass
class FakeApi:
    """Pods, ConfigMaps and Secrets in memory; patches are merged one level deep, as far as these tests look."""

    pods: dict[str, Manifest] = field(default_factory=dict)
    objects: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    services: list[Manifest] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    """Errors that the next status patches meet, the last one first."""
    removal_failures: list[ApiError] = field(default_factory=list)
    history: list[tuple[str, Manifest]] = field(default_factory=list)
    """Every status written, by pod."""
    _events: asyncio.Queue[tuple[str, Manifest]] = field(default_factory=asyncio.Queue)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def list_pods(self) -> tuple[list[Manifest], str]:
        return copy.deepcopy(list(self.pods.values())), "1"

    async def watch_pods(self, version: str) -> AsyncIterator[tuple[str, Manifest]]:
        while True:
            yield await self._events.get()

    async def patch_status(self, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        if self.failures:
            raise self.failures.pop()
        if name not in self.pods:
            raise ApiError(404, "not found")
        self.pods[name]["status"].update(copy.deepcopy(patch["status"]))
        self.history.append((name, copy.deepcopy(patch["status"])))
        await self._tell("MODIFIED", self.pods[name])

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        if self.removal_failures:
            raise self.removal_failures.pop()
        if name in self.pods and self.pods[name]["metadata"]["uid"] == uid:
            await self._tell("DELETED", self.pods.pop(name))

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        return copy.deepcopy(self.objects.get((kind, name)))

    async def list_services(self, namespace: str) -> list[Manifest]:
        return self.services

    # What the rest of a cluster would do.

    async def create(self, pod: Manifest) -> None:
        self.pods[pod["metadata"]["name"]] = pod
        await self._tell("ADDED", pod)

    async def mark_deleted(self, name: str, grace_s: int) -> None:
        meta = self.pods[name]["metadata"]
        meta.update(deletionTimestamp="2027-01-15T08:00:00Z", deletionGracePeriodSeconds=grace_s)
        await self._tell("MODIFIED", self.pods[name])

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait for a change after which this holds."""
        async with asyncio.timeout(LONGEST_WAIT_S), self._changed:
            await self._changed.wait_for(lambda: bool(holds()))

    def engine(self, name: str = "chat-1") -> Manifest:
        """The engine's container status."""
        statuses: list[Manifest] = self.pods[name]["status"].get("containerStatuses", [{"state": {}}])
        return statuses[0]

    def waits(self, name: str = "chat-1") -> Manifest:
        """Why the engine's container waits; empty if it does not."""
        reason: Manifest = self.engine(name)["state"].get("waiting", {})
        return reason

    def ends(self, name: str = "chat-1") -> list[Manifest]:
        """Every end of the engine's container that was shown as its state; it may be running again by now."""
        states = [status["containerStatuses"][0]["state"] for pod, status in self.history if pod == name]
        return [state["terminated"] for state in states if "terminated" in state]

    async def _tell(self, kind: str, pod: Manifest) -> None:
        self._events.put_nowait((kind, copy.deepcopy(pod)))
        async with self._changed:
            self._changed.notify_all()


def pod(name: str = "chat-1", *, args: list[str] | None = None, **annotations: str) -> Manifest:
    """An engine pod as the operator renders it, with an address, loading in no time."""
    asked = {"load-seconds": "0"} | {key.replace("_", "-"): value for key, value in annotations.items()}
    environment = {
        "VLLM_PLUGINS": "outrider",
        "OUTRIDER_ADMIN_KEY_FILE": "/etc/outrider/admin/key",
        "OUTRIDER_SCHEDULE_FILE": "/etc/outrider/schedule/schedule.json",
    }
    engine = {
        "name": "engine",
        "image": "engine:0.33.0",
        "args": args or ["--served-model-name", "chat", "--speculative-config", json.dumps(SPECULATION)],
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "ports": [{"name": "http", "containerPort": 8000}, {"name": "admin", "containerPort": 8001}],
        "startupProbe": {"httpGet": {"path": "/health", "port": "http"}, "failureThreshold": 60},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "admin"}, "periodSeconds": 1, "failureThreshold": 1},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "lifecycle": {"preStop": {"sleep": {"seconds": 30}}},
        "volumeMounts": [
            {"name": "schedule", "mountPath": "/etc/outrider/schedule"},
            {"name": "admin", "mountPath": "/etc/outrider/admin"},
        ],
    }
    volumes = [
        {"name": "schedule", "configMap": {"name": "chat-schedule"}},
        {"name": "admin", "secret": {"secretName": "chat-admin"}},
    ]
    meta = {"namespace": "ml", "name": name, "uid": f"uid-{name}"}
    return {
        "metadata": meta | {"annotations": {PREFIX + key: value for key, value in asked.items()}},
        "spec": {"nodeName": "gpu-0", "containers": [engine], "volumes": volumes, "enableServiceLinks": False},
        "status": {"phase": "Pending", "podIP": own_address()},
    }
