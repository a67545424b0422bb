"""One function a condition, each fed what was already fetched: what is so, why in one word, and why in a sentence.

Unknown until known. None of them looks at a condition of an earlier pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outrider.api.conditions import Condition, condition
from outrider.api.defaults import Resolved
from outrider.core.series import Missing
from outrider.errors import OperatorError
from outrider.reconcile.registry import EnginePod

_POD_REASONS = {
    "CrashLoopBackOff": "EngineCrashLoop",
    "CreateContainerConfigError": "ConfigurationMissing",
    "ErrImagePull": "ImageNotPulled",
    "ImagePullBackOff": "ImageNotPulled",
    "Unschedulable": "Unschedulable",
}
"""What a pod's own words mean for the service."""


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


def reconciling(deployment: Mapping[str, Any] | None, pods_ready: int, generation: int) -> Condition | None:
    """Present and True while engines are being started for the first time or replaced; absent otherwise.

    Replicas that the autoscaler adds are daily business and no reconciliation, or every burst would look like a
    rollout.
    """
    if deployment is None:
        return condition("Reconciling", True, "Creating", "the children are being made", generation)
    status, meta = deployment.get("status", {}), deployment["metadata"]
    desired = deployment["spec"].get("replicas", 1)
    updated = status.get("updatedReplicas", 0)
    if status.get("observedGeneration", 0) < meta.get("generation", 0) or updated < status.get("replicas", 0):
        return condition(
            "Reconciling", True, "RollingOut", f"{updated} of {desired} engines run the new template", generation
        )
    if pods_ready == 0:
        return condition("Reconciling", True, "Starting", "the first engine is starting", generation)
    return None


def engine_ready(
    pods: Sequence[EnginePod], deployment: Mapping[str, Any] | None, resolved: Resolved, generation: int
) -> Condition:
    """Whether at least one engine serves; if none does, what keeps it, in the words of the first pod that is stuck."""
    desired = deployment["spec"].get("replicas", 1) if deployment else resolved.min_replicas
    serving = [pod for pod in pods if pod.ready and not pod.terminating]
    if serving:
        message = f"{len(serving)} of {desired} engines serve"
        return condition("EngineReady", True, "EnginesServe", message, generation)
    if not pods:
        return condition("EngineReady", False, "NoPods", "no engine pod exists yet", generation)
    stuck = next((pod for pod in pods if pod.waiting_reason in _POD_REASONS), None)
    if stuck is not None:
        restarts = f" after {stuck.restarts} restarts" if stuck.restarts else ""
        message = f"pod {stuck.name}{restarts}: {stuck.message or stuck.waiting_reason}"
        reason = _POD_REASONS[stuck.waiting_reason]
        if reason == "Unschedulable" and f"Insufficient {resolved.gpu_resource}" in stuck.message:
            reason = "NoFreeGPU"
        return condition("EngineReady", False, reason, message, generation)
    budget = f"{resolved.startup_budget_s} s (startup.budgetSeconds)"
    if _deadline_exceeded(deployment):
        message = f"no engine became ready within its {budget}: raise it, or look at the engine's log"
        return condition("EngineReady", False, "StartupTimeout", message, generation)
    return condition("EngineReady", False, "Starting", f"engines are loading; each has {budget}", generation)


def _deadline_exceeded(deployment: Mapping[str, Any] | None) -> bool:
    found = (deployment or {}).get("status", {}).get("conditions", [])
    return any(one["type"] == "Progressing" and one.get("reason") == "ProgressDeadlineExceeded" for one in found)


def paused(by_spec: bool, generation: int) -> Condition:
    """Present and True while everything is left as it is on purpose."""
    if by_spec:
        return condition("Paused", True, "PausedBySpec", "spec.paused: nothing is changed, all is observed", generation)
    message = "the operator is paused for the whole fleet (OUTRIDER_PAUSED): nothing is changed, all is observed"
    return condition("Paused", True, "PausedByOperator", message, generation)


def metrics_available(missing: Missing | None, known: bool, generation: int) -> Condition:
    """Whether decisions have data; ``known`` is False before the first control pass."""
    if not known:
        return condition("MetricsAvailable", None, "NotAskedYet", "the first control pass has not run yet", generation)
    if missing is None:
        return condition("MetricsAvailable", True, "Fresh", "engine metrics arrive", generation)
    message = f"{missing}; speculation and replicas are held as they are"
    return condition("MetricsAvailable", False, missing.reason, message, generation)


def schedule_applied(
    wanted: int, acknowledged: int, ready_pods: int, refusals: Sequence[str], generation: int
) -> Condition:
    """Whether every ready engine has acknowledged the wanted schedule generation."""
    if ready_pods == 0:
        return condition("ScheduleApplied", None, "NoReadyEngine", "no engine is ready to take a schedule", generation)
    if acknowledged == ready_pods:
        message = f"all {ready_pods} engines acknowledged generation {wanted}"
        return condition("ScheduleApplied", True, "Acknowledged", message, generation)
    message = f"{acknowledged} of {ready_pods} engines acknowledged generation {wanted}"
    if refusals:
        return condition("ScheduleApplied", False, "EngineRefused", f"{message}; {refusals[0]}", generation)
    return condition("ScheduleApplied", False, "Delivering", message, generation)


def autoscaling_ready(
    resolved: Resolved, keda: bool, scaled_object: Mapping[str, Any] | None, generation: int
) -> Condition:
    """Whether replicas follow the load."""
    if not resolved.autoscaled:
        message = f"autoscaling is off; {resolved.min_replicas} replicas are kept"
        return condition("AutoscalingReady", True, "FixedReplicas", message, generation)
    if not keda:
        message = (
            "KEDA is not installed in this cluster; install it, or turn autoscaling off. Replicas stay as they are"
        )
        return condition("AutoscalingReady", False, "KEDAMissing", message, generation)
    found = (scaled_object or {}).get("status", {}).get("conditions", [])
    states = {one["type"]: one for one in found}
    if states.get("Fallback", {}).get("status") == "True":
        message = "KEDA has no metrics and keeps the replicas, or raises them to the minimum"
        return condition("AutoscalingReady", False, "Fallback", message, generation)
    if "Ready" not in states:
        return condition(
            "AutoscalingReady", None, "WaitingForKEDA", "KEDA has not taken up the ScaledObject yet", generation
        )
    healthy = states["Ready"]["status"] == "True"
    message = states["Ready"].get("message", "") or "the ScaledObject is ready"
    return condition("AutoscalingReady", healthy, "Scaling" if healthy else "ScaledObjectNotReady", message, generation)
