"""What only a cluster can tell: whether it takes the objects, and whether what they name is there.

Nothing is written: applies are dry runs. What the caller may not read is not checked, and said so.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from kubernetes.aio.config import ConfigException

from outrider.adapters.kube import Kube
from outrider.api import API_VERSION, KIND
from outrider.api.fields import quantity_value
from outrider.cli import connection, preflight_names
from outrider.cli.connection import Manifest
from outrider.cli.preflight_examination import judged_by_kubernetes
from outrider.cli.preflight_operations import replicas
from outrider.cli.preflight_outcome import Outcome, Subject, Verdict, doubt, not_checked, ok
from outrider.cli.preflight_reading import Document, Unreadable
from outrider.errors import Forbidden, InvalidSpec, KubeError, NotFound, Unavailable

MANAGER = "outrider-preflight"
NO_UID = "00000000-0000-0000-0000-000000000000"
"""Stands for the UID of a resource that is not there yet: children name their owner by it."""
MANY_NODES = {"ReadWriteMany", "ReadOnlyMany"}
_GPUS = "spec.resources.gpus"


class Cluster(connection.Cluster, Protocol):
    """The calls that preflight makes beside reading."""

    async def apply(
        self, manifest: Manifest, *, manager: str = "", subresource: str = "", dry_run: bool = False
    ) -> Manifest:
        """Server-side apply."""

    async def serves(self, api_version: str, kind: str) -> bool:
        """Whether the API server knows a kind."""


def ask(subjects: Sequence[tuple[Document, Subject | None]]) -> list[list[Outcome]]:
    """Ask the cluster of the kubeconfig about each resource, in order; `Unreadable` if there is none that answers."""
    return asyncio.run(_ask(subjects))


async def _ask(subjects: Sequence[tuple[Document, Subject | None]]) -> list[list[Outcome]]:
    try:
        kube = await Kube.connect()
    except ConfigException as error:
        raise Unreadable(f"--cluster: {error}: name the file with the cluster's address in KUBECONFIG") from error
    try:
        return [await asked(kube, document, subject) for document, subject in subjects]
    except Unavailable as error:
        raise Unreadable(f"--cluster: {error.message}") from error
    finally:
        await kube.close()


async def asked(kube: Cluster, document: Document, subject: Subject | None) -> list[Outcome]:
    """Every check of one resource; of one whose form is wrong only whether the API server takes it."""
    body = _placed(document.body)
    outcomes = [
        Outcome(name=name, verdicts=tuple(await _careful(look(kube, body))), why=why, remedy=remedy, source=source)
        for name, why, remedy, source, look in _OF_BODY
    ]
    if subject is None:
        return outcomes
    for name, why, remedy, source, judge in _OF_SUBJECT:
        said = tuple(await _careful(judge(kube, subject)))
        outcomes.append(Outcome(name=name, verdicts=said, why=why, remedy=remedy, source=source))
    return outcomes


async def _careful(look: Awaitable[list[Verdict]]) -> list[Verdict]:
    """A right that the caller lacks leaves a check unmade; a cluster that does not answer leaves them all."""
    try:
        return await look
    except Unavailable:
        raise
    except Forbidden as error:
        return [not_checked(f"you may not look: {error.message}")]
    except KubeError as error:
        return [not_checked(error.message)]


def _placed(body: Manifest) -> Manifest:
    """The resource with the namespace that it would get, and without what the API server fills in."""
    given = body.get("metadata")
    metadata = dict(given) if isinstance(given, dict) else {}
    metadata["namespace"] = metadata.get("namespace") or "default"
    for name in ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"):
        metadata.pop(name, None)
    return {key: copy.deepcopy(value) for key, value in body.items() if key != "status"} | {"metadata": metadata}


async def _namespace(kube: Cluster, body: Manifest) -> list[Verdict]:
    name = body["metadata"]["namespace"]
    if await kube.get("v1", "Namespace", None, name) is None:
        return [Verdict("refused", f"metadata.namespace: {name} does not exist; create it", "metadata.namespace")]
    return [ok(f"namespace {name} is there")]


async def _dry_run(kube: Cluster, body: Manifest) -> list[Verdict]:
    if "name" not in body["metadata"]:
        return [not_checked("metadata.name is not given")]
    if not await kube.serves(API_VERSION, KIND):
        return [
            Verdict("refused", f"the cluster does not know the kind {KIND}: install its definition, crds/ or chart")
        ]
    return await _dry(kube, body)


async def _dry(kube: Cluster, manifest: Manifest) -> list[Verdict]:
    try:
        await kube.apply(manifest, manager=MANAGER, dry_run=True)
    except NotFound:
        return [not_checked(f"namespace {manifest['metadata']['namespace']} does not exist")]
    except KubeError as error:
        if error.status in (400, 409, 422):
            return [Verdict("refused", f"the API server refuses the {manifest['kind']}: {error.message}")]
        raise
    return [ok(f"the API server takes the {manifest['kind']}")]


async def _children(kube: Cluster, subject: Subject) -> list[Verdict]:
    """Of each child with something in it that the user wrote and Kubernetes alone can judge."""
    if any(finding.severity == "error" for finding in subject.findings):
        return [not_checked("admission refuses the resource")]
    try:
        manifests = judged_by_kubernetes(subject)
    except InvalidSpec as error:
        return [not_checked(f"the Deployment cannot be put together: {error.message}")]
    said: list[Verdict] = []
    for manifest in copy.deepcopy(manifests):
        for owner in manifest["metadata"].get("ownerReferences", ()):
            owner["uid"] = owner.get("uid") or NO_UID
        said += await _careful(_dry(kube, manifest))
    return [one for one in said if one.state != "ok"] or said


async def _secrets(kube: Cluster, subject: Subject) -> list[Verdict]:
    found: list[Verdict] = []
    for field, name, key in preflight_names.secrets(subject):
        secret = await kube.get("v1", "Secret", subject.resource.namespace, name)
        if secret is None:
            found.append(Verdict("refused", f"{field}: there is no Secret {name}; create it before the pods", field))
        elif key is not None and key not in (secret.get("data") or {}):
            found.append(Verdict("refused", f"{field}: the Secret {name} has no key {key}; add it", field))
    return found or [ok("every Secret that is named is there, with its keys")]


async def _claims(kube: Cluster, subject: Subject) -> list[Verdict]:
    found: list[Verdict] = []
    most = replicas(subject)
    for field, name in preflight_names.claims(subject):
        claim = await kube.get("v1", "PersistentVolumeClaim", subject.resource.namespace, name)
        if claim is None:
            found.append(Verdict("refused", f"{field}: there is no PersistentVolumeClaim {name}; create it", field))
            continue
        modes = set(claim.get("spec", {}).get("accessModes", ()))
        if most > 1 and "ReadWriteOncePod" in modes:
            text = f"{field}: {name} can be used by one pod only (ReadWriteOncePod), and there may be {most} replicas"
            found.append(Verdict("refused", f"{text}; use a claim that many nodes can mount", field))
        elif most > 1 and not modes & MANY_NODES:
            text = f"{field}: {name} can be mounted by one node only ({', '.join(sorted(modes))}), and there may be"
            found.append(doubt(field, f"{text} {most} replicas: those on other nodes wait; use ReadWriteMany"))
    return found or [ok("every claim that is named is there, for as many nodes as may need it")]


async def _kinds(kube: Cluster, subject: Subject) -> list[Verdict]:
    found: list[Verdict] = []
    if subject.resolved.autoscaled and not await kube.serves("keda.sh/v1alpha1", "ScaledObject"):
        found.append(
            doubt(
                "spec.autoscaling",
                "spec.autoscaling: the cluster does not know KEDA's ScaledObject, so the number of replicas stays as it"
                ' is; install KEDA, or set mode "Off"',
            )
        )
    if subject.resolved.pod_monitor and not await kube.serves("monitoring.coreos.com/v1", "PodMonitor"):
        found.append(
            doubt(
                "spec.monitoring.podMonitor",
                "spec.monitoring.podMonitor: the cluster does not know the kind PodMonitor; install it, or scrape port"
                " 8000 of the pods in another way",
            )
        )
    return found or [ok("KEDA and PodMonitor are served, or not needed")]


async def _gpus(kube: Cluster, subject: Subject) -> list[Verdict]:
    spec, resolved = subject.resource.spec, subject.resolved
    if spec.resources.resource_claims:
        return await _claim_templates(kube, subject)
    selector = ",".join(f"{key}={value}" for key, value in sorted(spec.placement.node_selector.items()))
    nodes = await kube.list("v1", "Node", label_selector=selector)
    offered = [
        int(quantity_value(str(node.get("status", {}).get("allocatable", {}).get(resolved.gpu_resource, "0"))))
        for node in nodes
    ]
    field, largest = _GPUS, max(offered, default=0)
    if largest < resolved.gpus:
        text = f"{field} is {resolved.gpus}, and no node"
        text += f" with {selector}" if selector else ""
        return [Verdict("refused", f"{text} offers more than {largest} {resolved.gpu_resource}; lower it", field)]
    room = sum(count // resolved.gpus for count in offered)
    if room < replicas(subject):
        return [
            doubt(
                field,
                f"{field}: all nodes together have room for {room} replicas of {resolved.gpus} GPUs, and there may be"
                f" {replicas(subject)}; without a node autoscaler the others wait",
            )
        ]
    return [ok(f"room for {room} replicas of {resolved.gpus} {resolved.gpu_resource}, counting GPUs that are in use")]


async def _quota(kube: Cluster, subject: Subject) -> list[Verdict]:
    resolved, scaling = subject.resolved, subject.resource.spec.autoscaling
    name = f"requests.{resolved.gpu_resource}"
    if subject.resource.spec.resources.resource_claims:
        return [ok("no GPU resource is requested")]
    quotas = await kube.list("v1", "ResourceQuota", subject.resource.namespace)
    hard = {quota["metadata"]["name"]: (quota.get("spec", {}).get("hard") or {}).get(name) for quota in quotas}
    allowed = {quota: int(quantity_value(str(number))) for quota, number in hard.items() if number is not None}
    if not allowed:
        return [ok(f"no ResourceQuota of the namespace bounds {name}")]
    least, quota = min((number, quota) for quota, number in allowed.items())
    wanted = max(1, resolved.min_replicas) * resolved.gpus
    told = f"ResourceQuota {quota} allows {least} {resolved.gpu_resource}"
    if wanted > least:
        field = "spec.autoscaling.minReplicas" if scaling is not None and resolved.min_replicas > 1 else _GPUS
        text = f"{field}: the fewest replicas need {wanted} GPUs, and {told}: pods beyond it are refused"
        return [doubt(field, f"{text}; lower minReplicas or spec.resources.gpus, or raise the quota")]
    room = least // resolved.gpus
    return [ok(f"{told}, room for {room} replicas, which services of the namespace share; those in use count too")]


async def _claim_templates(kube: Cluster, subject: Subject) -> list[Verdict]:
    field, found = "spec.resources.resourceClaims", []
    for claim in subject.resource.spec.resources.resource_claims:
        name = claim.resource_claim_template_name
        template = await kube.get("resource.k8s.io/v1", "ResourceClaimTemplate", subject.resource.namespace, name)
        if template is None:
            found.append(Verdict("refused", f"{field}: there is no ResourceClaimTemplate {name}; create it", field))
    return found or [ok("every ResourceClaimTemplate that is named is there")]


_OF_BODY: tuple[tuple[str, str, str, str, Callable[[Cluster, Manifest], Awaitable[list[Verdict]]]], ...] = (
    (
        "namespace",
        "A service lives in a namespace that must be there first.",
        "Create the namespace.",
        "kubernetes/kubernetes: Namespace",
        _namespace,
    ),
    (
        "dry-run",
        "The API server is the last judge of a resource.",
        "Correct what it names, or install the kind.",
        "kubernetes/kubernetes: dryRun=All",
        _dry_run,
    ),
)
Look = Callable[[Cluster, Subject], Awaitable[list[Verdict]]]
_OF_SUBJECT: tuple[tuple[str, str, str, str, Look], ...] = (
    (
        "children-dry-run",
        "What is passed on to Kubernetes as it is can only be judged by Kubernetes.",
        "Correct the field of podTemplate, placement, service or networkPolicy that it names.",
        "kubernetes/kubernetes: dryRun=All",
        _children,
    ),
    (
        "secrets-there",
        "A pod waits for ever for a Secret, or a key of one, that is not there.",
        "Create them first.",
        "gke-labs/kube-agents#608",
        _secrets,
    ),
    (
        "claims-there",
        "A pod waits for ever for a claim that is not there, or that another node holds.",
        "Create claims that as many nodes can mount as there are replicas.",
        "kubernetes/kubernetes: PersistentVolumeClaim access modes",
        _claims,
    ),
    (
        "kinds-served",
        "Scaling needs KEDA, and a PodMonitor needs its kind.",
        "Install them, or switch them off.",
        "docs/design.md",
        _kinds,
    ),
    (
        "gpus-there",
        "A replica runs on one node, which must offer all of its GPUs.",
        "Lower spec.resources.gpus, or select other nodes.",
        "vllm-project/aibrix#617",
        _gpus,
    ),
    (
        "quota-allows",
        "A ResourceQuota refuses pods beyond its GPUs, and the service never has its fewest replicas.",
        "Lower minReplicas, or raise the quota.",
        "docs/decisions/0019-services-share-a-gpu-quota-by-need.md",
        _quota,
    ),
)


def named() -> list[tuple[str, str, str, str]]:
    """Name, reason, remedy and source of each check."""
    return [one[:4] for one in (*_OF_BODY, *_OF_SUBJECT)]
