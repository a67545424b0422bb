"""The Deployment of a candidate: one engine of another revision beside the stable ones."""

from __future__ import annotations

from outrider.api.defaults import Resolved
from outrider.api.resource import SpeculativeInferenceService
from outrider.manifests.deployment import deployment, deployment_name, with_replicas
from outrider.manifests.engine_container import EngineContainer
from outrider.manifests.meta import CANDIDATE, OWN_PREFIX, Manifest

BOOT_ANNOTATION = OWN_PREFIX + "boot"
"""Which start of the candidate's engine a pod is: another number is another pod, of the same revision."""


def candidate_name(service: str) -> str:
    """Name of the candidate's Deployment."""
    return deployment_name(service, CANDIDATE)


def candidate(
    resource: SpeculativeInferenceService, settings: Resolved, engine: EngineContainer, *, boot: int
) -> Manifest:
    """One replica, whatever the autoscaler does, and never two at a time: the GPU of one is all that it has.

    Raises:
        InvalidSpec: the user's own pod template has something that may not be added.
    """
    manifest = with_replicas(deployment(resource, settings, engine, track=CANDIDATE), 1)
    template, spec = manifest["spec"]["template"], manifest["spec"]
    annotations = {**template["metadata"].get("annotations", {}), BOOT_ANNOTATION: str(boot)}
    marked = template | {"metadata": template["metadata"] | {"annotations": annotations}}
    return manifest | {"spec": spec | {"strategy": {"type": "Recreate"}, "template": marked}}
