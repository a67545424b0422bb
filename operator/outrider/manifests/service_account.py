"""The engines' ServiceAccount: an identity without rights and without a token, so that no default one is used."""

from __future__ import annotations

from outrider.api.resource import SpeculativeInferenceService
from outrider.manifests.meta import Manifest, metadata


def service_account_name(service: str) -> str:
    """Name of the ServiceAccount of a service's engines."""
    return f"{service}-engine"


def service_account(resource: SpeculativeInferenceService) -> Manifest:
    """The ServiceAccount of the engine pods."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(resource, service_account_name(resource.name)),
        "automountServiceAccountToken": False,
    }
