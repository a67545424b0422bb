"""States of objects as the API server tells them: what is kept of one, which of two came first, and whether they want
the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from outrider.reconcile import contention

Manifest = Mapping[str, Any]

_REPLICAS: Manifest = {"f:spec": {"f:replicas": {}}}


def lean(body: Manifest) -> Manifest:
    """A manifest that tells of its fields' owners only who has the number of replicas: they name every field once
    more."""
    meta = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    owners = [{**entry, "fieldsV1": _REPLICAS} for entry in contention.owners(body)]
    return {**body, "metadata": meta | ({"managedFields": owners} if owners else {})}


def older(body: Manifest, than: Manifest) -> bool:
    """Whether one state of an object came before another of the same life."""
    return bool(body["metadata"]["uid"] == than["metadata"]["uid"]) and precedes(body, than)


def precedes(body: Manifest, than: Manifest) -> bool:
    """Whether what one manifest shows was written before what the other one does.

    Resource versions of one kind are ordered numbers since Kubernetes 1.35."""
    versions = [one["metadata"].get("resourceVersion", "") for one in (body, than)]
    return all(version.isdigit() for version in versions) and int(versions[0]) < int(versions[1])


def child_id(body: Manifest) -> str:
    """``kind/name`` of a child."""
    return f"{body['kind']}/{body['metadata']['name']}"


def shape(body: Manifest) -> str:
    """Identity and wanted content of an object: changes when someone else edits it, not when its status moves."""
    meta = body["metadata"]
    if "generation" in meta:
        return f"{meta['uid']}:{meta['generation']}"
    content = {name: value for name, value in body.items() if name not in ("metadata", "status")}
    return f"{meta['uid']}:{digest({**content, 'labels': meta.get('labels')})}"


def digest(value: Any) -> str:
    """A short digest of JSON values, the same for equal content in any order of keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
