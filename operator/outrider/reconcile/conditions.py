"""One function a condition, each fed what was already fetched: what is so, why in one word, and why in a sentence.

Unknown until known. None of them looks at a condition of an earlier pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.api.conditions import (
    CAPACITY_LIMITED,
    ROLLOUT_PROGRESSING,
    SPECULATION_HEALTHY,
    Condition,
    condition,
)
from outrider.api.defaults import Resolved
from outrider.core.acceptance import MIN_DRAFTS, AcceptanceState
from outrider.core.series import Missing
from outrider.core.words import count, share
from outrider.errors import OperatorError
from outrider.reconcile import rollout
from outrider.reconcile.engine_pod import EnginePod
from outrider.reconcile.troubles import Trouble

CAPACITY = frozenset(
    ("NoFreeGPU", "Unschedulable", "QuotaExceeded", "VolumeClaimNotBound", "VolumeClaimNotFound", "CacheNotShareable")
)
"""Troubles that mean: the cluster has no place for one more engine."""
NO_SERIES_PASSES = 8
"""Control periods, two minutes by default, that Prometheus has to find a ready engine: its configuration follows a new
PodMonitor within one, and the first rate needs two scrapes."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of Prometheus, and for how long a ready engine may be absent from the answer."""

    text: str
    patience_s: float


def ready(fault: OperatorError | None, engine: Condition, generation: int) -> Condition:
    """Whether the service answers requests as its resource asks.

    | pass failed | an engine is ready | Ready          |
    |-------------|--------------------|----------------|
    | no          | yes                | True           |
    | no          | no                 | False          |
    | yes         | any                | False; Unknown when the API server did not answer, or the fault is ours |
    """
    if fault is not None:
        unclear = fault.reason.startswith(("APIServer", "InternalError"))
        return condition("Ready", None if unclear else False, fault.reason, fault.message, generation)
    return condition("Ready", engine.status == "True", engine.reason, engine.message, generation)


def reconciling(
    deployment: Mapping[str, Any] | None,
    pods: Sequence[EnginePod],
    troubles: Sequence[Trouble],
    fault: OperatorError | None,
    generation: int,
) -> Condition | None:
    """Present and True while engines are being started for the first time or replaced; absent otherwise.

    Replicas that the autoscaler adds are daily business and no reconciliation, or every burst would look like a
    rollout. Nor is anything made while a fault keeps the pass from it, or while something is the matter that time does
    not mend.
    """
    if deployment is None:
        if fault is not None:
            return None
        return condition("Reconciling", True, "Creating", "the children are being made", generation)
    if rollout.under_way(deployment, pods):
        message = rollout.share_updated(deployment) + " the new template" + rollout.downtime(deployment)
        return condition("Reconciling", True, "RollingOut", message, generation)
    if not _serving(pods) and all(trouble.passing for trouble in troubles):
        return condition("Reconciling", True, "Starting", "no engine is ready yet", generation)
    return None


def stalled(
    deployment: Mapping[str, Any] | None, troubles: Sequence[Trouble], resolved: Resolved, generation: int
) -> Condition | None:
    """Present and True once an update, or the first start, has made no progress for as long as the Deployment allows;
    then in place of Reconciling. What the owner has to change first is told where the resource is refused."""
    if not rollout.deadline_exceeded(deployment):
        return None
    trouble = next((one for one in troubles if not one.passing), _timeout(resolved))
    return condition("Stalled", True, trouble.reason, f"no progress any more: {trouble.message}", generation)


def rollout_progressing(
    deployment: Mapping[str, Any] | None, pods: Sequence[EnginePod], troubles: Sequence[Trouble], generation: int
) -> Condition | None:
    """Present and False while an update cannot go on; absent while it does, and where there is none."""
    if deployment is None or not rollout.under_way(deployment, pods):
        return None
    wanted = rollout.revision(deployment)
    trouble = next((one for one in troubles if not one.passing and one.revision in (None, wanted)), None)
    if trouble is None:
        return None
    message = f"the update is stuck ({rollout.share_updated(deployment)} the new template): {trouble.message}"
    return condition(ROLLOUT_PROGRESSING, False, trouble.reason, message, generation)


def capacity_limited(
    deployment: Mapping[str, Any] | None, pods: Sequence[EnginePod], troubles: Sequence[Trouble], generation: int
) -> Condition | None:
    """Present and True while some engines serve and the cluster has no place for the others that are wanted."""
    serving = len(_serving(pods))
    if deployment is None or not serving or rollout.under_way(deployment, pods):
        return None
    trouble = next((one for one in troubles if not one.passing and one.reason in CAPACITY), None)
    if trouble is None:
        return None
    desired = deployment["spec"].get("replicas", 1)
    message = f"{share(serving, desired, 'engine', 'serve')}, and the cluster has no place for more: {trouble.message}"
    return condition(CAPACITY_LIMITED, True, trouble.reason, message, generation)


def engine_ready(
    pods: Sequence[EnginePod],
    deployment: Mapping[str, Any] | None,
    resolved: Resolved,
    troubles: Sequence[Trouble],
    fault: OperatorError | None,
    generation: int,
) -> Condition:
    """Whether at least one engine serves; if none does, what keeps it, in the words of the first pod that is stuck, or
    of the fault that kept the Deployment from being made."""
    desired = deployment["spec"].get("replicas", 1) if deployment else resolved.min_replicas
    serving = _serving(pods)
    trouble = next((one for one in troubles if not one.passing), next(iter(troubles), None))
    if serving:
        message = share(len(serving), desired, "engine", "serve")
        if trouble is not None:
            message += f"; {trouble.message}"
        elif deployment is not None:
            message += rollout.downtime(deployment)
        return condition("EngineReady", True, "EnginesServe", message, generation)
    if trouble is None and not pods and deployment is None and fault is not None:
        message = f"no engine can be made: {fault.message}"
        return condition("EngineReady", False, fault.reason, message, generation)
    if trouble is None and not pods:
        return condition("EngineReady", False, "NoPods", "no engine pod exists yet", generation)
    if trouble is None and rollout.deadline_exceeded(deployment):
        trouble = _timeout(resolved)
    if trouble is not None:
        return condition("EngineReady", False, trouble.reason, trouble.message, generation)
    message = f"engines are loading; each has {resolved.startup_budget_s} s (spec.startup.budgetSeconds)"
    return condition("EngineReady", False, "Starting", message, generation)


def _serving(pods: Sequence[EnginePod]) -> list[EnginePod]:
    return [pod for pod in pods if pod.ready and not pod.terminating]


def _timeout(resolved: Resolved) -> Trouble:
    message = (
        f"no engine became ready within its {resolved.startup_budget_s} s: raise spec.startup.budgetSeconds, or look at"
        " the engine's log"
    )
    return Trouble("StartupTimeout", message)


def paused(
    by_spec: bool,
    scaled_object: Mapping[str, Any] | None,
    deployment: Mapping[str, Any] | None,
    generation: int,
) -> Condition:
    """Present and True while everything is left as it is on purpose; says what goes on all the same."""
    reason, cause, remedy = (
        ("PausedBySpec", "spec.paused", "set paused: false")
        if by_spec
        else ("PausedByOperator", "OUTRIDER_PAUSED for the whole fleet", "unset it where the operator runs")
    )
    message = (
        f"paused by {cause}: changes of the spec wait; {_goes_on(scaled_object, deployment)}; {remedy} to continue"
    )
    return condition("Paused", True, reason, message, generation)


def _goes_on(scaled_object: Mapping[str, Any] | None, deployment: Mapping[str, Any] | None) -> str:
    """What becomes of the replicas of a paused service."""
    if scaled_object is not None:
        spec = scaled_object["spec"]
        target = spec["triggers"][0]["metadata"]["threshold"]
        bounds = f"{spec['minReplicaCount']}-{spec['maxReplicaCount']}"
        return f"the autoscaler goes on with the last target ({target}) and bounds {bounds}"
    if deployment is not None:
        return f"it keeps {count(deployment['spec'].get('replicas', 1), 'replica')}"
    return "nothing was made of it so far"


def metrics_available(
    missing: Missing | None,
    left_out: Sequence[Missing],
    known: bool,
    ready_for_s: float | None,
    query: Query,
    generation: int,
) -> Condition:
    """Whether decisions have data; ``known`` is False before the first control pass, ``left_out`` tells of engines that
    decisions go without.

    ``ready_for_s`` is for how long the oldest engine has been ready; None if none is. An empty answer to ``query`` is
    no news before its time.
    """
    if not known:
        return condition("MetricsAvailable", None, "NotAskedYet", "the first control pass has not run yet", generation)
    if missing is None:
        message = "engine metrics arrive"
        if left_out:
            message += f"; without {count(len(left_out), 'engine')}: {left_out[0].message}"
        return condition("MetricsAvailable", True, "Fresh", message, generation)
    if missing.reason == "NoReadyEngine" and ready_for_s is not None:
        message = "an engine has become ready; the next control pass asks for its metrics"
        return condition("MetricsAvailable", None, "NotAskedYet", message, generation)
    if missing.reason == "NoSeries" and ready_for_s is not None:
        if ready_for_s < query.patience_s:
            message = f"an engine is ready, and Prometheus has {query.patience_s:.0f} s to find it"
            return condition("MetricsAvailable", None, "WaitingForMetrics", message, generation)
        message = (
            f"an engine is ready and the answer to {query.text} is empty: see whether Prometheus scrapes the pods and"
            " keeps these labels (spec.monitoring; without its operator, the scrape configuration);"
            " speculation and replicas are held as they are"
        )
        return condition("MetricsAvailable", False, "NoSeries", message, generation)
    message = f"{missing}; speculation and replicas are held as they are"
    return condition("MetricsAvailable", False, missing.reason, message, generation)


def speculation_healthy(acceptance: AcceptanceState, generation: int) -> Condition:
    """Whether the drafter fits the traffic.

    A slow decline is told and is no fault: K follows it, and the service still gains. Rejected drafts are pure cost.
    """
    if acceptance.collapsed:
        message = "every draft is rejected while engines work: look at the drafter, its model and its version"
        return condition(SPECULATION_HEALTHY, False, "AcceptanceCollapsed", message, generation)
    if acceptance.drafts < MIN_DRAFTS:
        message = "too few drafts were made lately to tell: speculation is off at this load, or there is little traffic"
        return condition(SPECULATION_HEALTHY, None, "InsufficientData", message, generation)
    trend = acceptance.trend
    if trend is None or not trend.declining:
        return condition(SPECULATION_HEALTHY, True, "DraftsAccepted", "drafts are accepted", generation)
    message = (
        f"acceptance declines slowly: with K {trend.num_speculative_tokens} a step yields {trend.now.value:.2f} tokens,"
        f" {trend.baseline.value:.2f} in the first half hour; the drafter may need training on present traffic"
    )
    return condition(SPECULATION_HEALTHY, True, "AcceptanceDeclining", message, generation)


def schedule_applied(
    wanted: int,
    acknowledged: int,
    ready_pods: int,
    refusals: Sequence[str],
    generation: int,
    *,
    only: int | None = None,
) -> Condition:
    """Whether every ready engine has acknowledged the schedule of the number wanted.

    ``only`` is the one K that engines are started with, None where there is a choice. An engine of several data ranks,
    for example, takes no schedule at all, and runs the one that there is.
    """
    if ready_pods == 0:
        return condition("ScheduleApplied", None, "NoReadyEngine", "no engine is ready to take a schedule", generation)
    if acknowledged == ready_pods:
        engines = "the engine" if ready_pods == 1 else f"all {ready_pods} engines"
        message = f"{engines} acknowledged schedule {wanted}"
        return condition("ScheduleApplied", True, "Acknowledged", message, generation)
    if refusals and only is not None:
        message = (
            f"engines are started with {count(only, 'speculative token')} a step and no choice: nothing is to apply"
        )
        return condition("ScheduleApplied", True, "NothingToChoose", message, generation)
    message = f"{acknowledged} of {count(ready_pods, 'engine')} acknowledged schedule {wanted}"
    if refusals:
        return condition("ScheduleApplied", False, "EngineRefused", f"{message}; {refusals[0]}", generation)
    return condition("ScheduleApplied", False, "Delivering", message, generation)


def fixed_replicas(replicas: int, generation: int) -> Condition:
    """Nobody scales the service, as its owner wants it."""
    message = f"autoscaling is off; the service keeps {count(replicas, 'replica')}"
    return condition("AutoscalingReady", True, "FixedReplicas", message, generation)
