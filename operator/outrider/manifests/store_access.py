"""How KEDA shows the metrics store who it is: by a ClusterTriggerAuthentication of the platform team's, by name.

Neither the operator nor a service's namespace ever holds the secrets themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outrider.manifests.meta import Manifest


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """What goes with every question of KEDA's; by default nothing does."""

    trigger_authentication: str | None = None
    """Name of a ClusterTriggerAuthentication."""
    modes: tuple[str, ...] = ()
    """What KEDA takes from it; empty when it says so itself, under its parameter authModes."""
    headers: tuple[tuple[str, str], ...] = ()
    """Public ones, such as the tenant."""


def with_access(scaled_object: Manifest, access: StoreAccess) -> Manifest:
    """The ScaledObject with this on every trigger that asks Prometheus."""
    spec = scaled_object["spec"]
    return {**scaled_object, "spec": {**spec, "triggers": [_shown(one, access) for one in spec["triggers"]]}}


def _shown(trigger: dict[str, Any], access: StoreAccess) -> dict[str, Any]:
    if trigger["type"] != "prometheus":
        return trigger
    metadata = dict(trigger["metadata"])
    if access.headers:
        metadata["customHeaders"] = ",".join(f"{name}={value}" for name, value in access.headers)
    if access.trigger_authentication is None:
        return {**trigger, "metadata": metadata}
    if access.modes:
        metadata["authModes"] = ",".join(access.modes)
    reference = {"kind": "ClusterTriggerAuthentication", "name": access.trigger_authentication}
    return {**trigger, "metadata": metadata, "authenticationRef": reference}
