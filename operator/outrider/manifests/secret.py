"""The Secret with the key of the engines' admin port."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from outrider.api.resource import SpeculativeInferenceService
from outrider.errors import NotReady
from outrider.manifests.meta import Manifest, metadata

ADMIN_KEY = "key"
MAX_KEYS = 4
"""Keys that are tried; a rotation needs two."""


def name(service: str) -> str:
    """Name of the Secret with the admin keys of a service."""
    return f"{service}-admin"


def admin_secret(resource: SpeculativeInferenceService, *keys: str) -> Manifest:
    """The Secret; an engine accepts any of ``keys``, and the operator tries them in order, so a key is rotated by
    putting one first, waiting, and dropping the old one.

    Keys are made elsewhere: here they would have to come from a random source.
    """
    text = "".join(f"{key}\n" for key in keys)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(resource, name(resource.name)),
        "type": "Opaque",
        "data": {ADMIN_KEY: b64encode(text.encode()).decode()},
    }


def stored_keys(stored: Mapping[str, Any]) -> list[str]:
    """The keys of a Secret as the API server has it, at least one, the newest first.

    Raises:
        NotReady: it holds none, so no engine can be reached until somebody puts one there or deletes the Secret.
    """
    try:
        text = b64decode((stored.get("data") or {}).get(ADMIN_KEY, ""), validate=True).decode()
    except ValueError:
        text = ""
    keys = text.split()
    if not keys:
        secret = stored["metadata"]["name"]
        message = f"Secret {secret} has no admin key under {ADMIN_KEY!r}: put one there, or delete the Secret"
        raise NotReady("AdminKeyMissing", message, 30.0)
    return keys[:MAX_KEYS]
