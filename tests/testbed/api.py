"""The few calls to the API server that bringing a cluster up takes, and kubeconfig files.

kubectl would do, at a fifth of a second of processor time a call; a start makes dozens of them. Tests use kubectl or
the operator's own client.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.testbed.errors import ClusterError
from tests.testbed.pki import Pair

FIELD_MANAGER = "outrider-testbed"
_TIMEOUT_S = 60.0  # As long as the API server gives a call: a busy one answers in the end.


class ApiError(ClusterError):
    """The API server refused a call, or could not be reached (``status`` is 0 then)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """Calls as the cluster's administrator."""

    def __init__(self, server: str, authority: Path, administrator: Pair) -> None:
        self.server = server
        context = ssl.create_default_context(cafile=str(authority))
        context.load_cert_chain(administrator.certificate, administrator.key)
        # No proxy, whatever the environment says: the server is on this machine.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def get(self, path: str) -> dict[str, Any]:
        """Read an object or a list."""
        found: dict[str, Any] = json.loads(self.text("GET", path))
        return found

    def apply(self, path: str, manifest: Mapping[str, Any]) -> None:
        """Create or change the object at ``path`` by server-side apply."""
        self.text(
            "PATCH",
            f"{path}?fieldManager={FIELD_MANAGER}&force=true",
            manifest,
            content_type="application/apply-patch+yaml",
        )

    def create(self, path: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Post to a collection or a subresource, and return what came back."""
        created: dict[str, Any] = json.loads(self.text("POST", path, manifest))
        return created

    def text(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, content_type: str = "application/json"
    ) -> str:
        """One call, and the text of the answer.

        Raises:
            ApiError: the call was refused, or nobody answered.
        """
        request = urllib.request.Request(
            self.server + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": content_type},
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                answer: bytes = response.read()
                return answer.decode()
        except urllib.error.HTTPError as error:
            raise ApiError(
                error.code, f"{method} {path}: {error.code} {error.read().decode(errors='replace')}"
            ) from error
        except (OSError, http.client.HTTPException) as error:  # the latter where it ends in the middle of an answer
            raise ApiError(0, f"{method} {path}: {error}") from error


def certificate_user(pair: Pair) -> dict[str, str]:
    """The user of a kubeconfig who shows a certificate; with the contents inside, the file can be copied anywhere."""
    return {"client-certificate-data": _encoded(pair.certificate), "client-key-data": _encoded(pair.key)}


def write_kubeconfig(path: Path, server: str, authority: Path, name: str, user: Mapping[str, str]) -> Path:
    """Write a kubeconfig of one cluster and one user, readable by its owner alone, and return its path."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": _encoded(authority)}}],
        "users": [{"name": name, "user": dict(user)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.touch(mode=0o600)
    fresh.write_text(yaml.safe_dump(document, sort_keys=False))
    fresh.replace(path)  # whole at any moment: a process that was started before may be reading it
    return path


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
