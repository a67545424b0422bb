"""The memory document: what the controller knows of a service, kept in a ConfigMap beside it."""

from __future__ import annotations

import json
import logging

from outrider.core import memory
from outrider.core.state import ControllerConfig, ControllerState, initial_state
from outrider.manifests import config_maps
from outrider.reconcile import children
from outrider.reconcile.neighbours import Neighbours
from outrider.reconcile.registry import Service

logger = logging.getLogger(__name__)


async def load(service: Service, config: ControllerConfig, neighbours: Neighbours) -> ControllerState:
    """Read what an earlier process remembered; the initial state for a new service or a damaged document."""
    state = await _read(service, config, neighbours)
    # The initial state needs no record: whoever finds none begins with it too.
    service.recorded = (state.generation, state.target)
    return state


async def _read(service: Service, config: ControllerConfig, neighbours: Neighbours) -> ControllerState:
    namespace, name = service.key
    stored = await neighbours.kube.get("v1", "ConfigMap", namespace, config_maps.memory_name(name))
    if stored is None or not _ours(stored, service):
        return initial_state(config)
    try:
        document = json.loads(stored.get("data", {}).get(config_maps.MEMORY_KEY, ""))
    except ValueError:
        document = None
    state, fault = memory.from_document(document, config)
    if fault is not None:
        logger.warning("starting afresh: %s", fault, extra={"namespace": namespace, "service": name})
    return state


async def record(service: Service, neighbours: Neighbours) -> None:
    """Write the memory document if it does not hold the present generation and target yet."""
    if service.state is not None and service.recorded != (service.state.generation, service.state.target):
        await save(service, neighbours)


async def save(service: Service, neighbours: Neighbours) -> None:
    """Write the memory document.

    Raises:
        NotReady: a ConfigMap of that name belongs to someone else.
        KubeError: the API server did not take it.
    """
    assert service.state is not None
    assert service.resource is not None
    recorded = (service.state.generation, service.state.target)
    document = json.dumps(memory.to_document(service.state), separators=(",", ":"))
    await children.apply(service, config_maps.memory(service.resource, document), neighbours)
    service.saved_s, service.recorded = neighbours.clock(), recorded


def _ours(stored: dict[str, object], service: Service) -> bool:
    """Whether the document belongs to this very resource and not to a deleted one of the same name."""
    metadata = stored["metadata"]
    assert isinstance(metadata, dict)
    uid = service.body["metadata"]["uid"]
    return any(owner.get("uid") == uid for owner in metadata.get("ownerReferences", []))
