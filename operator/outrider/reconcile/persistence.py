"""The memory document: what the controller knows of a service, kept in a ConfigMap beside it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from outrider.core import memory, one_k_document
from outrider.core.budget import Gain
from outrider.core.one_k_state import OneK
from outrider.core.revisions import remembered
from outrider.core.revisions.trial import Revisions
from outrider.core.state import ControllerConfig, ControllerState, initial_state
from outrider.manifests import config_maps
from outrider.reconcile import children
from outrider.reconcile.manifest_state import shape
from outrider.reconcile.neighbours import Neighbours
from outrider.reconcile.registry import Service
from outrider.reconcile.share import Share

logger = logging.getLogger(__name__)


async def read(service: Service, neighbours: Neighbours) -> Mapping[str, str]:
    """The texts that an earlier process left, by key; none for a new service. What they say of revisions is kept."""
    namespace, name = service.key
    stored = await neighbours.kube.get("v1", "ConfigMap", namespace, config_maps.memory_name(name))
    if stored is None or not children.owned(service, stored):
        return {}
    texts: dict[str, str] = stored.get("data") or {}
    known, fault = remembered.from_document(parsed(texts.get(config_maps.REVISIONS_KEY, "null")))
    if fault is not None:
        logger.warning("starting afresh: %s", fault, extra={"namespace": namespace, "service": name})
    service.keep(known)
    service.recorded_revisions = known
    document = parsed(texts.get(config_maps.MEMORY_KEY, ""))
    service.one_k = _one_k(document.get("oneK") if isinstance(document, dict) else None)
    return texts


def load(service: Service, config: ControllerConfig, texts: Mapping[str, str]) -> ControllerState:
    """What an earlier process remembered; the initial state for a new service or a damaged document."""
    state, share = _read(service, config, texts)
    if service.share is None:
        service.share, service.recorded_share = share, None if share is None else share.most
    # The initial state needs no record: whoever finds none begins with it too.
    service.recorded = (state.generation, state.target)
    return state


def _read(service: Service, config: ControllerConfig, texts: Mapping[str, str]) -> tuple[ControllerState, Share | None]:
    if not texts:
        return initial_state(config), None
    document = parsed(texts.get(config_maps.MEMORY_KEY, ""))
    state, fault = memory.from_document(document, config)
    if fault is not None:
        logger.warning("starting afresh: %s", fault, extra={"namespace": service.key[0], "service": service.key[1]})
    return state, _share(document.get("share")) if isinstance(document, dict) else None


def parsed(text: str) -> Any:
    """The JSON value of a memory document; None if it is none, or nested without end."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


async def record(service: Service, neighbours: Neighbours) -> None:
    """Write the memory document if it does not hold the present generation, target, share and trial yet, or was
    meddled with."""
    if service.state is None:
        return
    share = None if service.share is None else service.share.most
    news = service.recorded != (service.state.generation, service.state.target) or service.recorded_share != share
    if news or _meddled(service) or not remembered.same_but_for_words(service.recorded_revisions, service.revisions):
        await save(service, neighbours)


def _meddled(service: Service) -> bool:
    """Whether the document is not what this process wrote last: a restart would forget all."""
    child = f"ConfigMap/{config_maps.memory_name(service.key[1])}"
    sent, live = service.applied.get(child), service.children.get(child)
    return service.saved_s > 0.0 and (sent is None or live is None or shape(live) != sent[1])


async def save(service: Service, neighbours: Neighbours) -> None:
    """Write the memory document.

    Raises:
        NotReady: a ConfigMap of that name belongs to someone else.
        KubeError: the API server did not take it.
    """
    assert service.state is not None
    assert service.resource is not None
    recorded = (service.state.generation, service.state.target)
    share, known = service.share, service.revisions
    parts = memory.to_document(service.state) | ({} if share is None else {"share": _share_document(share)})
    if service.one_k != OneK():
        parts["oneK"] = one_k_document.to_document(service.one_k)
    document = json.dumps(parts, separators=(",", ":"))
    revisions = None if known == Revisions() else json.dumps(remembered.to_document(known), separators=(",", ":"))
    await children.apply(service, config_maps.memory(service.resource, document, revisions), neighbours)
    service.saved_s, service.recorded = neighbours.clock(), recorded
    service.recorded_share = None if share is None else share.most
    service.recorded_revisions = known


def _one_k(document: Any) -> OneK:
    """Read before anything is rendered: a K that was forgotten would be rolled out for nothing, and back again."""
    return one_k_document.from_document(document) or OneK()


def _share_document(share: Share) -> dict[str, Any]:
    gain = None if share.gain is None else asdict(share.gain)
    return {"most": share.most, "disputedSince": share.disputed_since_s, "gain": gain}


def _share(document: Any) -> Share | None:
    """The share that was remembered; None if there was none, or it is damaged: the next pass works out another."""
    try:
        since_s, gain = document["disputedSince"], document["gain"]
        return Share(
            max(0, int(document["most"])),
            None if since_s is None else float(since_s),
            None if gain is None else Gain(float(gain["at_s"]), max(0, int(gain["turns"]))),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return None
