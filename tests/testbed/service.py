"""One service on the local cluster as an outsider sees it: through the API server and the engines' own ports."""

from __future__ import annotations

import base64
import builtins
import json
import re
import urllib.request
from collections.abc import Mapping
from typing import Any

import yaml

from tests.testbed.api import ApiError
from tests.testbed.cluster import Cluster
from tests.testbed.startup import TIMEOUT_S

PATHS = {
    "configmap": "/api/v1/namespaces/{}/configmaps",
    "deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "hpa": "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
    "networkpolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "pod": "/api/v1/namespaces/{}/pods",
    "podmonitor": "/apis/monitoring.coreos.com/v1/namespaces/{}/podmonitors",
    "poddisruptionbudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "replicaset": "/apis/apps/v1/namespaces/{}/replicasets",
    "scaledobject": "/apis/keda.sh/v1alpha1/namespaces/{}/scaledobjects",
    "secret": "/api/v1/namespaces/{}/secrets",
    "service": "/api/v1/namespaces/{}/services",
    "serviceaccount": "/api/v1/namespaces/{}/serviceaccounts",
    "sis": "/apis/serving.outrider.dev/v1alpha1/namespaces/{}/speculativeinferenceservices",
}


class ServiceView:
    """Reads what is, and never asks the operator."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self.cluster, self.namespace, self.name = cluster, namespace, name

    def apply(self, manifest: Mapping[str, Any]) -> None:
        """Apply a resource as a user does."""
        self.cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(dict(manifest)))

    def get(self, kind: str, name: str = "") -> dict[str, Any]:
        """One object; an empty dict if it is not there."""
        try:
            return self.cluster.api.get(f"{PATHS[kind].format(self.namespace)}/{name or self.name}")
        except ApiError as error:
            if error.status == 404:
                return {}
            raise

    def list(self, kind: str) -> list[dict[str, Any]]:
        """All objects of a kind that bear the service's label, in order of name."""
        selector = f"labelSelector=serving.outrider.dev/service={self.name}"
        items: list[dict[str, Any]] = self.cluster.api.get(f"{PATHS[kind].format(self.namespace)}?{selector}")["items"]
        return sorted(items, key=lambda item: str(item["metadata"]["name"]))

    def resource(self) -> dict[str, Any]:
        """The SpeculativeInferenceService."""
        return self.get("sis")

    def status(self) -> dict[str, Any]:
        """Its status."""
        status: dict[str, Any] = self.resource().get("status", {})
        return status

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and reason of a condition; empty strings if it is not there."""
        for one in self.status().get("conditions", []):
            if one["type"] == kind:
                return one["status"], one["reason"]
        return "", ""

    def is_told(self, kind: str, *expected: str) -> bool:
        """Whether a condition has this status, and this reason where one is given, of the resource as it is now: what
        status said before the last edit does not count."""
        body = self.resource()
        status = body.get("status", {})
        if not body or status.get("observedGeneration") != body["metadata"]["generation"]:
            return False
        told = [(one["status"], one["reason"]) for one in status.get("conditions", []) if one["type"] == kind]
        return any(one[: len(expected)] == expected for one in told)

    def says(self, kind: str, words: str, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until the message of a condition has these words. It may come after status and reason: what explains a
        state is not looked at as often as the state."""

        def message() -> str:
            return "".join(str(one["message"]) for one in self.status().get("conditions", []) if one["type"] == kind)

        self.cluster.reading(f"{kind} that says {words!r}", message, lambda found: words in found, timeout_s)

    def pods(self) -> builtins.list[dict[str, Any]]:
        """The engine pods that are there, in order of name."""
        return self.list("pod")

    def ready_addresses(self) -> builtins.list[str]:
        """Addresses of pods that are ready and not on their way out."""
        return [
            pod["status"]["podIP"]
            for pod in self.pods()
            if "deletionTimestamp" not in pod["metadata"]
            and any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
        ]

    def children(self) -> builtins.list[str]:
        """All objects that belong to the service, as ``kind/name``."""
        return [f"{kind}/{item['metadata']['name']}" for kind in PATHS if kind != "sis" for item in self.list(kind)]

    def engine(self, address: str) -> dict[str, Any]:
        """`GET /schedule` of an engine."""
        secret = self.get("secret", f"{self.name}-admin")
        key = base64.b64decode(secret["data"]["key"]).decode().split()[0]
        request = urllib.request.Request(f"http://{address}:8001/schedule", headers={"Authorization": f"Bearer {key}"})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            document: dict[str, Any] = json.load(answer)
        return document

    def drafted_per_position(self, address: str) -> builtins.list[float]:
        """The engine's counters of drafts by position."""
        with urllib.request.urlopen(f"http://{address}:8000/metrics", timeout=TIMEOUT_S) as answer:
            text = answer.read().decode()
        found = re.findall(r'^outrider_engine_draft_tokens_per_pos_total\{.*position="(\d+)"\} (\S+)$', text, re.M)
        return [float(value) for _, value in sorted(found, key=lambda one: int(one[0]))]

    def target(self) -> str:
        """The threshold of the in-flight trigger."""
        triggers = self.get("scaledobject")["spec"]["triggers"]
        return str(triggers[0]["metadata"]["threshold"])

    def memory(self) -> dict[str, Any]:
        """The operator's memory document; a new service has none before its first control pass."""
        name = f"{self.name}-memory"
        self.cluster.wait_until(f"ConfigMap {name}", lambda: bool(self.get("configmap", name)))
        document: dict[str, Any] = json.loads(self.get("configmap", name)["data"]["memory.json"])
        return document
