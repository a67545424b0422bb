"""What all children have in common: names, labels, owner."""

from __future__ import annotations

from typing import Any

from outrider.api import API_VERSION, KIND
from outrider.api.resource import SpeculativeInferenceService
from outrider.core.revisions import processes

Manifest = dict[str, Any]

SERVICE_LABEL = "serving.outrider.dev/service"
TRACK_LABEL = "serving.outrider.dev/track"
REVISION_LABEL = "serving.outrider.dev/revision"
EVALUATES_LABEL = "serving.outrider.dev/evaluates"
"""On pods that evaluate a candidate, in the place of `SERVICE_LABEL`: no Service, budget or policy of engines may take
them for one."""
COMPONENT_LABEL = "app.kubernetes.io/component"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
OWN_PREFIX = "serving.outrider.dev/"
OWN_LABELS = (SERVICE_LABEL, TRACK_LABEL, REVISION_LABEL, COMPONENT_LABEL, MANAGED_BY_LABEL)
"""Those by which pods are found and told apart."""
MANAGER = "outrider"
ENGINE_CONTAINER = "engine"
"""Others in its pod, such as a mesh's, may come before it: the kubelet sorts by name."""
STABLE = "stable"
CANDIDATE = processes.CANDIDATE


def labels(resource: SpeculativeInferenceService) -> dict[str, str]:
    """Labels of every child."""
    return {SERVICE_LABEL: resource.name, MANAGED_BY_LABEL: MANAGER}


def selector(resource: SpeculativeInferenceService, track: str = STABLE) -> dict[str, str]:
    """What selects the pods of one track, for as long as the service lives: a Deployment's selector can never
    change."""
    return {SERVICE_LABEL: resource.name, TRACK_LABEL: track}


def metadata(resource: SpeculativeInferenceService, name: str, **more_labels: str) -> Manifest:
    """Metadata of a child; deleting the resource deletes it, without any help of the operator.

    ``more_labels`` may come from the user, so they never take the place of ours.
    """
    return {
        "name": name,
        "namespace": resource.namespace,
        "labels": {**more_labels, **labels(resource)},
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": resource.name,
                "uid": resource.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
