"""Whether the API server has the definition of our resource that this version writes for.

An API server drops fields of a status that its definition does not have, without a word: what an operator decided would
then be shown in part, or be refused as a whole. So the definition is compared before anything is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from outrider.api import GROUP, PLURAL, VERSION
from outrider.api.crd import custom_resource_definition
from outrider.errors import Forbidden, KubeError
from outrider.reconcile.neighbours import KubeApi

logger = logging.getLogger(__name__)

NAME = f"{PLURAL}.{GROUP}"
CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
AGAIN_S = 5.0
"""Until an API server that did not answer is asked again."""
MAX_SHOWN = 3
"""Of the fields that are missing; the remedy is the same for any number."""
REMEDY = "apply crds/ of this version, or upgrade the chart with crds.install=true"


async def fault(kube: KubeApi, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> str | None:
    """Why this version must not write for the definition in the cluster; None when it fits.

    Waits for an API server that does not answer. Without the right to look it is taken to fit: roles of single
    namespaces cannot give that right.
    """
    while True:
        try:
            found = await kube.get(*CRD, None, NAME)
        except Forbidden as error:
            logger.warning("the definition was not compared with this version: %s", error.message)
            return None
        except KubeError as error:
            logger.warning("the definition was not read yet: %s", error.message, extra={"reason": error.reason})
            await sleep(AGAIN_S)
        else:
            return misfit(found)


def misfit(definition: Mapping[str, Any] | None) -> str | None:
    """What keeps this version from writing for a definition, with the remedy; None when nothing does."""
    if definition is None:
        return f"the cluster has no definition {NAME}: {REMEDY}"
    served = _served(definition)
    if served is None:
        return f"the definition {NAME} does not serve {VERSION}: {REMEDY}"
    (own,) = custom_resource_definition()["spec"]["versions"]
    if "status" not in served.get("subresources", {}):
        return f"the definition {NAME} has no status subresource: {REMEDY}"
    missing = list(_missing(_status(own), _status(served), "status"))
    if missing:
        shown = ", ".join(missing[:MAX_SHOWN]) + (f" and {len(missing) - MAX_SHOWN} more" * (len(missing) > MAX_SHOWN))
        return f"the definition {NAME} is older than this version: it lacks {shown}; {REMEDY}"
    return None


def _served(definition: Mapping[str, Any]) -> Mapping[str, Any] | None:
    versions: list[Mapping[str, Any]] = definition["spec"]["versions"]
    return next((one for one in versions if one["name"] == VERSION and one.get("served", False)), None)


def _status(version: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = version["schema"]["openAPIV3Schema"].get("properties", {}).get("status", {})
    return found


def _missing(own: Mapping[str, Any], served: Mapping[str, Any], path: str) -> Iterator[str]:
    """Fields, and values of enumerations, that only our own schema has."""
    if served.get("x-kubernetes-preserve-unknown-fields"):
        return
    if "enum" in served:
        yield from (f"{path}={value}" for value in own.get("enum", ()) if value not in served["enum"])
    for name, below in own.get("properties", {}).items():
        if name not in served.get("properties", {}):
            yield f"{path}.{name}"
        else:
            yield from _missing(below, served["properties"][name], f"{path}.{name}")
    for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(own.get(key), Mapping):
            yield from _missing(own[key], served.get(key) or {}, path + mark)
