"""Whose autoscaler has the Deployment: ours comes only where nobody else's is.

Two on one Deployment would take turns, or both stand still: the HPA's controller stops each that finds pods which
another one has too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.api.conditions import Condition
from outrider.manifests import scaled_object
from outrider.reconcile import children
from outrider.reconcile.neighbours import Neighbours
from outrider.reconcile.registry import Service

SCALED_OBJECT = ("keda.sh/v1alpha1", "ScaledObject")
HPA = ("autoscaling/v2", "HorizontalPodAutoscaler")


async def foreign(service: Service, neighbours: Neighbours) -> tuple[str, ...]:
    """Autoscalers of somebody else on our Deployment, as ``kind/name``.

    Asked for before our ScaledObject is made, in each pass until it is, and when our HPA tells that its pods have
    another one: two lists of a namespace are too much for every pass over every service.
    """
    namespace, name = service.key
    ours = service.children.get(f"ScaledObject/{name}")
    if ours is not None and children.owned(service, ours) and not service.foreign_scalers and not ambiguous(service):
        return ()
    scaled = await neighbours.kube.list(*SCALED_OBJECT, namespace)
    found = [_id(SCALED_OBJECT, one) for one in scaled if _targets(one, name) and not children.owned(service, one)]
    for one in await neighbours.kube.list(*HPA, namespace):
        makers = {f"{owner['kind']}/{owner['name']}" for owner in one["metadata"].get("ownerReferences", ())}
        # An HPA that a ScaledObject made is told under the name of that, and not at all if that is ours.
        if _targets(one, name) and makers.isdisjoint({f"ScaledObject/{name}", *found}):
            found.append(_id(HPA, one))
    return tuple(sorted(found))


def ambiguous(service: Service) -> bool:
    """Whether our HPA stands still because its pods have another one too."""
    hpa = service.children.get(f"HorizontalPodAutoscaler/{hpa_name(service.key[1])}", {})
    return any(one.get("reason") == "AmbiguousSelector" for one in hpa.get("status", {}).get("conditions") or ())


def keeps_last(service: Service, metrics: Condition) -> bool:
    """Whether KEDA must be told to take no replica of a service that may sleep, since it cannot know that nothing asks;
    ``metrics`` is the condition MetricsAvailable.

    While triggers fail KEDA keeps the last replica, but not always (2.21, `getScalerState`): a question of the HPA that
    fails too closes the scalers, and a look under way then counts all that they said, errors too, as nothing at all,
    which is no error, and no load.
    """
    ours = service.children.get(f"ScaledObject/{service.key[1]}")
    if service.resolved is None or service.resolved.idle_after_s is None:
        return False
    if metrics.reason == "NotAskedYet":
        return ours is not None and scaled_object.keeps(ours)
    states = {} if ours is None else {one["type"]: one for one in ours.get("status", {}).get("conditions") or ()}
    fails = bool(service.ready_pods) and states.get("Ready", {}).get("reason") == "TriggerError"
    return fails or (metrics.status == "False" and metrics.reason != "NoReadyEngine")


def hpa_name(service: str) -> str:
    """Name of the HPA that KEDA makes of our ScaledObject."""
    return f"keda-hpa-{service}"


def _id(kind: tuple[str, str], one: Mapping[str, Any]) -> str:
    """``kind/name``; the items of a list do not tell their kind."""
    return f"{kind[1]}/{one['metadata']['name']}"


def _targets(scaler: Mapping[str, Any], deployment: str) -> bool:
    target = scaler["spec"]["scaleTargetRef"]
    return (target.get("kind", "Deployment"), target["name"]) == ("Deployment", deployment)
