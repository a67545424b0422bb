"""The pod template of an engine, and the hash that names it.

Everything in here restarts engines when it changes. So it depends on the resource alone: not on the operator's version
or settings, nor on objectives, targets or schedules.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from outrider.api.defaults import Resolved
from outrider.api.hardware import ResourceClaim
from outrider.api.resource import SpeculativeInferenceService
from outrider.engine.command_line import ADMIN_KEY_FILE, ADMIN_PORT, CACHE_PATH, HTTP_PORT, SCHEDULE_FILE, TMP_PATH
from outrider.manifests import pod_security, pod_template_merge, secret, storage, weights
from outrider.manifests.config_maps import schedule_name
from outrider.manifests.meta import (
    COMPONENT_LABEL,
    ENGINE_CONTAINER,
    OWN_LABELS,
    REVISION_LABEL,
    SERVICE_LABEL,
    STABLE,
    Manifest,
    labels,
    selector,
)
from outrider.manifests.service_account import service_account_name
from outrider.manifests.volumes import Mount, volume_mounts, volumes

STARTUP_PERIOD_S = 5  # a small model is found ready within seconds, whatever the budget for large ones
READINESS_PERIOD_S = 5
LIVENESS_PERIOD_S = 15
LIVENESS_FAILURES = 8  # two minutes: an engine busy with a long prefill answers late, and a restart costs minutes
PROBE_TIMEOUT_S = 5


def pod_template(
    resource: SpeculativeInferenceService,
    settings: Resolved,
    *,
    image: str,
    args: Sequence[str],
    env: Sequence[Manifest],
    controllable: bool,
    track: str = STABLE,
) -> Manifest:
    """The template with its revision label; the same resource gives the same template, key for key.

    Raises:
        InvalidSpec: the user's own template has something that may not be added.
    """
    more = [*weights.mounts(resource), *filter(None, (storage.model_cache(resource), storage.compile_cache(resource)))]
    container: Manifest = {"name": ENGINE_CONTAINER, "image": image, "args": list(args), "env": list(env)}
    if resource.spec.engine.image_pull_policy is not None:
        container["imagePullPolicy"] = resource.spec.engine.image_pull_policy
    container |= _container(resource, settings, controllable, more)
    spec: Manifest = {
        "serviceAccountName": service_account_name(resource.name),
        "automountServiceAccountToken": False,
        # A Service named vllm would otherwise set VLLM_PORT to tcp://…, and vLLM refuses to start.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": settings.termination_grace_s,
        "securityContext": pod_security.context(settings),
        "containers": [container],
        "volumes": [*_volumes(resource.name, settings), *volumes(more)],
        **_placement(resource),
        **_prerequisites(resource),
    }
    pod_labels = {COMPONENT_LABEL: "engine"} | labels(resource) | selector(resource, track)
    template: Manifest = {"metadata": {"labels": pod_labels}, "spec": spec}
    added = resource.spec.pod_template
    pod_template_merge.check(added, template, settings.gpu_resource)
    template = pod_template_merge.merge(added, template)
    template["metadata"]["labels"][REVISION_LABEL] = revision(template)
    return template


def _prerequisites(resource: SpeculativeInferenceService) -> Manifest:
    """What must be there, or be done, before the engine starts; only what the resource asks for."""
    downloads = [
        download | {"resources": _main_memory(resource), "securityContext": _container_security()}
        for download in weights.downloads(resource)
    ]
    wanted = {
        "initContainers": downloads,
        "imagePullSecrets": [{"name": name} for name in resource.spec.engine.image_pull_secrets],
        "resourceClaims": [
            {"name": one.name, "resourceClaimTemplateName": one.resource_claim_template_name}
            for one in resource.spec.resources.resource_claims
        ],
    }
    return {name: items for name, items in wanted.items() if items}


def _placement(resource: SpeculativeInferenceService) -> Manifest:
    wanted = resource.spec.placement
    found: Manifest = {}
    if wanted.node_selector:
        found["nodeSelector"] = dict(sorted(wanted.node_selector.items()))
    if wanted.tolerations:
        found["tolerations"] = [
            toleration.model_dump(by_alias=True, exclude_none=True) for toleration in wanted.tolerations
        ]
    if wanted.topology_spread_constraints:
        # Without a selector a constraint counts no pods, and spreads nothing.
        ours = {"labelSelector": {"matchLabels": {SERVICE_LABEL: resource.name}}}
        found["topologySpreadConstraints"] = [ours | one for one in wanted.topology_spread_constraints]
    plain = {
        "affinity": wanted.affinity,
        "priorityClassName": wanted.priority_class_name,
        "runtimeClassName": wanted.runtime_class_name,
        "schedulerName": wanted.scheduler_name,
    }
    return found | {name: value for name, value in plain.items() if value}


def revision(template: Mapping[str, Any]) -> str:
    """A short name for a template's content, without our own labels: a promoted candidate keeps its revision."""
    metadata = template["metadata"]
    added = {
        "labels": {key: value for key, value in metadata["labels"].items() if key not in OWN_LABELS},
        "annotations": metadata.get("annotations", {}),
    }
    named = [template["spec"], *([added] if any(added.values()) else [])]
    content = "".join(json.dumps(part, sort_keys=True, separators=(",", ":"), ensure_ascii=True) for part in named)
    return hashlib.sha256(content.encode()).hexdigest()[:10]


def _container(
    resource: SpeculativeInferenceService, settings: Resolved, controllable: bool, more: Sequence[Mount]
) -> Manifest:
    """All of the container but what it runs."""
    return {
        "ports": [
            {"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"},
            {"name": "admin", "containerPort": ADMIN_PORT, "protocol": "TCP"},
        ],
        "resources": _resources(resource, settings),
        "securityContext": _container_security(),
        **_probes(settings, controllable),
        "lifecycle": {"preStop": {"sleep": {"seconds": settings.pre_stop_s}}},
        # The last lines of a crash reach status and events, where they can be read after the pod is gone.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            {"name": "cache", "mountPath": CACHE_PATH},
            {"name": "tmp", "mountPath": TMP_PATH},
            # Whole folders: the kubelet never refreshes a subPath.
            {"name": "schedule", "mountPath": SCHEDULE_FILE.rsplit("/", 1)[0], "readOnly": True},
            {"name": "admin", "mountPath": ADMIN_KEY_FILE.rsplit("/", 1)[0], "readOnly": True},
            *volume_mounts(more),
        ],
    }


def _resources(resource: SpeculativeInferenceService, settings: Resolved) -> Manifest:
    """GPUs and memory are limited to what is requested; processors are not limited, which would throttle the front
    end."""
    claims = resource.spec.resources.resource_claims
    memory = _main_memory(resource)
    if claims:
        return memory | {"claims": [_claim(one) for one in claims]}
    gpus = {settings.gpu_resource: str(settings.gpus)}
    return {"requests": gpus | memory.get("requests", {}), "limits": gpus | memory.get("limits", {})}


def _claim(claim: ResourceClaim) -> Manifest:
    return {"name": claim.name} | ({} if claim.request is None else {"request": claim.request})


def _main_memory(resource: SpeculativeInferenceService) -> Manifest:
    """What containers take beside GPUs; a container that ends before the engine starts adds nothing to the pod's."""
    wanted = resource.spec.resources
    limits = {} if wanted.memory is None else {"memory": wanted.memory}
    requests = limits | ({} if wanted.cpu is None else {"cpu": wanted.cpu})
    return ({"requests": requests} if requests else {}) | ({"limits": limits} if limits else {})


def _container_security() -> Manifest:
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def _probes(settings: Resolved, controllable: bool) -> Manifest:
    """Start-up within the budget, then readiness by the plugin where there is one, and a liveness that is slow to
    kill."""
    return {
        "startupProbe": {
            **_get("/health", "http"),
            "periodSeconds": STARTUP_PERIOD_S,
            "failureThreshold": -(-settings.startup_budget_s // STARTUP_PERIOD_S),
        },
        "readinessProbe": {
            **(_get("/ready", "admin") if controllable else _get("/health", "http")),
            "periodSeconds": READINESS_PERIOD_S,
            "failureThreshold": 2,
        },
        "livenessProbe": {
            **_get("/health", "http"),
            "periodSeconds": LIVENESS_PERIOD_S,
            "failureThreshold": LIVENESS_FAILURES,
        },
    }


def _get(path: str, port: str) -> Manifest:
    return {"httpGet": {"path": path, "port": port}, "timeoutSeconds": PROBE_TIMEOUT_S}


def _volumes(name: str, settings: Resolved) -> list[Manifest]:
    return [
        # Also for one GPU: engines pass tensors between processes there, and the runtime's 64 MiB are not enough.
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": settings.shared_memory}},
        {"name": "cache", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "schedule", "configMap": {"name": schedule_name(name)}},
        # Read by the group, which fsGroup makes ours.
        {"name": "admin", "secret": {"secretName": secret.name(name), "defaultMode": 0o440}},
    ]
