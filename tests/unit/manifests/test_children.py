"""What all children have in common, and the small ones."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest

from outrider.core.schedule import parse_text
from outrider.errors import NotReady
from outrider.manifests import config_maps
from outrider.manifests.secret import admin_secret, stored_keys
from tests.unit.api.bodies import resource
from tests.unit.manifests.builders import made


@pytest.mark.parametrize(
    ("changes", "absent"),
    [
        pytest.param({"spec.autoscaling": None}, "ScaledObject", id="one fixed replica"),
        pytest.param({"spec.autoscaling": {"mode": "Off", "minReplicas": 2}}, "ScaledObject", id="autoscaling off"),
        pytest.param({"spec.monitoring": {"podMonitor": False}}, "PodMonitor", id="own monitoring"),
    ],
)
def test_what_is_not_asked_for_is_not_made(changes: dict[str, Any], absent: str) -> None:
    assert absent not in made(changes)


def test_every_child_belongs_to_the_resource_and_bears_our_labels_alone() -> None:
    noisy = {
        "metadata.labels": {"app.kubernetes.io/instance": "argo"},
        "metadata.annotations": {"argocd.argoproj.io/tracking-id": "x"},
    }
    memory = config_maps.memory(resource(noisy), "{}")
    for manifest in [*made(noisy).values(), memory]:
        meta = manifest["metadata"]
        assert meta["namespace"] == "ml"
        assert "annotations" not in meta
        assert (
            meta["labels"].items()
            >= {
                "app.kubernetes.io/managed-by": "outrider",
                "serving.outrider.dev/service": "chat",
            }.items()
        )
        assert "app.kubernetes.io/instance" not in meta["labels"]
        (owner,) = meta["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("SpeculativeInferenceService", "chat", "5f0c")
        assert owner["controller"] is owner["blockOwnerDeletion"] is True


def test_names() -> None:
    children_ = made()
    assert {kind: manifest["metadata"]["name"] for kind, manifest in children_.items()} == {
        "ServiceAccount": "chat-engine",
        "Secret": "chat-admin",
        "ConfigMap": "chat-schedule",
        "Service": "chat",
        "Deployment": "chat",
        "PodDisruptionBudget": "chat",
        "PodMonitor": "chat",
        "ScaledObject": "chat",
    }
    assert config_maps.memory(resource(), "{}")["metadata"]["name"] == "chat-memory"


def test_the_schedule_document_is_what_the_admin_port_takes() -> None:
    data = config_maps.schedule(resource(), 17, parse_text("1-24:5 25-64:3 65-256:1"), 3600)["data"]
    assert json.loads(data["schedule.json"]) == {
        "generation": 17,
        "schedule": [[1, 24, 5], [25, 64, 3], [65, 256, 1]],
        "leaseSeconds": 3600,
    }


def test_the_secret_holds_one_key_a_line_and_the_newest_is_the_first() -> None:
    manifest = admin_secret(resource(), "new", "old")
    assert b64decode(manifest["data"]["key"]) == b"new\nold\n"
    assert stored_keys(manifest) == ["new", "old"]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(None, id="emptied"),
        pytest.param({"other": "eA=="}, id="without our key"),
        pytest.param({"key": ""}, id="with an empty one"),
        pytest.param({"key": "***"}, id="with one that is not base64"),
    ],
)
def test_a_secret_without_a_key_says_what_to_do(data: dict[str, str] | None) -> None:
    with pytest.raises(NotReady, match="put one there, or delete the Secret"):
        stored_keys({"metadata": {"name": "chat-admin"}, "data": data})


def test_the_service_offers_inference_and_not_the_admin_port() -> None:
    spec = made()["Service"]["spec"]
    assert [port["port"] for port in spec["ports"]] == [8000]
    assert spec["selector"] == {"serving.outrider.dev/service": "chat"}


def test_the_disruption_budget_never_blocks_the_drain_of_a_node() -> None:
    spec = made()["PodDisruptionBudget"]["spec"]
    assert spec["maxUnavailable"] == 1
    assert "minAvailable" not in spec
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_the_pod_monitor_adds_the_labels_that_queries_ask_for() -> None:
    spec = made()["PodMonitor"]["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    assert spec["podTargetLabels"] == [
        "serving.outrider.dev/service",
        "serving.outrider.dev/track",
        "serving.outrider.dev/revision",
    ]
    assert (endpoint["port"], endpoint["interval"]) == ("http", "5s")
    assert endpoint["relabelings"][0]["targetLabel"] == "pod_uid"


def test_monitoring_labels_cannot_replace_ours() -> None:
    labels = made(
        {"spec.monitoring": {"labels": {"release": "prometheus", "app.kubernetes.io/managed-by": "someone-else"}}}
    )["PodMonitor"]["metadata"]["labels"]
    assert labels["release"] == "prometheus"
    assert labels["app.kubernetes.io/managed-by"] == "outrider"
