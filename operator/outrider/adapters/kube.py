"""The API server, by dicts: read, apply, delete, and post events.

Server-side apply is the only way in which Outrider writes objects: the whole wanted object each time, under one field
manager, so that a field we no longer send is dropped and a field we never sent stays whoever's it is. The operators'
Lease alone is replaced, version by version, because several write it under one name.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import config as kube_config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from outrider import __version__
from outrider.errors import Conflict, Forbidden, KubeError, NotFound, Unavailable

Manifest = dict[str, Any]

FIELD_MANAGER = "outrider"
REPLICAS_MANAGER = "outrider-replicas"
"""Holds the number of replicas while the ownership of that field passes to the autoscaler or back."""
KINDS_FOR_S = 30.0
"""How long an answer about a served kind is believed: KEDA is installed or removed once in a while, and asked about in
every pass."""
APPLY_PATCH = "application/apply-patch+yaml; charset=utf-8"
TIMEOUT_S = 15.0
"""A call that the API server has not answered by then is given up and retried by the pass: it must not stall other
services."""

_NOT_BARE_IN_YAML = re.compile("[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]")
UNKNOWN_FIELD = "failed to create typed patch object"
"""With this, and as its own fault, the API server answers an apply with a field that the kind does not have."""
GOING = "custom resource definition is terminating"
"""With this, and as forbidden, the API server refuses an object of a kind that is about to be no more."""
ENDING = "because it is being terminated"
"""With this, and as forbidden, the API server refuses whatever is to be made in a namespace that is being deleted."""

_PLURALS = {
    ("v1", "ConfigMap"): "configmaps",
    ("v1", "Event"): "events",
    ("v1", "Namespace"): "namespaces",
    ("v1", "Node"): "nodes",
    ("v1", "ResourceQuota"): "resourcequotas",
    ("v1", "PersistentVolumeClaim"): "persistentvolumeclaims",
    ("v1", "Pod"): "pods",
    ("v1", "Secret"): "secrets",
    ("v1", "Service"): "services",
    ("v1", "ServiceAccount"): "serviceaccounts",
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): "customresourcedefinitions",
    ("apiregistration.k8s.io/v1", "APIService"): "apiservices",
    ("apps/v1", "Deployment"): "deployments",
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("autoscaling/v2", "HorizontalPodAutoscaler"): "horizontalpodautoscalers",
    ("batch/v1", "Job"): "jobs",
    ("coordination.k8s.io/v1", "Lease"): "leases",
    ("keda.sh/v1alpha1", "ScaledObject"): "scaledobjects",
    ("monitoring.coreos.com/v1", "PodMonitor"): "podmonitors",
    ("networking.k8s.io/v1", "NetworkPolicy"): "networkpolicies",
    ("policy/v1", "PodDisruptionBudget"): "poddisruptionbudgets",
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): "resourceclaimtemplates",
    ("serving.outrider.dev/v1alpha1", "SpeculativeInferenceService"): "speculativeinferenceservices",
}


class Kube:
    """A connection to one API server; close it with `close`."""

    def __init__(
        self, client: ApiClient, *, timeout_s: float = TIMEOUT_S, may_write: Callable[[], bool] = lambda: True
    ) -> None:
        """``may_write`` is asked before every write; an operator that is not the active one any more must not."""
        self._client, self._timeout_s, self._may_write = client, timeout_s, may_write
        self._served: dict[str, tuple[float, frozenset[str]]] = {}
        self._client.user_agent = f"outrider/{__version__}"

    @classmethod
    async def connect(cls, *, timeout_s: float = TIMEOUT_S, may_write: Callable[[], bool] = lambda: True) -> Kube:
        """Log in as a pod does, or with the kubeconfig of the environment when there is one."""
        configuration = Configuration()
        try:
            kube_config.load_incluster_config(client_configuration=configuration)
        except kube_config.ConfigException:
            await kube_config.load_kube_config(client_configuration=configuration)
        settle_proxy(configuration)
        return cls(ApiClient(configuration), timeout_s=timeout_s, may_write=may_write)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> Manifest | None:
        """The object, or None if it (or its kind) does not exist; a kind of the whole cluster has no namespace."""
        try:
            return await self._call("GET", _path(api_version, kind, namespace, name))
        except NotFound:
            return None

    async def list(
        self, api_version: str, kind: str, namespace: str | None = None, label_selector: str = ""
    ) -> list[Manifest]:
        """All objects of a kind, in one namespace or in all of them."""
        query = {"labelSelector": label_selector} if label_selector else {}
        answer = await self._call("GET", _path(api_version, kind, namespace), query)
        items: list[Manifest] = answer["items"]
        return items

    async def apply(
        self,
        manifest: Mapping[str, Any],
        *,
        manager: str = FIELD_MANAGER,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        """Server-side apply, taking over fields that another manager owns: our children are ours.

        A dry run goes through all of the API server's checks and writes nothing.
        """
        meta = manifest["metadata"]
        path = _path(manifest["apiVersion"], manifest["kind"], meta["namespace"], meta["name"], subresource)
        query = {"fieldManager": manager, "force": "true", "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        return await self._call("PATCH", path, query, as_patch(manifest), APPLY_PATCH)

    async def create(self, manifest: Mapping[str, Any]) -> Manifest:
        """Create an object that must not exist yet.

        Raises:
            Conflict: it does exist.
        """
        path = _path(manifest["apiVersion"], manifest["kind"], manifest["metadata"]["namespace"])
        return await self._call("POST", path, {"fieldManager": FIELD_MANAGER}, manifest, "application/json")

    async def replace(self, manifest: Mapping[str, Any]) -> Manifest:
        """Put an object in the place of the one of the same version.

        Raises:
            Conflict: somebody else has changed it since that version.
        """
        meta = manifest["metadata"]
        path = _path(manifest["apiVersion"], manifest["kind"], meta["namespace"], meta["name"])
        return await self._call("PUT", path, {"fieldManager": FIELD_MANAGER}, manifest, "application/json")

    async def delete(self, api_version: str, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete this very object; one of the same name and another UID is left alone, an absent one is fine."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            await self._call("DELETE", _path(api_version, kind, namespace, name), {}, body, "application/json")
        except (NotFound, Conflict):
            return

    async def serves(self, api_version: str, kind: str) -> bool:
        """Whether the API server knows this kind; answers are kept for half a minute."""
        now_s = asyncio.get_running_loop().time()
        asked_s, kinds = self._served.get(api_version, (-KINDS_FOR_S, frozenset()))
        if now_s >= asked_s + KINDS_FOR_S:
            try:
                answer = await self._call("GET", f"/apis/{api_version}")
                kinds = frozenset(resource["kind"] for resource in answer["resources"])
            except NotFound:
                kinds = frozenset()
            self._served[api_version] = (now_s, kinds)
        return kind in kinds

    async def version(self) -> Manifest:
        """What the API server says of itself."""
        return await self._call("GET", "/version")

    async def logs(self, namespace: str, pod: str, container: str, *, lines: int, previous: bool = False) -> str:
        """The last lines that a container wrote, or the one before its restart."""
        query = {"container": container, "tailLines": str(lines), "timestamps": "true"}
        query |= {"previous": "true"} if previous else {}
        data = await self._answer("GET", f"{_path('v1', 'Pod', namespace, pod)}/log", query, accept="*/*")
        return data.decode(errors="replace")

    async def proxied(self, namespace: str, service: str, path: str, query: Mapping[str, str]) -> Manifest:
        """What a Service answers to the API server; ``service`` is ``scheme:name:port``."""
        return await self._call("GET", f"{_path('v1', 'Service', namespace, service)}/proxy/{path}", query)

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | bytes | None = None,
        content_type: str = "",
    ) -> Manifest:
        return _object(method, path, await self._answer(method, path, query, body, content_type))

    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | bytes | None = None,
        content_type: str = "",
        accept: str = "application/json",
    ) -> bytes:
        if method != "GET" and not self._may_write():
            raise Unavailable("NotActive", f"{method} {path}: not sent, for this operator's lease has run out")
        headers = {"Accept": accept, **({"Content-Type": content_type} if content_type else {})}
        try:
            async with asyncio.timeout(self._timeout_s):
                request = await self._client.param_serialize(
                    method, path, query_params=None, header_params=headers, auth_settings=["BearerToken"]
                )
                url = request[1] + ("?" + urlencode(query) if query else "")
                response = await self._client.call_api(method, url, request[2], body=body)
                data: bytes = await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            message = f"{method} {path}: no answer from the API server ({str(error) or type(error).__name__})"
            raise Unavailable("APIServerUnreachable", message) from error
        if response.status >= 400:
            raise _error(method, path, response.status, data, response.getheader("Retry-After"))
        return data


def settle_proxy(configuration: Configuration) -> None:
    """Take from the environment which proxy leads to the API server, once.

    Left to itself the client reads the proxies, and a netrc file that has no say here, anew for every call: a sixth of
    the operator's time while a thousand services start.
    """
    server = urlsplit(configuration.host)
    if configuration.proxy is None and not proxy_bypass(server.netloc):
        configuration.proxy = getproxies().get(server.scheme)
    configuration.client_session_kwargs = {"trust_env": False}


def as_patch(manifest: Mapping[str, Any]) -> bytes:
    """An object as the body of an apply, which the server reads as YAML.

    There, a pair of escapes for one character beyond the first plane is an error, hence no escapes; but neither may
    control characters and line separators stand bare, which JSON allows.
    """
    text = json.dumps(manifest, ensure_ascii=False)
    return _NOT_BARE_IN_YAML.sub(lambda found: f"\\u{ord(found.group()):04x}", text).encode()


def _path(
    api_version: str, kind: str, namespace: str | None = None, name: str | None = None, subresource: str = ""
) -> str:
    root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
    parts = [root]
    if namespace is not None:
        parts.append(f"namespaces/{quote(namespace)}")
    parts.append(_PLURALS[api_version, kind])
    if name is not None:
        parts.append(quote(name))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


def _object(method: str, path: str, data: bytes) -> Manifest:
    try:
        document = json.loads(data)
    except ValueError:
        document = None
    if not isinstance(document, dict):  # a proxy's page, say
        raise Unavailable("APIServerUnreachable", f"{method} {path}: the answer is no JSON object")
    return document


def _error(method: str, path: str, status: int, data: bytes, retry_after: str | None) -> KubeError:
    try:
        message = json.loads(data)["message"]
    except (ValueError, KeyError, TypeError):
        message = data[:200].decode(errors="replace")
    sentence = f"{method} {path}: {message}"
    if status == 403 and GOING in message:
        return NotFound("NotFound", sentence, 404)
    if status == 403 and ENDING in message:
        return KubeError("NamespaceTerminating", sentence, status)
    if status in (401, 403):
        return Forbidden("Forbidden", sentence, status)
    if status == 404:
        return NotFound("NotFound", sentence, status)
    if status == 409:
        return Conflict("Conflict", sentence, status)
    if status == 500 and UNKNOWN_FIELD in message:
        return KubeError("ApplyRefused", sentence, 422)
    if status == 429 or status >= 500:
        seconds = float(retry_after) if retry_after and retry_after.isdigit() else None
        return Unavailable("APIServerUnavailable", sentence, status, seconds)
    return KubeError("ApplyRefused", sentence, status)
