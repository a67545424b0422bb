"""Whether load can become replicas: what stands on the way from a ScaledObject to the Deployment, and what is broken.

    ScaledObject ─▶ KEDA ─▶ HPA ─▶ APIService external.metrics.k8s.io ─▶ KEDA's adapter ─▶ its queries

One adapter alone can have that APIService. If another one takes it, the HPA gets no metrics, KEDA sees nothing wrong
and does not fall back (kedacore/keda#6475); hence the HPA's own verdict counts, and the APIService explains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.api.conditions import Condition, condition
from outrider.core.series import Missing
from outrider.errors import OperatorError

Manifest = Mapping[str, Any]

CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "scaledobjects.keda.sh")
API_SERVICE = ("apiregistration.k8s.io/v1", "APIService", "v1beta1.external.metrics.k8s.io")
VERSION = "v1alpha1"
MAX_WORDS = 300
"""Of a controller's message; the HPA repeats whole queries."""
HELD = "Replicas stay as they are"
_FALLBACK = ("properties", "spec", "properties", "fallback", "properties", "behavior")


@dataclass(frozen=True, slots=True)
class ScalingPath:
    """The part of the way that all services share; what could not be looked at counts as sound."""

    served: bool | None = None
    """Whether ScaledObjects can be made; None if we do not know."""
    too_old: Missing | None = None
    """Why KEDA cannot have our ScaledObjects."""
    adapter: Missing | None = None
    """Why the HPA's questions do not reach KEDA's adapter."""


UNKNOWN = ScalingPath()


def can_serve(definition: Manifest | None) -> bool:
    """Whether the API server takes ScaledObjects; a definition that is being deleted takes no new ones."""
    if definition is None or "deletionTimestamp" in definition["metadata"]:
        return False
    return any(one["name"] == VERSION and one.get("served", False) for one in definition["spec"]["versions"])


def too_old(definition: Manifest | None) -> Missing | None:
    """Whether a fallback can keep the present replicas; without it an outage of Prometheus would scale everything to
    the minimum, so such a KEDA gets no ScaledObject."""
    for one in () if definition is None else definition["spec"]["versions"]:
        if one["name"] == VERSION:
            found: Any = one.get("schema", {}).get("openAPIV3Schema", {})
            for part in _FALLBACK:
                found = found.get(part) or {}
            if "currentReplicasIfHigher" not in found.get("enum", ()):
                message = (
                    "this KEDA knows no fallback.behavior currentReplicasIfHigher, without which an outage of"
                    f" Prometheus would take replicas away: install KEDA 2.17 or later, its definitions too. {HELD}"
                )
                return Missing("KEDATooOld", message)
    return None


def adapter(api_service: Manifest | None) -> Missing | None:
    """What keeps the HPA's questions from KEDA's adapter; KEDA is known by the name of its Service or namespace."""
    name = API_SERVICE[2]
    if api_service is None:
        message = f"there is no APIService {name}: start KEDA's metrics adapter, which registers it. {HELD}"
        return Missing("ExternalMetricsUnavailable", message)
    service = api_service["spec"].get("service") or {}
    where = f"{service.get('namespace', '')}/{service.get('name', '')}"
    if "keda" not in where:
        message = (
            f"APIService {name} leads to {where} and not to KEDA: a cluster has one adapter for external metrics; take"
            f" them out of the other one's, and apply KEDA's APIService again. {HELD}"
        )
        return Missing("ExternalMetricsTaken", message)
    available = _find("Available", api_service)
    if available.get("status") == "False":
        message = f"KEDA's adapter {where} does not answer: {_words(available)}; look at its pods. {HELD}"
        return Missing("ExternalMetricsUnavailable", message)
    return None


def autoscaling_ready(
    keda: bool,
    scaled_object: Manifest | None,
    hpa: Manifest | None,
    path: ScalingPath,
    *,
    answered: bool,
    fault: OperatorError | None,
    generation: int,
) -> Condition:
    """Whether replicas follow the load; ``answered`` tells whether a query of KEDA's ever had an answer. Before that it
    falls back as it does without metrics, which is no news while the first engine starts."""
    if not keda:
        message = f"KEDA is not installed in this cluster; install it, or turn autoscaling off. {HELD}"
        return condition("AutoscalingReady", False, "KEDAMissing", message, generation)
    states = {one["type"]: one for one in _conditions(scaled_object)}
    if scaled_object is None and fault is not None:
        message = f"no ScaledObject can be made: {fault.message}"
        return condition("AutoscalingReady", None, fault.reason, message, generation)
    broken = path.too_old or (_on_the_way(hpa, path) if "Ready" in states else None)
    if broken is not None:
        return condition("AutoscalingReady", False, broken.reason, broken.message, generation)
    if "Ready" not in states:
        message = "KEDA has not taken up the ScaledObject yet"
        return condition("AutoscalingReady", None, "WaitingForKEDA", message, generation)
    healthy = states["Ready"]["status"] == "True"
    if healthy and not answered:
        message = "KEDA's query has not answered yet: it does once Prometheus has the first engine's metrics"
        return condition("AutoscalingReady", None, "Starting", message, generation)
    if states.get("Fallback", {}).get("status") == "True":
        message = "KEDA has no metrics and keeps the replicas, or raises them to the minimum"
        return condition("AutoscalingReady", False, "Fallback", message, generation)
    active = _find("ScalingActive", hpa)
    if healthy and _stands(active):
        message = f"the HPA has no metrics: {_words(active)}; look at KEDA's operator and adapter. {HELD}"
        return condition("AutoscalingReady", False, "HPAInactive", message, generation)
    message = states["Ready"].get("message", "") or "the ScaledObject is ready"
    return condition("AutoscalingReady", healthy, "Scaling" if healthy else "ScaledObjectNotReady", message, generation)


def _on_the_way(hpa: Manifest | None, path: ScalingPath) -> Missing | None:
    """What is broken between the HPA and KEDA, or the HPA and the Deployment. An adapter of a name that we do not know
    is KEDA's after all if the HPA has metrics."""
    able = _find("AbleToScale", hpa)
    if able.get("status") == "False":
        return Missing("HPAUnable", f"the HPA cannot scale the Deployment: {_words(able)}. {HELD}")
    active = _find("ScalingActive", hpa)
    if path.adapter is not None and (not active or _stands(active)):
        return path.adapter
    return None


def _stands(active: Manifest) -> bool:
    """Whether the HPA has nothing to go by; without replicas it rests, which is no fault."""
    return active.get("status") == "False" and active.get("reason") != "ScalingDisabled"


def _find(type_: str, body: Manifest | None) -> Manifest:
    return next((one for one in _conditions(body) if one["type"] == type_), {})


def _conditions(body: Manifest | None) -> list[Manifest]:
    """The conditions of an object that may not be there, or have none yet."""
    return list((body or {}).get("status", {}).get("conditions") or ())


def _words(said: Manifest) -> str:
    reason, message = said.get("reason", ""), said.get("message", "")
    words = f"{reason}, {message}".strip(", ").rstrip(".")
    return words if len(words) <= MAX_WORDS else words[:MAX_WORDS].rsplit(maxsplit=1)[0] + " …"
