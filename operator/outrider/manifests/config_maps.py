"""The two ConfigMaps of a service: the schedule document that engines read, and the operator's memory."""

from __future__ import annotations

import json
from typing import Any

from outrider.api.resource import SpeculativeInferenceService
from outrider.core.schedule import Schedule
from outrider.manifests.meta import Manifest, metadata

SCHEDULE_KEY = "schedule.json"
MEMORY_KEY = "memory.json"
REVISIONS_KEY = "revisions.json"


def schedule_name(service: str) -> str:
    """Name of the ConfigMap with the schedule document."""
    return f"{service}-schedule"


def memory_name(service: str) -> str:
    """Name of the ConfigMap with the operator's memory of a service."""
    return f"{service}-memory"


def schedule_document(generation: int, schedule: Schedule, lease_s: int) -> dict[str, Any]:
    """What the admin port takes and the ConfigMap holds; ``lease_s`` in seconds."""
    return {"generation": generation, "schedule": schedule.as_lists(), "leaseSeconds": lease_s}


def schedule(resource: SpeculativeInferenceService, generation: int, wanted: Schedule, lease_s: int) -> Manifest:
    """The schedule in force, for pods that start while the operator is away.

    It is mounted, not part of the pod template: a decision must not restart an engine.
    """
    text = json.dumps(schedule_document(generation, wanted, lease_s), separators=(",", ":"))
    return _config_map(resource, schedule_name(resource.name), {SCHEDULE_KEY: text})


def memory(resource: SpeculativeInferenceService, document: str, revisions: str | None = None) -> Manifest:
    """What the operator must not forget, as the texts of JSON documents: of its control, and of revisions."""
    data = {MEMORY_KEY: document} | ({} if revisions is None else {REVISIONS_KEY: revisions})
    return _config_map(resource, memory_name(resource.name), data)


def _config_map(resource: SpeculativeInferenceService, name: str, data: dict[str, str]) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(resource, name), "data": data}
