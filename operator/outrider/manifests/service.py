"""The Service that clients talk to: the inference port of all tracks, and never the admin port."""

from __future__ import annotations

from outrider.api.resource import SpeculativeInferenceService
from outrider.engine.command_line import HTTP_PORT
from outrider.manifests.meta import SERVICE_LABEL, Manifest, metadata


def service(resource: SpeculativeInferenceService) -> Manifest:
    """The Service of a service; a candidate on trial takes its share of the requests, so both tracks are selected."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(resource, resource.name),
        "spec": {
            "type": "ClusterIP",
            "selector": {SERVICE_LABEL: resource.name},
            "ports": [{"name": "http", "port": HTTP_PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }
