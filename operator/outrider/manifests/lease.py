"""The Lease that says which operator is the active one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.core.leadership import Record
from outrider.manifests.meta import Manifest

API_VERSION, KIND = "coordination.k8s.io/v1", "Lease"
LABELS = {"app.kubernetes.io/managed-by": "outrider", "app.kubernetes.io/component": "operator"}


def record(lease: Mapping[str, Any]) -> Record:
    """What a lease says; fields that are absent or make no sense count as not said."""
    spec = lease.get("spec") or {}
    seconds = spec.get("leaseDurationSeconds")
    return Record(
        holder=str(spec.get("holderIdentity") or ""),
        version=str(lease["metadata"]["resourceVersion"]),
        lease_s=float(seconds) if isinstance(seconds, int) and seconds > 0 else None,
    )


def held(found: Mapping[str, Any] | None, place: tuple[str, str], holder: str, lease_s: float, time: str) -> Manifest:
    """The lease in the hands of a holder, made of what was found, if anything was.

    Args:
        found: as the API server gave it; its resource version makes the write fail if somebody else was faster.
        place: namespace and name.
        holder: an operator's name.
        lease_s: what others wait, seconds; whole ones are written.
        time: now, in RFC 3339 with microseconds. People read it, and nobody decides by it.
    """
    before = dict((found or {}).get("spec") or {})
    namespace, name = place
    fresh = {"namespace": namespace, "name": name, "labels": LABELS}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": round(lease_s), "renewTime": time}
    if before.get("holderIdentity") == holder:
        spec["acquireTime"] = before.get("acquireTime") or time
    else:
        spec["acquireTime"] = time
        spec["leaseTransitions"] = int(before.get("leaseTransitions") or 0) + (found is not None)
    metadata = fresh if found is None else found["metadata"]
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": before | spec}


def released(found: Mapping[str, Any], time: str) -> Manifest:
    """The lease given back: without a holder, so that whoever waits takes it at the next look."""
    spec = {key: value for key, value in found["spec"].items() if key != "holderIdentity"}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": found["metadata"],
        "spec": spec | {"leaseDurationSeconds": 1, "renewTime": time},
    }
