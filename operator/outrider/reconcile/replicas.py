"""Who owns the number of replicas, and how it changes hands without a dip.

Under server-side apply a field that its only owner stops sending falls back to its default, which for replicas is 1. So
before we stop sending it, a second field manager takes the present number over; the autoscaler then writes it as it
likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.adapters.kube import FIELD_MANAGER, REPLICAS_MANAGER
from outrider.api.defaults import Resolved
from outrider.reconcile.contention import owners
from outrider.reconcile.neighbours import Manifest, Neighbours
from outrider.reconcile.registry import Service


async def hand_over(service: Service, neighbours: Neighbours) -> None:
    """Before our manager stops sending replicas: have the second one hold the present number.

    Ownership is read from the Deployment as last seen, since only a pass of ours could have changed ours; the number is
    asked for anew.
    """
    namespace, name = service.key
    seen = service.children.get(f"Deployment/{name}")
    if seen is not None and not owns_replicas(seen, FIELD_MANAGER):
        return
    live = await neighbours.kube.get("apps/v1", "Deployment", namespace, name)
    if live is not None and owns_replicas(live, FIELD_MANAGER):
        await hold(live, live["spec"]["replicas"], neighbours)


def fixed(resolved: Resolved, live: Mapping[str, Any] | None) -> int:
    """The number to keep without an autoscaler: the one asked for, else what runs, so that turning the autoscaler off
    takes nobody's replica away."""
    if resolved.fixed_replicas is not None:
        return resolved.fixed_replicas
    present: int = live["spec"].get("replicas", 1) if live is not None else 1
    return max(1, present)


async def start_at_minimum(resolved: Resolved, live: Manifest, neighbours: Neighbours) -> None:
    """A Deployment that was just made has one replica; give it the minimum at once instead of at the autoscaler's first
    look."""
    replicas = live["spec"].get("replicas", 1)
    if not owners(live) and replicas < resolved.min_replicas:
        await hold(live, resolved.min_replicas, neighbours)


async def hold(live: Manifest, replicas: int, neighbours: Neighbours) -> None:
    """Set the number under the second manager, unless the Deployment changed since it was read.

    Raises:
        Conflict: it did; the autoscaler may have moved the number, and the next pass looks again.
    """
    meta = live["metadata"]
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "namespace": meta["namespace"],
            "name": meta["name"],
            "resourceVersion": meta["resourceVersion"],
        },
        "spec": {"replicas": replicas},
    }
    await neighbours.kube.apply(manifest, manager=REPLICAS_MANAGER)


def owns_replicas(live: Mapping[str, Any], manager: str) -> bool:
    """Whether a field manager has its hand on ``spec.replicas``."""
    return any(entry.get("manager") == manager for entry in owners(live))
