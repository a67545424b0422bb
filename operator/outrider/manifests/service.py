"""The Service that clients talk to: the inference port of all tracks, and never the admin port."""

from __future__ import annotations

from outrider.api.defaults import Resolved
from outrider.api.resource import SpeculativeInferenceService
from outrider.engine.command_line import HTTP_PORT
from outrider.manifests.meta import SERVICE_LABEL, Manifest, metadata, selector


def service(resource: SpeculativeInferenceService, settings: Resolved, *, candidate: bool = True) -> Manifest:
    """The Service of a service: of both tracks, since a candidate on trial takes its share of the requests, but of the
    stable one alone while a ``candidate`` must not have any yet."""
    manifest: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(resource, resource.name),
        "spec": {
            "type": settings.service_type,
            "selector": {SERVICE_LABEL: resource.name} if candidate else selector(resource),
            "ports": [{"name": "http", "port": HTTP_PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }
    if resource.spec.service.annotations:
        manifest["metadata"]["annotations"] = dict(sorted(resource.spec.service.annotations.items()))
    if settings.session_affinity_s is not None:
        # A client that comes back to the replica that knows its conversation finds the prefix in the cache.
        manifest["spec"]["sessionAffinity"] = "ClientIP"
        manifest["spec"]["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": settings.session_affinity_s}}
    return manifest
