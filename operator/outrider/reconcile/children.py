"""Children on their way to the API server: applied when they differ from what is there, never taken from someone
else."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from outrider.errors import Conflict, KubeError, NotReady
from outrider.manifests import passed_on, secret
from outrider.reconcile.manifest_state import child_id, digest, older, shape
from outrider.reconcile.neighbours import Manifest, Neighbours
from outrider.reconcile.registry import Service

LOOK_AT_SECRET_S = 300.0
"""Secrets are not watched, so that no right to list them is needed; one that was deleted is missed for this long."""
LOOK_FOR_MOUNT_S = 10.0
"""The same while a pod starts: it may be waiting for just that, and be the only one."""


async def apply(service: Service, manifest: Manifest, neighbours: Neighbours) -> Manifest:
    """Apply a child unless it is known to be so already; returns the object as the API server has it.

    Raises:
        NotReady: an object of that name belongs to someone else, or to a deleted resource of the same name that is
            still being cleaned up.
    """
    child = child_id(manifest)
    sent, live = digest(manifest), service.children.get(child)
    if live is not None and service.applied.get(child) == (sent, shape(live)):
        return dict(live)
    if child not in service.applied:
        if live is None:  # what is watched and ours was seen already, after a restart all of it
            meta = manifest["metadata"]
            live = await neighbours.kube.get(manifest["apiVersion"], manifest["kind"], meta["namespace"], meta["name"])
        if live is not None:
            _refuse_foreign(service, live, child)
    service.absent.discard(child)
    result = await _send(service, manifest, neighbours)
    seen = service.children.get(child)
    if seen is None or not older(result, seen):  # an event may have overtaken our answer
        service.saw(child, result)
    service.applied[child] = (sent, shape(result))
    return result


async def _send(service: Service, manifest: Manifest, neighbours: Neighbours) -> Manifest:
    """Apply; a refusal names the fields that the user wrote and Kubernetes alone can judge."""
    try:
        return await neighbours.kube.apply(manifest)
    except KubeError as error:
        written = () if service.resource is None else passed_on.fields(service.resource, manifest["kind"])
        if error.status not in (400, 422) or not written:
            raise
        message = f"look at {', '.join(written)}: the API server refuses what is passed on of it. {error.message}"
        raise KubeError("FieldRefused", message, error.status) from error


async def read_admin_key(service: Service, neighbours: Neighbours, *, make: bool) -> None:
    """Read the admin key of the service's engines; with ``make``, make one up for a service that has none.

    A Secret that somebody deleted is made again with the same key: new pods wait for its mount.
    """
    now_s = neighbours.clock()
    starting = any(not pod.ready and not pod.terminating for pod in service.pods.values())
    pause_s = LOOK_FOR_MOUNT_S if starting else LOOK_AT_SECRET_S
    if service.admin_key is not None and now_s < service.admin_key_seen_s + pause_s:
        return
    assert service.resource is not None
    namespace, name = service.key[0], secret.name(service.key[1])
    stored = await neighbours.kube.get("v1", "Secret", namespace, name)
    if stored is None and not make:
        return
    if stored is None:
        key = service.admin_key or secrets.token_urlsafe(32)
        try:
            await neighbours.kube.create(secret.admin_secret(service.resource, key, *service.older_keys))
        except Conflict as error:
            raise NotReady("SecretAppeared", f"Secret {name} appeared meanwhile; reading it again", 1.0) from error
        service.admin_key, service.admin_key_seen_s = key, now_s
        return
    _refuse_foreign(service, stored, f"Secret/{name}")
    service.admin_key, *older = secret.stored_keys(stored)
    service.older_keys, service.admin_key_seen_s = tuple(older), now_s


async def remove(service: Service, api_version: str, kind: str, name: str, neighbours: Neighbours) -> None:
    """Delete a child that the resource no longer asks for, if it is there and ours."""
    child = f"{kind}/{name}"
    if child in service.absent:
        return
    live = await neighbours.kube.get(api_version, kind, service.key[0], name)
    if live is not None and owned(service, live):
        await neighbours.kube.delete(api_version, kind, service.key[0], name, live["metadata"]["uid"])
    service.forget_child(child)
    service.absent.add(child)


def owned(service: Service, live: Mapping[str, Any]) -> bool:
    """Whether an object belongs to this very resource."""
    return owned_by(service.body["metadata"]["uid"], live)


def owned_by(uid: str, live: Mapping[str, Any]) -> bool:
    """Whether an object belongs to the one with this UID."""
    return any(owner.get("uid") == uid for owner in live["metadata"].get("ownerReferences", []))


def _refuse_foreign(service: Service, live: Mapping[str, Any], child: str) -> None:
    if not owned(service, live):
        message = f"{child} exists and belongs to someone else; delete or rename it, or rename the service"
        raise NotReady("NameTaken", message, 10.0)
