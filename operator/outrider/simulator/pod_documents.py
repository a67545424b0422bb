"""What a kubelet puts into an engine's container: environment, arguments and mounted documents.

Pure: the objects that a pod refers to are arguments, by kind and name; None is an object that does not exist.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from outrider.simulator.pods import EnginePod, Manifest

Reference = tuple[str, str]
"""Kind (``ConfigMap`` or ``Secret``) and name, in the pod's namespace."""
Objects = Mapping[Reference, Manifest | None]

_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_][A-Za-z0-9_.-]*)\))")
_KEY_REFS = {"secretKeyRef": "Secret", "configMapKeyRef": "ConfigMap"}
_ENV_FROM = {"secretRef": "Secret", "configMapRef": "ConfigMap"}


class ContainerConfigError(Exception):
    """The container cannot be created yet: its environment refers to something that does not exist."""


class MountError(Exception):
    """The container cannot be created yet: a volume refers to something that does not exist."""


def references(pod: EnginePod) -> set[Reference]:
    """Everything that the engine's environment and mounts refer to."""
    found: set[Reference] = set()
    for variable in pod.engine.get("env", []):
        source = variable.get("valueFrom", {})
        found |= {(kind, source[key]["name"]) for key, kind in _KEY_REFS.items() if key in source}
    for source in pod.engine.get("envFrom", []):
        found |= {(kind, source[key]["name"]) for key, kind in _ENV_FROM.items() if key in source}
    return found | {(kind, source["name"]) for _, kind, source in _mounted_sources(pod)}


def resolve_environment(pod: EnginePod, objects: Objects, services: Sequence[Manifest] = ()) -> dict[str, str]:
    """The engine's environment; ``services`` are those of the namespace.

    Raises:
        ContainerConfigError: a reference that is not optional leads nowhere.
    """
    environment = dict(_service_variables(services)) if pod.service_links else {}
    for source in pod.engine.get("envFrom", []):
        for key, kind in _ENV_FROM.items():
            if key in source:
                data = _data(kind, source[key], objects) or {}
                environment |= {source.get("prefix", "") + name: value for name, value in data.items()}
    for variable in pod.engine.get("env", []):
        value = _variable(pod, variable, objects, environment)
        if value is not None:
            environment[variable["name"]] = value
    return environment


def resolve_arguments(pod: EnginePod, environment: Mapping[str, str]) -> list[str]:
    """Command and arguments, with ``$(NAME)`` put in and ``$$(NAME)`` left as ``$(NAME)``."""
    words = [*pod.engine.get("command", []), *pod.engine.get("args", [])]
    return [expand(word, environment) for word in words]


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Kubernetes' own substitution: unknown names stay as they are written."""

    def replaced(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return environment.get(match[2], match[0])

    return _REFERENCE.sub(replaced, text)


def mounted_files(pod: EnginePod, objects: Objects) -> dict[str, str]:
    """Text by absolute path of every ConfigMap and Secret in the engine's volumes; a refresh calls it again.

    Raises:
        MountError: an object or key that is not optional does not exist.
    """
    found: dict[str, str] = {}
    for folder, kind, source in _mounted_sources(pod):
        try:
            data = _data(kind, source, objects) or {}
        except ContainerConfigError as error:
            raise MountError(str(error)) from error
        items = source.get("items") or [{"key": key, "path": key} for key in data]
        for item in items:
            if item["key"] in data:
                found[f"{folder}/{item['path']}"] = data[item["key"]]
            elif not source.get("optional"):
                raise MountError(f"references non-existent {kind.lower()} key: {item['key']}")
    return found


def _variable(pod: EnginePod, variable: Manifest, objects: Objects, environment: Mapping[str, str]) -> str | None:
    source = variable.get("valueFrom")
    if source is None:
        return expand(variable.get("value", ""), environment)
    for key, kind in _KEY_REFS.items():
        if key in source:
            data = _data(kind, source[key], objects)
            if data is not None and source[key]["key"] in data:
                return data[source[key]["key"]]
            if source[key].get("optional"):
                return None
            raise ContainerConfigError(
                f"couldn't find key {source[key]['key']} in {kind} {pod.namespace}/{source[key]['name']}"
            )
    return _field(pod, source.get("fieldRef", {}).get("fieldPath", ""))


def _field(pod: EnginePod, path: str) -> str:
    match = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
    if match:
        return str((pod.manifest["metadata"].get(match[1]) or {}).get(match[2], ""))
    value: Any = pod.manifest
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, Mapping) else ""
    return str(value)


def _data(kind: str, source: Manifest, objects: Objects) -> dict[str, str] | None:
    """The content of an object; None if it is absent and may be."""
    found = objects.get((kind, source["name"]))
    if found is None:
        if source.get("optional"):
            return None
        raise ContainerConfigError(f'{kind.lower()} "{source["name"]}" not found')
    data = found.get("data") or {}
    if kind == "ConfigMap":
        return dict(data)
    return {key: base64.b64decode(value).decode(errors="replace") for key, value in data.items()}


def _mounted_sources(pod: EnginePod) -> Iterator[tuple[str, str, Manifest]]:
    """Folder, kind and source (with ``name``) of every document volume that the engine mounts."""
    volumes = {volume["name"]: volume for volume in pod.manifest["spec"].get("volumes", [])}
    for mount in pod.engine.get("volumeMounts", []):
        volume, folder = volumes.get(mount["name"], {}), mount["mountPath"].rstrip("/")
        for part in (volume, *volume.get("projected", {}).get("sources", [])):
            if "configMap" in part:
                yield folder, "ConfigMap", part["configMap"]
            if "secret" in part:
                source = part["secret"]
                yield folder, "Secret", {**source, "name": source.get("secretName", source.get("name"))}


def _service_variables(services: Sequence[Manifest]) -> Iterator[tuple[str, str]]:
    """What a kubelet sets for each Service with a cluster IP: the variable that makes a Service called vllm a trap."""
    for service in services:
        spec = service.get("spec", {})
        if spec.get("clusterIP") in (None, "", "None") or not spec.get("ports"):
            continue
        name = service["metadata"]["name"].upper().replace("-", "_")
        port = spec["ports"][0]
        yield f"{name}_SERVICE_HOST", str(spec["clusterIP"])
        yield f"{name}_SERVICE_PORT", str(port["port"])
        yield f"{name}_PORT", f"{port.get('protocol', 'TCP').lower()}://{spec['clusterIP']}:{port['port']}"
