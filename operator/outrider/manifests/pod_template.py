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
from outrider.api.resource import SpeculativeInferenceService
from outrider.engine.command_line import ADMIN_KEY_FILE, ADMIN_PORT, CACHE_PATH, HTTP_PORT, SCHEDULE_FILE, TMP_PATH
from outrider.manifests import secret
from outrider.manifests.config_maps import schedule_name
from outrider.manifests.meta import COMPONENT_LABEL, REVISION_LABEL, STABLE, Manifest, labels, selector
from outrider.manifests.service_account import service_account_name

USER_ID = 1000  # any but root; set here because images that run as root are common, and runAsNonRoot would refuse them
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
    """The template with its revision label; the same resource gives the same template, key for key."""
    container: Manifest = {"name": "engine", "image": image, "args": list(args), "env": list(env)}
    container |= _container(resource, settings, controllable)
    placement = resource.spec.placement
    spec: Manifest = {
        "serviceAccountName": service_account_name(resource.name),
        "automountServiceAccountToken": False,
        # A Service named vllm would otherwise set VLLM_PORT to tcp://…, and vLLM refuses to start.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": settings.termination_grace_s,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": _volumes(resource.name, settings),
    }
    if placement.node_selector:
        spec["nodeSelector"] = dict(sorted(placement.node_selector.items()))
    if placement.tolerations:
        spec["tolerations"] = [
            toleration.model_dump(by_alias=True, exclude_none=True) for toleration in placement.tolerations
        ]
    pod_labels = {COMPONENT_LABEL: "engine"} | labels(resource) | selector(resource, track)
    template: Manifest = {"metadata": {"labels": pod_labels}, "spec": spec}
    pod_labels[REVISION_LABEL] = revision(template)
    return template


def revision(template: Mapping[str, Any]) -> str:
    """A short name for a template's content, without its own label and its track: a promoted candidate keeps its
    revision."""
    content = json.dumps(template["spec"], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(content.encode()).hexdigest()[:10]


def _container(resource: SpeculativeInferenceService, settings: Resolved, controllable: bool) -> Manifest:
    """All of the container but what it runs."""
    return {
        "ports": [
            {"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"},
            {"name": "admin", "containerPort": ADMIN_PORT, "protocol": "TCP"},
        ],
        "resources": _resources(resource, settings),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
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
        ],
    }


def _resources(resource: SpeculativeInferenceService, settings: Resolved) -> Manifest:
    """GPUs and memory are limited to what is requested; processors are not limited, which would throttle the front
    end."""
    wanted = resource.spec.resources
    limits = {settings.gpu_resource: str(settings.gpus)}
    if wanted.memory is not None:
        limits["memory"] = wanted.memory
    requests = limits | ({"cpu": wanted.cpu} if wanted.cpu is not None else {})
    return {"requests": requests, "limits": limits}


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
