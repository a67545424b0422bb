"""K by roll-out on a real control plane: engines without our plugin follow the load to another K, and lose no
request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed import operator
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.load import Load
from tests.testbed.service import ServiceView

MINIMAL = Path(__file__).resolve().parents[2] / "examples" / "01-minimal.yaml"
CEILING, ACCEPTANCE = 5, 0.5
CALM, BUSY = 4, 124
SETTLE_S = 20


@pytest.fixture(scope="module")
def outrider(start_cluster: StartCluster) -> Iterator[Cluster]:
    """Two GPUs, and Outrider, which lets engines keep a K for twenty seconds instead of half an hour."""
    cluster = start_cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5, nodes=1, gpus_per_node=2)
    cluster.kubectl("apply", "-f", str(Path(__file__).with_name("pod_monitor_crd.yaml")))
    operator.install(cluster)
    operator.start(cluster, {"OUTRIDER_K_SETTLE_S": str(SETTLE_S)})
    yield cluster
    operator.stop(cluster)


def plain() -> dict[str, Any]:
    """The minimal example on an image without our plugin, one replica."""
    manifest: dict[str, Any] = yaml.safe_load(MINIMAL.read_text())
    spec = manifest["spec"]
    manifest["metadata"]["namespace"] = "rolled"
    spec["engine"] = {"image": "registry.example/vllm:plain", "version": "0.33.0"}
    spec["podTemplate"] = {"metadata": {"annotations": {"simulator.outrider.dev/plugin": "absent"}}}
    spec["speculation"] |= {"maxSpeculativeTokens": CEILING, "tuning": {"initialSpeculativeTokens": CEILING}}
    spec["autoscaling"] = {"mode": "Off", "minReplicas": 1}
    spec["rollout"] = {"policy": "Canary"}
    return manifest


def speculation(pod: dict[str, Any]) -> dict[str, Any]:
    """What a pod's engine was started with; empty without a drafter."""
    arguments = pod["spec"]["containers"][0]["args"]
    if "--speculative-config" not in arguments:
        return {}
    found: dict[str, Any] = json.loads(arguments[arguments.index("--speculative-config") + 1])
    return found


def test_a_load_that_grows_moves_k_by_a_restart_and_no_request_is_lost(outrider: Cluster) -> None:
    outrider.kubectl("create", "namespace", "rolled")
    view = ServiceView(outrider, "rolled", "chat")
    view.apply(plain())
    outrider.wait_until("an engine", lambda: bool(view.ready_addresses()), 60)
    (before,) = view.pods()
    with Load(outrider, "rolled", "chat", CALM, ACCEPTANCE) as calm:
        outrider.wait_until("delivery by roll-out", lambda: view.status()["tuning"].get("delivery") == "Rollout", 40)
        with Load(outrider, "rolled", "chat", BUSY, ACCEPTANCE) as busy:
            outrider.wait_until("another K", lambda: view.status()["tuning"].get("rollouts") == 1, 60)
            outrider.wait_until("the new engine alone", lambda: alone(view, before), 60)
            answered = busy.outcomes["200"]
            outrider.wait_until("answers of the new engine", lambda: busy.outcomes["200"] > answered + BUSY, 40)
    (after,) = view.pods()
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert speculation(after).get("num_speculative_tokens", 0) < CEILING
    assert "num_speculative_tokens_per_batch_size" not in speculation(after)
    assert calm.outcomes.keys() == {"200"}
    assert busy.outcomes.keys() == {"200"}
    assert view.resource()["metadata"]["generation"] == 1
    assert "candidate" not in view.status()["revisions"]
    assert view.memory()["oneK"]["chosen"] == speculation(after).get("num_speculative_tokens", 0)
    operator.kill(outrider)
    operator.start(outrider, {"OUTRIDER_K_SETTLE_S": str(SETTLE_S)})
    outrider.wait_until("the next operator's look", lambda: "delivery" in view.status()["tuning"], 40)
    (still,) = view.pods()
    assert still["metadata"]["uid"] == after["metadata"]["uid"]


def alone(view: ServiceView, before: dict[str, Any]) -> bool:
    """Whether one other engine than before is there, and serves."""
    pods = view.pods()
    new = all(pod["metadata"]["uid"] != before["metadata"]["uid"] for pod in pods)
    return len(pods) == 1 and new and len(view.ready_addresses()) == 1
