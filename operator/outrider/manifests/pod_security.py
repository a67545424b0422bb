"""Kubernetes' restricted profile, as far as containers and volumes of a user's own could break it.

Namespaces need not enforce the profile, so it is kept here whatever they do. Its rules are on Kubernetes' page "Pod
Security Standards".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from outrider.manifests.meta import Manifest

VOLUMES = (
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected"),
    "secret",
)
CAPABILITIES = ("NET_BIND_SERVICE",)
_ANNOTATIONS = ("container.apparmor.security.beta.kubernetes.io/", "seccomp.security.alpha.kubernetes.io/")


def container_faults(container: Mapping[str, Any]) -> Iterator[str]:
    """What of a container the profile forbids: the field below the container, and why."""
    security = _mapping(container.get("securityContext"))
    forbidden = {
        "privileged": security.get("privileged"),
        "allowPrivilegeEscalation": security.get("allowPrivilegeEscalation"),
        "runAsNonRoot": security.get("runAsNonRoot") is False,
        "runAsUser": security.get("runAsUser") == 0,
        "procMount": security.get("procMount", "Default") != "Default",
        "seccompProfile": _mapping(security.get("seccompProfile")).get("type") == "Unconfined",
        "appArmorProfile": _mapping(security.get("appArmorProfile")).get("type") == "Unconfined",
        "seLinuxOptions": security.get("seLinuxOptions"),
        "windowsOptions": security.get("windowsOptions"),
    }
    for field, broken in forbidden.items():
        if broken:
            yield f"securityContext.{field} breaks the restricted profile, which every engine's pod keeps; remove it"
    added = _mapping(security.get("capabilities")).get("add") or ()
    if not set(added) <= set(CAPABILITIES):
        allowed = ", ".join(CAPABILITIES)
        yield f"securityContext.capabilities.add may only have {allowed} in the restricted profile; remove the others"
    if any("hostPort" in port for port in container.get("ports") or () if isinstance(port, Mapping)):
        yield "ports with a hostPort open the node; remove hostPort"


def restricted(container: Mapping[str, Any]) -> Manifest:
    """The container with what the profile wants to be said outright."""
    security = _mapping(container.get("securityContext"))
    added = _mapping(security.get("capabilities")).get("add")
    capabilities = {"drop": ["ALL"]} | ({"add": added} if added else {})
    said = {"allowPrivilegeEscalation": False, "capabilities": capabilities}
    return {**container, "securityContext": {**security, **said}}


def volume_faults(volume: Mapping[str, Any]) -> Iterator[str]:
    """What of a volume the profile forbids, or hands out a token of the API server."""
    for kind in volume:
        if kind not in ("name", *VOLUMES):
            yield f"{kind} is no kind of volume of the restricted profile ({', '.join(VOLUMES)}); use one of them"
    for source in _mapping(volume.get("projected")).get("sources") or ():
        token = _mapping(source).get("serviceAccountToken")
        if isinstance(token, Mapping) and not token.get("audience"):
            yield "projected.sources: a serviceAccountToken without an audience is one of the API server; name another"


def annotation_faults(annotations: Mapping[str, str]) -> Iterator[str]:
    """Annotations by which older clusters loosen a container."""
    for key in annotations:
        if key.startswith(_ANNOTATIONS):
            yield f"{key} would loosen the restricted profile; remove it"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
