"""What generic tools make of an object's status: the rules of kstatus, by which Flux waits for a resource.

After kubernetes-sigs/cli-utils, ``pkg/kstatus/status`` (``generic.go``, ``status.go``): deletion, then generations,
then the conditions Reconciling and Stalled in the order in which they stand, then Ready. An object without any of them
counts as current.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Verdict = Literal["Terminating", "InProgress", "Failed", "Current"]


def verdict(body: Mapping[str, Any]) -> Verdict:
    """The verdict on an object as the API server has it."""
    meta, status = body["metadata"], body.get("status", {})
    if meta.get("deletionTimestamp"):
        return "Terminating"
    seen = status.get("observedGeneration")
    if "generation" in meta and seen is not None and seen != meta["generation"]:
        return "InProgress"
    for condition in status.get("conditions", []):
        if condition["status"] == "True" and condition["type"] in ("Reconciling", "Stalled"):
            return "InProgress" if condition["type"] == "Reconciling" else "Failed"
    ready = next((one["status"] for one in status.get("conditions", []) if one["type"] == "Ready"), None)
    return "Current" if ready in (None, "True") else "InProgress"
