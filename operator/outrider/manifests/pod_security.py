"""Kubernetes' restricted profile, as far as containers and volumes of a user's own could break it.

Namespaces need not enforce the profile, so it is kept here whatever they do. Its rules are on Kubernetes' page "Pod
Security Standards".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from outrider.api.defaults import Resolved
from outrider.manifests.meta import Manifest

VOLUMES = (
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected"),
    "secret",
)
CAPABILITIES = ("NET_BIND_SERVICE",)
API_SERVER = "https://kubernetes.default"
"""How the audience of the API server begins where nobody set another."""
API_CLIENTS = "kubernetes.io/kube-apiserver-client"
"""How signers begin whose certificates the API server takes for a log-in."""
ALL_GPUS = "NVIDIA_VISIBLE_DEVICES"
"""By it NVIDIA's container runtime chooses GPUs, whatever the pod requested."""
NO_GPUS = ("void", "none")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")
_ANNOTATIONS = ("container.apparmor.security.beta.kubernetes.io/", "seccomp.security.alpha.kubernetes.io/")


def context(settings: Resolved) -> Manifest:
    """The security context of every pod of a service, within the restricted profile."""
    return {
        "runAsNonRoot": True,
        "runAsUser": settings.run_as_user,
        "runAsGroup": settings.run_as_group,
        "fsGroup": settings.fs_group,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


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
    if any(one not in CAPABILITIES for one in _items(_mapping(security.get("capabilities")).get("add"))):
        allowed = ", ".join(CAPABILITIES)
        yield f"securityContext.capabilities.add may only have {allowed} in the restricted profile; remove the others"
    if any("hostPort" in _mapping(port) for port in _items(container.get("ports"))):
        yield "ports with a hostPort open the node; remove hostPort"
    yield from _hosts(container)
    for variable in map(_mapping, _items(container.get("env"))):
        if variable.get("name") == ALL_GPUS and variable.get("value") not in NO_GPUS:
            yield f"env: {ALL_GPUS} hands out GPUs past the scheduler; remove it, and request GPUs in resources"


def _hosts(container: Mapping[str, Any]) -> Iterator[str]:
    """Probes and hooks are asked by the node, which reaches what the pod may not."""
    lifecycle = _mapping(container.get("lifecycle"))
    asked = {name: container.get(name) for name in _PROBES}
    asked |= {f"lifecycle.{name}": lifecycle.get(name) for name in _HOOKS}
    for field, action in asked.items():
        for how in ("httpGet", "tcpSocket"):
            if _mapping(_mapping(action).get(how)).get("host"):
                yield f"{field}.{how}.host makes the node ask whom it names; remove host, and the pod itself is asked"


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
    for source in _items(_mapping(volume.get("projected")).get("sources")):
        token = _mapping(source).get("serviceAccountToken")
        if isinstance(token, Mapping) and str(token.get("audience") or API_SERVER).startswith(API_SERVER):
            yield (
                "projected.sources: a serviceAccountToken without an audience, or with the API server's own, is one of"
                " the API server; name another"
            )
        signer = str(_mapping(_mapping(source).get("podCertificate")).get("signerName", ""))
        if signer.startswith(API_CLIENTS):
            yield f"projected.sources: a certificate of {signer} opens the API server; name another signer"


def annotation_faults(annotations: Mapping[str, str]) -> Iterator[str]:
    """Annotations by which older clusters loosen a container."""
    for key in annotations:
        if key.startswith(_ANNOTATIONS):
            yield f"{key} would loosen the restricted profile; remove it"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: object) -> list[Any]:
    """The elements of a list; of what is none the API server says so."""
    return value if isinstance(value, list) else []
