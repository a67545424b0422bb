"""The few calls of a kubelet to the API server, in dicts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import aiohttp
from kubernetes.aio import config as kube_config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

Manifest = dict[str, Any]

SELECTOR = "app.kubernetes.io/component=engine"
TIMEOUT_S = 10.0
WATCH_S = 240  # the server ends the watch after so long; the next list then heals whatever was missed
_PLURALS = {"ConfigMap": "configmaps", "Secret": "secrets"}


class ApiError(Exception):
    """The API server refused a call, or did not answer (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class PodApi(Protocol):
    """What the simulated kubelet needs; tests bring their own."""

    async def list_pods(self) -> tuple[list[Manifest], str]:
        """All engine pods and the version of the list."""

    def watch_pods(self, version: str) -> AsyncIterator[tuple[str, Manifest]]:
        """Changes since that version: ADDED, MODIFIED or DELETED, and the pod. When it ends, list again."""

    async def patch_status(self, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        """Strategic merge into the status subresource."""

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Remove the pod itself, its containers being gone."""

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """A ConfigMap or Secret, or None."""

    async def list_services(self, namespace: str) -> list[Manifest]:
        """The Services of a namespace."""


class KubePodApi:
    """The API server of a kubeconfig."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    @classmethod
    async def connect(cls, kubeconfig: str) -> KubePodApi:
        """Read the kubeconfig."""
        configuration = Configuration()
        await kube_config.load_kube_config(kubeconfig, client_configuration=configuration)
        return cls(ApiClient(configuration))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def list_pods(self) -> tuple[list[Manifest], str]:
        """All engine pods and the version of the list."""
        answer = await self._json("GET", "/api/v1/pods", {"labelSelector": SELECTOR})
        return answer["items"], answer["metadata"]["resourceVersion"]

    async def watch_pods(self, version: str) -> AsyncIterator[tuple[str, Manifest]]:
        """Changes since that version, until the server ends the watch."""
        query = {
            "labelSelector": SELECTOR,
            "watch": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_S),
        }
        response = await self._send("GET", "/api/v1/pods", query, timeout_s=WATCH_S + TIMEOUT_S)
        try:
            while line := await response.content.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError(event["object"].get("code", 0), event["object"].get("message", "watch ended"))
                yield event["type"], event["object"]
        except (TimeoutError, aiohttp.ClientError, ValueError) as error:  # ValueError: a line cut short, or endless
            raise ApiError(0, f"watch of pods: {error or type(error).__name__}") from error
        finally:
            response.close()

    async def patch_status(self, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        """Strategic merge into the status subresource."""
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}/status"
        await self._json("PATCH", path, {}, patch, "application/strategic-merge-patch+json")

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Remove the pod itself, its containers being gone."""
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}"
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        await self._json("DELETE", path, {}, body, "application/json")

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """A ConfigMap or Secret, or None."""
        try:
            return await self._json("GET", f"/api/v1/namespaces/{quote(namespace)}/{_PLURALS[kind]}/{quote(name)}", {})
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list_services(self, namespace: str) -> list[Manifest]:
        """The Services of a namespace."""
        answer = await self._json("GET", f"/api/v1/namespaces/{quote(namespace)}/services", {})
        items: list[Manifest] = answer["items"]
        return items

    async def _json(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Manifest:
        response = await self._send(method, path, query, body, content_type)
        try:
            document: Manifest = json.loads(await response.read())
        except (TimeoutError, aiohttp.ClientError, ValueError) as error:
            raise ApiError(0, f"{method} {path}: {error or type(error).__name__}") from error
        return document

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        timeout_s: float = TIMEOUT_S,
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        try:
            request = await self._client.param_serialize(
                method, path, header_params=headers, auth_settings=["BearerToken"]
            )
            url = request[1] + ("?" + urlencode(query) if query else "")
            answer = await self._client.call_api(method, url, request[2], body=body, _request_timeout=timeout_s)
            response: aiohttp.ClientResponse = answer.response
            if response.status >= 400:
                data = (await response.read())[:300].decode(errors="replace")
                raise ApiError(response.status, f"{method} {path}: {data}")
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ApiError(0, f"{method} {path}: {error or type(error).__name__}") from error
        return response
