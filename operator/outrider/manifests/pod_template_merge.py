"""What users add to the pod template themselves: merged into ours, or refused with the reason and the field to use.

What we have no opinion on is passed on as it is, and the API server judges it. Refused is what the operator sets itself
and what would open the pod: whatever is added, it keeps Kubernetes' restricted profile and gets no rights at the API
server.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from outrider.api.surroundings import PodTemplate, PodTemplateMetadata
from outrider.engine.command_line import ADMIN_PORT, HTTP_PORT
from outrider.errors import InvalidSpec
from outrider.manifests import pod_security
from outrider.manifests.meta import ENGINE_CONTAINER, OWN_LABELS, OWN_PREFIX, Manifest

ADMIN = "admin"
"""The volume with the key of the admin port."""
POD_SECURITY = ("fsGroupChangePolicy", "supplementalGroups", "supplementalGroupsPolicy")
"""Of the pod's security context: how files of volumes are reached, which takes nothing from the restricted profile."""
OF_ENGINE = ("name", "resources", "volumeMounts")
"""Of the engine's container: everything else in it is ours."""
_LISTS = ("volumes", "initContainers", "containers")

_NODE = "shares the node's own, and with it what other pods do there; remove it"
_ACCOUNT = "is set by the operator: the pod runs under an account without rights; remove it"
REFUSED: dict[str, str] = {
    "serviceAccountName": _ACCOUNT,
    "serviceAccount": _ACCOUNT,
    "automountServiceAccountToken": "is set by the operator: engines get no token of the API server; remove it",
    "hostNetwork": _NODE,
    "hostPID": _NODE,
    "hostIPC": _NODE,
    "enableServiceLinks": "is set by the operator: a Service called vllm would stop the engine; remove it",
    "terminationGracePeriodSeconds": "is set from spec.drain.terminationGraceSeconds; set it there",
    "imagePullSecrets": "is set from spec.engine.imagePullSecrets; set it there",
    "resourceClaims": "is set from spec.resources.resourceClaims; set it there",
    "restartPolicy": "is Always in a Deployment; remove it",
    "nodeName": "goes past the scheduler; use spec.placement.nodeSelector",
    "activeDeadlineSeconds": "would end a service that is well; remove it",
    "ephemeralContainers": "belong to running pods; use kubectl debug",
} | {
    name: f"is set from spec.placement.{name}; set it there"
    for name in (
        *("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "priorityClassName"),
        *("runtimeClassName", "schedulerName"),
    )
}
"""Fields of a pod's spec that are not the user's, each with what to do instead."""
REFUSED_OF_ENGINE: dict[str, str] = {
    "image": "use spec.engine.image",
    "imagePullPolicy": "use spec.engine.imagePullPolicy",
    "command": "use spec.engine.image",
    "args": "use spec.engine.extraArgs",
    "env": "use spec.engine.env",
    "envFrom": "use spec.engine.env",
    "startupProbe": "use spec.startup.budgetSeconds",
    "lifecycle": "use spec.drain",
    "securityContext": "use spec.security",
}
_OF_RESOURCES = {"cpu": "use spec.resources.cpu", "memory": "use spec.resources.memory"}


def check(added: PodTemplate, template: Manifest, gpu_resource: str) -> None:
    """Refuse what may not be added to ``template``, which is the operator's own.

    Raises:
        InvalidSpec: the message names every field by its path, why it is refused, and what to do instead.
    """
    faults = [*metadata_faults(added.metadata), *shape_faults(added.spec)]
    if not faults:
        faults = [*_spec(added.spec, template["spec"], gpu_resource)]
    if faults:
        raise InvalidSpec("PodTemplateRefused", "; ".join(f"spec.podTemplate.{fault}" for fault in faults))


def merge(added: PodTemplate, template: Manifest) -> Manifest:
    """The template with what the user adds, which `check` has let through."""
    ours: Manifest = template["spec"]
    more: Manifest = dict(added.spec)
    lists: dict[str, list[Any]] = {name: more.pop(name, None) or [] for name in _LISTS}
    engine = [one for one in lists["containers"] if one["name"] == ENGINE_CONTAINER]
    sidecars = [pod_security.restricted(one) for one in lists["containers"] if one["name"] != ENGINE_CONTAINER]
    first = [pod_security.restricted(one) for one in lists["initContainers"]]
    spec = {
        **more,
        **ours,
        "securityContext": {**more.get("securityContext", {}), **ours["securityContext"]},
        "containers": [_with(ours["containers"][0], engine[0] if engine else {}), *sidecars],
        "volumes": [*ours["volumes"], *lists["volumes"]],
    }
    if first:
        spec["initContainers"] = [*ours.get("initContainers", []), *first]
    metadata = dict(template["metadata"])
    if added.metadata.labels:
        metadata["labels"] = {**dict(sorted(added.metadata.labels.items())), **metadata["labels"]}
    if added.metadata.annotations:
        metadata["annotations"] = dict(sorted(added.metadata.annotations.items()))
    return {"metadata": metadata, "spec": spec}


def _with(container: Manifest, more: Mapping[str, Any]) -> Manifest:
    """Our container with a user's mounts and resources."""
    resources = {
        side: {**container["resources"].get(side, {}), **more.get("resources", {}).get(side, {})}
        for side in ("requests", "limits")
    }
    merged = container["resources"] | {side: amounts for side, amounts in resources.items() if amounts}
    mounts = [*container["volumeMounts"], *more.get("volumeMounts", [])]
    return container | {"resources": merged, "volumeMounts": mounts}


def metadata_faults(added: PodTemplateMetadata) -> Iterator[str]:
    """What of labels and annotations may not be added: the field below the template, and why."""
    for key in added.labels:
        if key in OWN_LABELS or key.startswith(OWN_PREFIX):
            yield f"metadata.labels: {key} is set by the operator, which finds its pods by it; remove it"
    for fault in pod_security.annotation_faults(added.annotations):
        yield f"metadata.annotations: {fault}"


def shape_faults(spec: Mapping[str, Any]) -> Iterator[str]:
    """What is looked at below must have the form that a pod gives it; the rest is the API server's to judge."""
    for name in _LISTS:
        entries = spec.get(name) or []
        if not isinstance(entries, list) or not all(
            isinstance(one, Mapping) and isinstance(one.get("name"), str) for one in entries
        ):
            yield f"spec.{name} must be a list of objects with a name each, as in a pod"
        elif len({one["name"] for one in entries}) < len(entries):
            yield f"spec.{name} has a name twice; take another for one of them"
    if not isinstance(spec.get("securityContext", {}), Mapping):
        yield "spec.securityContext must be an object, as in a pod"


def _spec(spec: Mapping[str, Any], ours: Manifest, gpu_resource: str) -> Iterator[str]:
    for field, why in REFUSED.items():
        if field in spec:
            yield f"spec.{field} {why}"
    for field in spec.get("securityContext", {}):
        if field not in POD_SECURITY:
            yield f"spec.securityContext.{field} is the operator's to set; use spec.security, or remove it"
    volumes = {one["name"] for one in ours["volumes"]}
    for volume in spec.get("volumes") or ():
        if volume["name"] in volumes:
            yield _taken("volumes", volume["name"])
        for fault in pod_security.volume_faults(volume):
            yield f"spec.volumes[{volume['name']}]: {fault}"
    taken = {ENGINE_CONTAINER, *(one["name"] for one in ours.get("initContainers", ()))}
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            name = container["name"]
            if field == "containers" and name == ENGINE_CONTAINER:
                yield from _engine(container, ours["containers"][0], gpu_resource)
            elif name in taken:
                yield _taken(field, name)
            else:
                faults = [*pod_security.container_faults(container), *_ports(container), *_key(container)]
                yield from (f"spec.{field}[{name}]: {fault}" for fault in faults)


def _taken(field: str, name: str) -> str:
    return f"spec.{field}[{name}]: that name is the operator's own; take another"


def _ports(container: Mapping[str, Any]) -> Iterator[str]:
    """Ports of a sidecar share the pod's address with ours, and a Service finds ``http`` by its name."""
    ports = container.get("ports") or ()
    for port in ports if isinstance(ports, Sequence) else ():
        if isinstance(port, Mapping) and (
            port.get("name") in ("http", "admin") or port.get("containerPort") in (HTTP_PORT, ADMIN_PORT)
        ):
            yield f"ports http {HTTP_PORT} and admin {ADMIN_PORT} are the engine's; take another name and number"


def _key(container: Mapping[str, Any]) -> Iterator[str]:
    mounts = container.get("volumeMounts")
    if isinstance(mounts, list) and any(isinstance(one, Mapping) and one.get("name") == ADMIN for one in mounts):
        yield f"volumeMounts: {ADMIN} holds the operator's key, which the engine alone mounts; remove it"


def _engine(more: Mapping[str, Any], ours: Manifest, gpu_resource: str) -> Iterator[str]:
    path = f"spec.containers[{ENGINE_CONTAINER}]"
    for field in more:
        if field not in OF_ENGINE:
            why = REFUSED_OF_ENGINE.get(field, "remove it")
            yield f"{path}.{field} is the operator's to set; {why}"
    resources = more.get("resources", {})
    if not isinstance(resources, Mapping) or not all(isinstance(side, Mapping) for side in resources.values()):
        yield f"{path}.resources must be an object with requests and limits; give claims in spec.resources"
        return
    owned = _OF_RESOURCES | {gpu_resource: "use spec.resources.gpus"}
    for side, amounts in resources.items():
        for kind in amounts:
            if side not in ("requests", "limits") or kind in owned:
                yield f"{path}.resources.{side}.{kind} is the operator's to set; {owned.get(kind, 'remove it')}"
    yield from (f"{path}.volumeMounts: {fault}" for fault in _mounts(more.get("volumeMounts", []), ours))


def _mounts(mounts: object, ours: Manifest) -> Iterator[str]:
    """A mount on or above one of ours would hide it, and one inside the operator's documents would replace them."""
    if not isinstance(mounts, list) or not all(isinstance(mount, Mapping) for mount in mounts):
        yield "must be a list of mounts, as in a pod"
        return
    for mount in mounts:
        path = posixpath.normpath(f"/{mount.get('mountPath', '')}").replace("//", "/").rstrip("/")
        for own in ours["volumeMounts"]:
            inside = own.get("readOnly", False) and path.startswith(f"{own['mountPath']}/")
            if inside or f"{own['mountPath']}/".startswith(f"{path}/"):
                yield f"{path or '/'} would hide the operator's {own['mountPath']}; mount it elsewhere"
                break
