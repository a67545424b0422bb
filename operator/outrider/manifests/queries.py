"""PromQL of the autoscaler's triggers.

Each query answers with exactly one element, a sum over the replicas of the stable track: KEDA divides by the target per
replica, so an average here would be divided twice. Without series the answer is empty, not zero; KEDA then falls back
and keeps the replicas.
"""

from __future__ import annotations

from outrider.core import engine_metrics
from outrider.manifests.meta import STABLE

DESIRED_REPLICAS = "outrider_desired_replicas"
"""The operator's own metric of the replicas that it wants, by namespace and service."""
HELD_REQUESTS = "outrider_held_requests"
"""The operator's own metric of the requests in flight that the autoscaler is to see at the least."""
_REPLICA = "namespace, pod"
_ENGINE = f"{_REPLICA}, engine"
"""What one engine is. The maximum over all else counts it once, though two scrape jobs find it, or two processes
report."""


def in_flight_requests(namespace: str, service: str) -> str:
    """Requests that run or wait."""
    names = (*engine_metrics.NUM_REQUESTS_RUNNING, *engine_metrics.NUM_REQUESTS_WAITING)
    return f"sum(max by (__name__, {_ENGINE}) ({_any_of(names, namespace, service)}))"


def in_flight_or_held(namespace: str, service: str) -> str:
    """Requests that run or wait, or what the operator holds, if that is more.

    Without the operator it is the load alone, and without the engines nothing; where nothing runs nothing is held, so
    that an idle service falls asleep.
    """
    in_flight, held = in_flight_requests(namespace, service), of_operator(HELD_REQUESTS, namespace, service)
    return f"({held} > ({in_flight} > 0)) or {in_flight}"


def waiting_requests(namespace: str, service: str) -> str:
    """Requests that wait for a place in a batch."""
    return f"sum(max by ({_ENGINE}) ({_any_of(engine_metrics.NUM_REQUESTS_WAITING, namespace, service)}))"


def kv_cache_percent(namespace: str, service: str) -> str:
    """Use of the KV cache in percent, added up over replicas, of which each is as full as its fullest engine; some
    versions export it under two names."""
    return f"sum(max by ({_REPLICA}) ({_any_of(engine_metrics.KV_CACHE_USAGE, namespace, service)})) * 100"


def desired_replicas(namespace: str, service: str) -> str:
    """Replicas that the operator wants, from its own metrics."""
    return of_operator(DESIRED_REPLICAS, namespace, service)


def of_operator(metric: str, namespace: str, service: str) -> str:
    """What the operator's own metrics say of a service.

    A scrape without ``honorLabels`` renames labels that its target has too: the namespace always, with a ServiceMonitor
    the service as well.
    """
    mine, whose = escape(namespace), escape(service)
    variants = (
        f'namespace="{mine}",service="{whose}",exported_namespace=""',
        f'exported_namespace="{mine}",service="{whose}",exported_service=""',
        f'exported_namespace="{mine}",exported_service="{whose}"',
    )
    return "max(" + " or ".join(f"{metric}{{{one}}}" for one in variants) + ")"


def _any_of(names: tuple[str, ...], namespace: str, service: str) -> str:
    name = "|".join(names)
    matcher = f'__name__="{name}"' if len(names) == 1 else f'__name__=~"{name}"'
    labels = {"namespace": namespace, "serving_outrider_dev_service": service, "serving_outrider_dev_track": STABLE}
    return "{" + ",".join([matcher, *(f'{label}="{escape(value)}"' for label, value in labels.items())]) + "}"


def escape(value: str) -> str:
    """A label value as PromQL wants it between double quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
