"""The ScaledObject by which KEDA sets the number of replicas, with the targets that control works out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.api.defaults import Resolved
from outrider.api.resource import SpeculativeInferenceService
from outrider.core.capacity import DEFAULT_REQUESTS_PER_REPLICA
from outrider.manifests import promql, queries
from outrider.manifests.meta import Manifest, metadata

COOLDOWN_S = 300
UP_PERIOD_S = 60  # a replica that was asked for must be given time to show in the load per replica
FAILURES_BEFORE_FALLBACK = 3
WAKE_TARGET = 1_000_000_000  # above any number of requests
KEEP = "autoscaling.keda.sh/paused-scale-in"
"""KEDA's annotation by which no replica is taken away; it goes on to add some, and to wake."""


def keeps(live: Mapping[str, Any]) -> bool:
    """Whether KEDA may take no replica away by a ScaledObject as it is."""
    return bool(live["metadata"].get("annotations", {}).get(KEEP) == "true")


def waiting_target(requests_per_replica: int) -> int:
    """Waiting requests that one replica may have: an eighth of what it carries, since a queue shows that it carries too
    much."""
    return max(1, requests_per_replica // 8)


def scaled_object(
    resource: SpeculativeInferenceService,
    settings: Resolved,
    *,
    target: int,
    prometheus_url: str,
    polling_s: int,
    stabilization_s: int,
    most: int | None = None,
    keep: bool = False,
) -> Manifest:
    """The ScaledObject; ``target`` is in requests in flight per replica, ``prometheus_url`` the store as KEDA reaches
    it, ``polling_s`` the HPA's own period, so that cached values are never older than one decision, ``stabilization_s``
    the look back before a replica is given up, ``most`` the replicas that there may be now, at least 1, where that is
    less than the resource says. ``keep`` forbids KEDA to take replicas away.

    Targets are whole numbers. The order of triggers is part of the metrics' names and must never change; append only.
    """
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": metadata(resource, resource.name) | ({"annotations": {KEEP: "true"}} if keep else {}),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": resource.name},
            "minReplicaCount": settings.min_replicas,
            "maxReplicaCount": settings.max_replicas if most is None else most,
            "pollingInterval": polling_s,
            **_rest(settings),
            "advanced": {
                "restoreToOriginalReplicaCount": False,
                "horizontalPodAutoscalerConfig": {"behavior": _behavior(stabilization_s)},
            },
            "triggers": _triggers(resource, settings, target, prometheus_url),
        },
    }


def _rest(settings: Resolved) -> dict[str, Any]:
    """What holds when triggers fail, and when the last replica goes.

    Of a service that may have none, engine triggers fail whenever none runs, and KEDA takes a trigger that falls back
    for an active one (KEDA 2.21: ``getScalerState``): it would wake the service for ever. Without a fallback the HPA
    keeps the replicas by itself while a metric fails, and KEDA keeps the last one (``RequestScale``).
    """
    if settings.idle_after_s is not None:
        # A new ScaledObject was never active: without this the first replica would go while it loads.
        return {"cooldownPeriod": settings.idle_after_s, "initialCooldownPeriod": settings.startup_budget_s}
    # Prometheus gone or blind: keep what runs, and at least the minimum.
    fallback = {
        "failureThreshold": FAILURES_BEFORE_FALLBACK,
        "replicas": settings.min_replicas,
        "behavior": "currentReplicasIfHigher",
    }
    return {"cooldownPeriod": COOLDOWN_S, "fallback": fallback}


def _wake(prometheus_url: str, query: str) -> dict[str, Any]:
    """The trigger that brings the first replica. What it measures is in no unit of ours, so its target lets it ask for
    no more than one."""
    trigger = _trigger("wake", prometheus_url, query, WAKE_TARGET)
    trigger["metadata"]["activationThreshold"] = "0"
    return trigger


def _triggers(
    resource: SpeculativeInferenceService, settings: Resolved, target: int, prometheus_url: str
) -> list[dict[str, Any]]:
    """Ours first, then the user's in their order, then the one that wakes. Of those that scale by the operator's number
    of replicas no target ever moves, and two of the three work without it."""
    scope = (resource.namespace, resource.name)
    further = resource.spec.autoscaling.triggers if resource.spec.autoscaling else ()
    main = _trigger("in-flight", prometheus_url, queries.in_flight_or_held(*scope), target)
    if settings.scale_by == "DesiredReplicas":
        target = DEFAULT_REQUESTS_PER_REPLICA
        main = _trigger("desired-replicas", prometheus_url, queries.desired_replicas(*scope), 1)
    return [
        main,
        _trigger("waiting", prometheus_url, queries.waiting_requests(*scope), waiting_target(target)),
        _trigger("kv-cache", prometheus_url, queries.kv_cache_percent(*scope), settings.kv_cache_target_percent),
        *(_trigger(one.name, prometheus_url, one.query, one.target, one.metric_type) for one in further),
        *([] if settings.wake_query is None else [_wake(prometheus_url, settings.wake_query)]),
    ]


def warnings(resource: SpeculativeInferenceService) -> list[str]:
    """What is doubtful about the user's own triggers."""
    scaling = resource.spec.autoscaling
    return [
        f"spec.autoscaling.triggers[{one.name}]: the query is an average, and metricType AverageValue divides it by the"
        " replicas: divided twice it never asks for more of them; make it a sum, or set metricType Value"
        for one in (scaling.triggers if scaling is not None and scaling.mode in (None, "KEDA") else ())
        if one.metric_type == "AverageValue" and promql.is_average(one.query)
    ]


def _trigger(name: str, prometheus: str, query: str, target: int, metric_type: str = "AverageValue") -> dict[str, Any]:
    return {
        "type": "prometheus",
        "name": name,
        "metricType": metric_type,
        "useCachedMetrics": True,
        "metadata": {
            "serverAddress": prometheus,
            "query": query,
            "threshold": str(target),
            # KEDA's default counts an empty answer as zero, and a broken scrape at peak would scale everything down.
            "ignoreNullValues": "false",
        },
    }


def _behavior(stabilization_s: int) -> dict[str, Any]:
    """Up as far as the load asks, doubling at most; down by one replica a minute, after a look back."""
    return {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [
                {"type": "Percent", "value": 100, "periodSeconds": UP_PERIOD_S},
                {"type": "Pods", "value": 4, "periodSeconds": UP_PERIOD_S},
            ],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": stabilization_s,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
        },
    }
