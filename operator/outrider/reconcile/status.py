"""The status of a service: put together from what passes found, written when it says something new.

Shown numbers are rounded and have a dead band, what only drifts is written twice a minute at most, and a short look at
another K is not written at all: each write wakes every watcher of the object, ourselves included.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.api import API_VERSION, KIND
from outrider.api.conditions import (
    CAPACITY_LIMITED,
    READY,
    REPLICAS_CONTENDED,
    ROLLOUT_PROGRESSING,
    SPECULATION_HEALTHY,
    Condition,
    condition,
    conditions_of,
    set_conditions,
)
from outrider.api.defaults import Resolved
from outrider.api.status import (
    CapacityStatus,
    Change,
    EffectiveSettings,
    ModeInForce,
    ReplicaStatus,
    Status,
    TuningStatus,
)
from outrider.errors import OperatorError
from outrider.manifests import queries
from outrider.reconcile import (
    conditions,
    demands,
    events,
    measures,
    scaling_conditions,
    scaling_path,
    trial_status,
    troubles,
)
from outrider.reconcile.events import rfc3339
from outrider.reconcile.neighbours import Manifest, Neighbours
from outrider.reconcile.registry import Service
from outrider.reconcile.steadiness import hard, same, steady

SOFT_EVERY_S = 30.0
"""Between two writes that only follow a drift."""


def build(
    service: Service,
    resolved: Resolved,
    effective: EffectiveSettings | None,
    *,
    keda: bool,
    fault: OperatorError | None,
    warnings: Sequence[str],
    generation: int,
    now_s: float,
) -> Status:
    """The status as things are, about the spec of ``generation``.

    ``effective`` are the settings in force, None if none were ever applied; ``warnings`` are what admission found
    doubtful.
    """
    old = conditions_of(service.body if service.status is None else {"status": service.status})
    return Status(
        observed_generation=generation,
        conditions=set_conditions(
            old,
            [*_conditions(service, resolved, keda, fault, generation, now_s), *_doubts(warnings, generation)],
            rfc3339(now_s),
        ),
        replicas=_replicas(service),
        tuning=_tuning(service, resolved, effective),
        capacity=_capacity(service, resolved),
        history=_history(service),
        revisions=trial_status.revisions(service),
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
    measures.conditions(service.key, status.conditions)
    if service.status is None:
        stored = service.body.get("status")
        service.status = stored if isinstance(stored, dict) else None
    if service.status is not None:
        document = steady(service.status, document)
        if same(document, service.status):
            return
        drifts = hard(document) == hard(service.status)
        if drifts and (_looking(service) or now_s < service.status_written_s + SOFT_EVERY_S):
            return
    namespace, name = service.key
    manifest: Manifest = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"namespace": namespace, "name": name},
        "status": document,
    }
    before = conditions_of({"status": service.status})
    await neighbours.kube.apply(manifest, subresource="status")
    service.status, service.status_written_s = document, now_s
    for type_, warn in (
        (READY, events.not_ready),
        (SPECULATION_HEALTHY, events.unhealthy_speculation),
        (ROLLOUT_PROGRESSING, events.stuck),
        (CAPACITY_LIMITED, events.stuck),
        (REPLICAS_CONTENDED, events.stuck),
    ):
        now = _find(type_, status.conditions)
        if now is not None:
            await warn(service, _find(type_, before), now, neighbours)


def _looking(service: Service) -> bool:
    """A short look at another K is under way, or just ended: the log, the metrics and the memory document tell of it. A
    status that did so would be written twice a look."""
    looks = service.outcome is not None and {change.kind for change in service.outcome.changes} == {"Probe"}
    return looks or (service.state is not None and service.state.probe is not None)


def _find(type_: str, found: Sequence[Condition]) -> Condition | None:
    return next((one for one in found if one.type == type_), None)


def _conditions(
    service: Service, resolved: Resolved, keda: bool, fault: OperatorError | None, generation: int, now_s: float
) -> list[Condition]:
    name = service.key[1]
    pods = service.stable_pods
    ready_pods = service.ready_pods
    deployment = service.children.get(f"Deployment/{name}")
    spec = None if service.resource is None else service.resource.spec
    matters = troubles.find(pods, deployment, spec, resolved, now_s)
    idle = fault is None and scaling_conditions.is_idle(
        service.children.get(f"ScaledObject/{name}"), deployment, service.pods
    )
    if idle:
        states = {READY: True, "EngineReady": False, "MetricsAvailable": None, "AutoscalingReady": True}
        found = [scaling_conditions.idle(type_, state, generation) for type_, state in states.items()]
    else:
        engine = conditions.engine_ready(pods, deployment, resolved, matters, fault, generation)
        found = [
            conditions.ready(fault, engine, generation),
            engine,
            metrics(service, generation, now_s),
            _autoscaling(service, resolved, keda, fault, generation),
        ]
    if service.state is not None and resolved.mode != "Off":
        refusals = [service.refusals[pod.uid] for pod in ready_pods if pod.uid in service.refusals]
        wanted, config = service.state.generation, service.config
        one = config is not None and (len(config.values) == 1 or service.one_k_said is not None)
        found.append(
            conditions.schedule_applied(
                wanted,
                _acknowledged(service),
                len(ready_pods),
                refusals,
                generation,
                only=config.initial.at(1) if one and config is not None else None,
            )
        )
        found.append(conditions.speculation_healthy(service.state.acceptance, generation))
    if _frozen(service):
        by_spec = service.resource is not None and service.resource.spec.paused
        scaled = service.children.get(f"ScaledObject/{name}")
        return [*found, conditions.paused(by_spec, scaled, deployment, generation)]
    contended = scaling_conditions.contended(service.contention, generation)
    tried = trial_status.revision_current(service, generation)
    if tried is not None:
        found.append(tried)
    if idle:
        return found
    under_way = conditions.stalled(deployment, matters, resolved, generation) or conditions.reconciling(
        deployment, pods, matters, fault, generation
    )
    optional = (
        under_way,
        conditions.rollout_progressing(deployment, pods, matters, generation),
        conditions.capacity_limited(deployment, pods, matters, generation)
        or demands.limited(service, resolved, generation),
        contended,
    )
    return [*found, *(one for one in optional if one is not None)]


def metrics(service: Service, generation: int, now_s: float) -> Condition:
    """Whether decisions have data now."""
    ready_s = [pod.ready_since_s for pod in service.ready_pods]
    ready_for_s = max((now_s - (now_s if since_s is None else since_s) for since_s in ready_s), default=None)
    period_s = 0.0 if service.config is None else service.config.period_s
    query = conditions.Query(queries.in_flight_requests(*service.key), conditions.NO_SERIES_PASSES * period_s)
    known = service.outcome is not None
    return conditions.metrics_available(service.metrics, service.left_out, known, ready_for_s, query, generation)


def _frozen(service: Service) -> bool:
    return service.config is not None and service.config.frozen


def _autoscaling(
    service: Service, resolved: Resolved, keda: bool, fault: OperatorError | None, generation: int
) -> Condition:
    """Of a paused service counts what is there and not what its spec now says."""
    name = service.key[1]
    scaled, deployment = (service.children.get(f"{kind}/{name}") for kind in ("ScaledObject", "Deployment"))
    running = deployment["spec"].get("replicas", 1) if deployment else 0
    if not _frozen(service):
        autoscaled, replicas = resolved.autoscaled, running if resolved.scaler == "External" else resolved.min_replicas
    else:
        autoscaled, keda = scaled is not None or deployment is None, keda or scaled is not None
        replicas = running
    if resolved.scaler == "External" and scaled is None:
        return scaling_conditions.external(replicas, generation)
    if service.foreign_scalers and autoscaled:
        return scaling_conditions.foreign(service.foreign_scalers, scaled is not None, generation)
    if not autoscaled:
        return conditions.fixed_replicas(replicas, generation)
    if keda and scaling_conditions.may_sleep(scaled) and not service.ready_pods:
        return scaling_conditions.waking(generation)
    return scaling_path.autoscaling_ready(
        keda,
        scaled,
        service.children.get(f"HorizontalPodAutoscaler/keda-hpa-{name}"),
        service.scaling_path,
        answered=service.keda_answered,
        fault=fault,
        generation=generation,
    )


def _doubts(warnings: Sequence[str], generation: int) -> list[Condition]:
    if not warnings:
        return []
    return [condition("Admitted", True, "AdmittedWithWarnings", "; ".join(warnings), generation)]


def _acknowledged(service: Service) -> int:
    wanted = service.state.generation if service.state else None
    believed = (pod.uid for pod in service.ready_pods if pod.uid not in service.refusals)
    return sum(service.acknowledged.get(uid, (None, 0.0))[0] == wanted for uid in believed)


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


def _tuning(service: Service, resolved: Resolved, effective: EffectiveSettings | None) -> TuningStatus:
    state, outcome = service.state, service.outcome
    mode: ModeInForce = "Paused" if _frozen(service) else resolved.mode
    policy = effective.policy if effective and _frozen(service) else resolved.policy
    if state is None:
        return TuningStatus(mode=mode, policy=policy)
    changed_s = state.schedule_changed_s
    length = outcome.acceptance_length if outcome else None
    rate = outcome.acceptance_rate if outcome else None
    return TuningStatus(
        mode=mode,
        policy=policy,
        schedule=str(state.schedule if state.probe is None else state.probe.before),
        generation=state.generation,
        speculative_tokens=outcome.num_speculative_tokens if outcome else state.schedule.at(1),
        acceptance_length=None if length is None else f"{length.value:.2f}",
        acceptance_rate_percent=None if rate is None else round(100 * rate),
        acknowledged=f"{_acknowledged(service)}/{len(service.ready_pods)}",
        delivery=None if service.one_k_said is None else "Rollout",
        rollouts=None if service.one_k_said is None else len(service.one_k.moves),
        reason=_reason(service, frozen=_frozen(service)),
        last_change=None if changed_s is None else rfc3339(changed_s),
    )


def _reason(service: Service, *, frozen: bool) -> str | None:
    outcome = service.outcome
    if outcome is None:
        return "paused" if frozen else None
    said = service.one_k_said or (outcome.hold.message if outcome.hold is not None else outcome.reason)
    return f"paused, so nothing changes; found meanwhile: {said}" if frozen else said


def _capacity(service: Service, resolved: Resolved) -> CapacityStatus | None:
    state, outcome = service.state, service.outcome
    if state is None:
        return None
    able = outcome.capacity if outcome else None
    most, by = (None, None) if resolved.scaler == "Off" else demands.bound(service, resolved)
    load = outcome.in_flight if outcome else None
    return CapacityStatus.model_validate(
        {
            "requestsPerReplica": state.target,
            "limitedBy": able.limited_by if able and able.limited_by != "Default" else None,
            "replicasForLoad": None if load is None else max(1, -(-round(load) // state.target)),
            "reason": able.reason if able else None,
            "maxReplicas": most,
            "maxReplicasBy": by,
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
