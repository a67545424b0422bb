"""The PodDisruptionBudget: nodes are drained one replica at a time, and drained they can be."""

from __future__ import annotations

from outrider.api.defaults import Resolved
from outrider.api.resource import SpeculativeInferenceService
from outrider.manifests.meta import SERVICE_LABEL, Manifest, metadata


def pod_disruption_budget(resource: SpeculativeInferenceService, settings: Resolved) -> Manifest:
    """So many replicas at a time, one unless the user says otherwise; a minimum instead would block the drain of a
    service with one replica for ever."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(resource, resource.name),
        "spec": {
            "maxUnavailable": settings.disruption_max_unavailable,
            "selector": {"matchLabels": {SERVICE_LABEL: resource.name}},
            # An engine that crash-loops must not keep its node from being drained.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
