"""The status of a service: put together from what passes found, written when it says something new.

Shown numbers are rounded and have a dead band, and what only drifts is written twice a minute at most: each write wakes
every watcher of the object, ourselves included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outrider.api import API_VERSION, KIND
from outrider.api.conditions import Condition, condition, conditions_of, set_conditions
from outrider.api.defaults import Resolved
from outrider.api.status import CapacityStatus, Change, EffectiveSettings, ReplicaStatus, Status, TuningStatus
from outrider.core.controller import Outcome
from outrider.errors import OperatorError
from outrider.reconcile import conditions
from outrider.reconcile.events import rfc3339
from outrider.reconcile.neighbours import Manifest, Neighbours
from outrider.reconcile.registry import Service

SOFT_EVERY_S = 30.0
"""Between two writes that only follow a drift."""
LENGTH_BAND, RATE_BAND = 0.05, 3
"""Changes of acceptance length and of acceptance rate in percent that are not worth showing."""


def build(
    service: Service,
    resolved: Resolved,
    effective: EffectiveSettings,
    *,
    keda: bool,
    fault: OperatorError | None,
    warnings: Sequence[str],
    generation: int,
    now_s: float,
) -> Status:
    """The status as things are, about the spec of ``generation``; ``warnings`` are what admission found doubtful."""
    old = conditions_of(service.body if service.status is None else {"status": service.status})
    return Status(
        observed_generation=generation,
        conditions=set_conditions(
            old,
            [*_conditions(service, resolved, keda, fault, generation), *_doubts(warnings, generation)],
            rfc3339(now_s),
        ),
        replicas=_replicas(service),
        tuning=_tuning(service, resolved),
        capacity=_capacity(service),
        history=_history(service),
        effective=effective,
    )


def refused(service: Service, fault: OperatorError, generation: int, now_s: float) -> Status:
    """The status of a resource that cannot work as it stands: stalled until its owner changes it."""
    old = conditions_of(service.body if service.status is None else {"status": service.status})
    new = [
        condition("Ready", False, fault.reason, fault.message, generation),
        condition("Stalled", True, fault.reason, fault.message, generation),
    ]
    return Status(observed_generation=generation, conditions=set_conditions(old, new, rfc3339(now_s)))


async def write(service: Service, status: Status, neighbours: Neighbours) -> None:
    """Write the status if it says something new, and something that only drifts not too often."""
    document, now_s = status.as_dict(), neighbours.clock()
    if service.status is None:
        stored = service.body.get("status")
        service.status = stored if isinstance(stored, dict) else None
    if service.status is not None:
        document = _steady(service.status, document)
        if document == service.status:
            return
        if _hard(document) == _hard(service.status) and now_s < service.status_written_s + SOFT_EVERY_S:
            return
    namespace, name = service.key
    manifest: Manifest = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"namespace": namespace, "name": name},
        "status": document,
    }
    await neighbours.kube.apply(manifest, subresource="status")
    service.status, service.status_written_s = document, now_s


def _conditions(
    service: Service, resolved: Resolved, keda: bool, fault: OperatorError | None, generation: int
) -> list[Condition]:
    name = service.key[1]
    pods = [pod for _, pod in sorted(service.pods.items())]
    ready_pods = service.ready_pods
    deployment = service.children.get(f"Deployment/{name}")
    engine = conditions.engine_ready(pods, deployment, resolved, generation)
    found = [
        conditions.ready(fault, engine, generation),
        engine,
        conditions.metrics_available(service.metrics, service.outcome is not None, generation),
        conditions.autoscaling_ready(resolved, keda, service.children.get(f"ScaledObject/{name}"), generation),
    ]
    if service.state is not None and resolved.mode != "Off":
        refusals = [service.refusals[pod.uid] for pod in ready_pods if pod.uid in service.refusals]
        wanted = service.state.generation
        found.append(conditions.schedule_applied(wanted, _acknowledged(service), len(ready_pods), refusals, generation))
    if service.config is not None and service.config.frozen:
        by_spec = service.resource is not None and service.resource.spec.paused
        return [*found, conditions.paused(by_spec, generation)]
    under_way = conditions.reconciling(deployment, len(ready_pods), generation)
    return found if under_way is None else [*found, under_way]


def _doubts(warnings: Sequence[str], generation: int) -> list[Condition]:
    if not warnings:
        return []
    return [condition("Admitted", True, "AdmittedWithWarnings", "; ".join(warnings), generation)]


def _acknowledged(service: Service) -> int:
    wanted = service.state.generation if service.state else None
    return sum(service.acknowledged.get(pod.uid, (None, 0.0))[0] == wanted for pod in service.ready_pods)


def _replicas(service: Service) -> ReplicaStatus | None:
    deployment = service.children.get(f"Deployment/{service.key[1]}")
    if deployment is None:
        return None
    status = deployment.get("status", {})
    return ReplicaStatus(
        desired=deployment["spec"].get("replicas", 1),
        ready=len(service.ready_pods),
        updated=status.get("updatedReplicas", 0),
    )


def _tuning(service: Service, resolved: Resolved) -> TuningStatus:
    state, outcome = service.state, service.outcome
    if state is None:
        return TuningStatus(mode=resolved.mode, policy=resolved.policy)
    changed_s = state.schedule_changed_s
    length = outcome.acceptance_length if outcome else None
    rate = outcome.acceptance_rate if outcome else None
    return TuningStatus(
        mode=resolved.mode,
        policy=resolved.policy,
        schedule=str(state.schedule),
        generation=state.generation,
        speculative_tokens=outcome.num_speculative_tokens if outcome else state.schedule.at(1),
        acceptance_length=None if length is None else f"{length.value:.2f}",
        acceptance_rate_percent=None if rate is None else round(100 * rate),
        acknowledged=f"{_acknowledged(service)}/{len(service.ready_pods)}",
        reason=_reason(outcome),
        last_change=None if changed_s is None else rfc3339(changed_s),
    )


def _reason(outcome: Outcome | None) -> str | None:
    if outcome is None:
        return None
    return outcome.hold.message if outcome.hold is not None else outcome.reason


def _capacity(service: Service) -> CapacityStatus | None:
    state, outcome = service.state, service.outcome
    if state is None:
        return None
    able = outcome.capacity if outcome else None
    load = outcome.in_flight if outcome else None
    return CapacityStatus.model_validate(
        {
            "requestsPerReplica": state.target,
            "limitedBy": able.limited_by if able and able.limited_by != "Default" else None,
            "replicasForLoad": None if load is None else max(1, -(-round(load) // state.target)),
            "reason": able.reason if able else None,
        }
    )


def _history(service: Service) -> list[Change]:
    return [
        Change.model_validate(
            {
                "time": rfc3339(change.at_s),
                "kind": change.kind,
                "from": change.before,
                "to": change.after,
                "reason": change.reason,
            }
        )
        for change in (service.state.history if service.state else ())
    ]


def _steady(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Keep shown numbers that moved less than their band."""
    steady = {**new}
    for part, field, band in (
        ("tuning", "acceptanceLength", LENGTH_BAND),
        ("tuning", "acceptanceRatePercent", RATE_BAND),
    ):
        before, after = old.get(part, {}).get(field), new.get(part, {}).get(field)
        if before is not None and after is not None and abs(float(after) - float(before)) < band:
            steady[part] = {**steady[part], field: before}
    return steady


def _hard(document: dict[str, Any]) -> dict[str, Any]:
    """The part whose change is news: all but numbers and sentences that drift with the load."""
    soft = {
        "tuning": ("acceptanceLength", "acceptanceRatePercent", "reason", "speculativeTokens"),
        "capacity": ("replicasForLoad", "reason", "limitedBy"),
    }
    hard = {**document}
    for part, fields in soft.items():
        hard[part] = {name: value for name, value in document.get(part, {}).items() if name not in fields}
    hard["conditions"] = [
        {name: value for name, value in one.items() if name != "message"} for one in document.get("conditions", [])
    ]
    return hard
