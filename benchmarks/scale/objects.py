"""What stands on the API server: resources as users apply them, and pods as a kubelet reports them."""

from __future__ import annotations

from typing import Any

from benchmarks.scale.engines import CEILING, pod_name
from outrider.api.defaults import resolve
from outrider.api.resource import parse
from outrider.manifests import deployment as manifests
from outrider.manifests import engine_container, engine_settings

Manifest = dict[str, Any]

RESOURCES = "apis/serving.outrider.dev/v1alpha1/namespaces/{}/speculativeinferenceservices/{}"
LABELS = {
    "app.kubernetes.io/component": "engine",
    "app.kubernetes.io/managed-by": "outrider",
    "serving.outrider.dev/track": "stable",
}


def resource(namespace: str, name: str) -> Manifest:
    """A service as in `examples/01-minimal.yaml`."""
    return {
        "apiVersion": "serving.outrider.dev/v1alpha1",
        "kind": "SpeculativeInferenceService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"id": "meta-llama/Llama-3.1-8B-Instruct", "servedName": name},
            "speculation": {
                "method": "eagle3",
                "draft": {"id": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"},
                "maxSpeculativeTokens": CEILING,
            },
            "objectives": {"tpotMilliseconds": 40, "ttftMilliseconds": 2000},
            "autoscaling": {"minReplicas": 1, "maxReplicas": 6},
            "resources": {"gpus": 1},
        },
    }


def deployment(namespace: str, name: str) -> Manifest:
    """The Deployment that the operator will make of a service."""
    body = resource(namespace, name)
    body["metadata"] |= {"uid": "", "generation": 1}
    parsed = parse(body)
    resolved = resolve(parsed.spec, 300)
    container = engine_container.build(parsed, resolved, engine_settings.engine_config(parsed, resolved))
    return manifests.deployment(parsed, resolved, container)


def change(number: int) -> Manifest:
    """A change of a spec that shows in the Service of the service, and asks no engine to start again."""
    return {"spec": {"service": {"annotations": {CHANGED: str(number)}}}}


CHANGED = "scale.example/changed"
"""The annotation by which a change is known again."""


def pod(deployment: Manifest) -> Manifest:
    """The one pod of a Deployment, under its namespace's own account: no process runs in it."""
    template, meta = deployment["spec"]["template"], deployment["metadata"]
    spec = {name: value for name, value in template["spec"].items() if not name.startswith("serviceAccount")}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(meta["name"]),
            "namespace": meta["namespace"],
            "labels": template["metadata"]["labels"],
        },
        "spec": spec,
    }


def pod_status(address: str, now: str, engine: str) -> Manifest:
    """Ready since ``now`` (RFC 3339) at this address; ``engine`` is the name of its container."""
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    state = {"running": {"startedAt": now}}
    return {
        "status": {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": now,
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds],
            "containerStatuses": [
                {
                    "name": engine, "ready": True, "started": True, "restartCount": 0, "image": "engine",
                    "imageID": "", "state": state,
                }
            ],
        }
    }  # fmt: skip


def deployment_status(generation: int, now: str) -> Manifest:
    """One replica of the newest template, available."""
    return {
        "status": {
            "observedGeneration": generation,
            "replicas": 1,
            "updatedReplicas": 1,
            "readyReplicas": 1,
            "availableReplicas": 1,
            "conditions": [
                {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": now, "lastUpdateTime": now}
                for kind, reason in (
                    ("Available", "MinimumReplicasAvailable"),
                    ("Progressing", "NewReplicaSetAvailable"),
                )
            ],
        }
    }
