"""Events on a service: what `kubectl describe` shows of its decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.api import API_VERSION, KIND
from outrider.manifests.meta import Manifest

MAX_MESSAGE = 1024
"""The API server refuses a longer one."""


def event(
    metadata: Mapping[str, Any], reason: str, message: str, time: str, unique: str, *, warning: bool = False
) -> Manifest:
    """An event about the service with this metadata; ``time`` is RFC 3339, ``unique`` keeps names of events apart."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{unique}", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "message": message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…",
        "source": {"component": "outrider"},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
