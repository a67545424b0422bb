"""Conditions about who sets the number of replicas; each is fed what was already fetched."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from outrider.api.conditions import REPLICAS_CONTENDED, Condition, condition
from outrider.core.words import count
from outrider.reconcile.contention import REMEMBERED_S, Contention


def is_idle(
    scaled_object: Mapping[str, Any] | None, deployment: Mapping[str, Any] | None, pods: Collection[object]
) -> bool:
    """Whether no replica is wanted, since nothing asks for the service and its owner lets it sleep."""
    if deployment is None or pods:
        return False
    return may_sleep(scaled_object) and deployment["spec"].get("replicas", 1) == 0


def may_sleep(scaled_object: Mapping[str, Any] | None) -> bool:
    """Whether KEDA may take the last replica away."""
    return scaled_object is not None and scaled_object["spec"].get("minReplicaCount", 1) == 0


def waking(generation: int) -> Condition:
    """A replica starts, and until it serves the engines' triggers have no answer, which KEDA calls an error."""
    message = "a replica starts; the engines' queries have no answer until it serves"
    return condition("AutoscalingReady", None, "Starting", message, generation)


def idle(type_: str, status: bool | None, generation: int) -> Condition:
    """A condition of a service that sleeps, which is as its owner wants it and no fault."""
    message = "no replica runs, for nothing has asked for the service (spec.autoscaling.idle); a request wakes one"
    return condition(type_, status, "Idle", message, generation)


def external(replicas: int, generation: int) -> Condition:
    """Somebody else scales the service, as its owner wants it."""
    message = (
        f"{count(replicas, 'replica')} by an autoscaler of your own, to which they are left; the metric"
        " outrider_desired_replicas and status.capacity say how many the load needs"
    )
    return condition("AutoscalingReady", True, "ExternalAutoscaler", message, generation)


def foreign(scalers: Sequence[str], ours_exists: bool, generation: int) -> Condition:
    """An autoscaler of somebody else has the Deployment."""
    verb, them = ("scales", "it") if len(scalers) == 1 else ("scale", "them")
    told = (
        "so that neither may scale: the HPA's controller stops those that share pods"
        if ours_exists
        else f"and no ScaledObject is made beside {them}"
    )
    message = (
        f"{', '.join(scalers)} {verb} the same Deployment, {told}; delete {them}, or leave the replicas to {them} with"
        " spec.autoscaling.mode: External"
    )
    return condition("AutoscalingReady", False, "ForeignAutoscaler", message, generation)


def contended(found: Contention, generation: int) -> Condition | None:
    """Present and True for a while after somebody else wrote the number of replicas; absent otherwise."""
    if not found.foreign:
        return None
    last = found.foreign[-1]
    same = [move for move in found.foreign if move.manager == last.manager]
    who = f"field manager {last.manager}" if last.manager else "a writer that left no name as field manager"
    message = (
        f"{who} set replicas from {last.before} to {last.after}, which the autoscaler did not ask for,"
        f" {count(len(same), 'time')} in the last {REMEMBERED_S / 60:.0f} minutes; it asks for {found.asked_for} now."
        " Take replicas out of what is applied there, or leave them to it with spec.autoscaling.mode: External"
    )
    return condition(REPLICAS_CONTENDED, True, "ForeignWriter", message, generation)
