"""Services that want more GPUs than there are: under one quota, and on nodes that are full."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed import operator
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.load import Load
from tests.testbed.numbers import Numbers
from tests.testbed.scaling import LOOK_BACK_S, named_after
from tests.testbed.service import ServiceView

MINIMAL = Path(__file__).resolve().parents[2] / "examples" / "01-minimal.yaml"
SETTLE_S = 20
"""What is ten minutes in a cluster that one pays for."""
PASSES_S = 15.0
"""Some control passes, and looks of the HPA."""
NAMES = ("chat", "code")


@pytest.fixture(scope="module")
def outrider(start_cluster: StartCluster) -> Iterator[Cluster]:
    """Eight GPUs on two nodes, and Outrider."""
    cluster = start_cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5, gpus_per_node=4)
    cluster.kubectl("apply", "-f", str(Path(__file__).with_name("pod_monitor_crd.yaml")))
    operator.install(cluster)
    operator.start(cluster, {"OUTRIDER_GPU_SETTLE_S": str(SETTLE_S)})
    yield cluster
    operator.stop(cluster)


@pytest.fixture
def namespace(outrider: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace whose services give their GPUs back when the test ends."""
    name = named_after(request)
    outrider.kubectl("create", "namespace", name)
    yield name
    outrider.kubectl("delete", "scaledobject,sis,deployment", "--all", "-n", name, "--wait=false")


def serve(view: ServiceView, scaling: dict[str, Any]) -> None:
    """Apply the minimal example under another name and with other bounds."""
    manifest = yaml.safe_load(MINIMAL.read_text())
    manifest["metadata"] |= {"namespace": view.namespace, "name": view.name}
    manifest["spec"]["model"]["servedName"] = view.name
    manifest["spec"]["autoscaling"] = scaling
    manifest["spec"]["speculation"]["tuning"] = {"mode": "Observe"}  # the target stays at 32 requests a replica
    view.apply(manifest)


def wanting(replicas: int) -> dict[str, Any]:
    """Up to eight replicas, and a load elsewhere that wants so many."""
    query = {"name": "demand", "query": f"vector({replicas})", "metricType": "AverageValue", "target": 1}
    return {"minReplicas": 1, "maxReplicas": 8, "triggers": [query]}


def ready(view: ServiceView, number: int, timeout_s: float = 240) -> None:
    what = f"{number} engines of {view.name}"
    view.cluster.wait_until(what, lambda: len(view.ready_addresses()) == number, timeout_s)


def most(view: ServiceView) -> int:
    """The replicas that KEDA may make."""
    return int(view.get("scaledobject").get("spec", {}).get("maxReplicaCount", 0))


def test_services_share_a_quota(outrider: Cluster, namespace: str) -> None:
    """Code has four of six GPUs when chat gets a load for all of them: each ends with three, by one move."""
    outrider.kubectl("create", "quota", "gpus", "--hard=requests.nvidia.com/gpu=6", "-n", namespace)
    chat, code = (ServiceView(outrider, namespace, name) for name in NAMES)
    # A load that falters gives none up: the HPA takes those of the last minute back all at once.
    serve(chat, {"minReplicas": 1, "maxReplicas": 8, "scaleDownStabilizationSeconds": LOOK_BACK_S})
    serve(code, wanting(4))
    ready(chat, 1)
    ready(code, 4)
    outrider.wait_until("shares of all six", lambda: most(chat) + most(code) == 6)
    with (
        Numbers(outrider, namespace, "code") as of_code,
        Numbers(outrider, namespace, "chat") as of_chat,
        Load(outrider, namespace, "chat", concurrency=200, acceptance=0.8),
    ):
        ready(chat, 3)
        ready(code, 3)
        outrider.wait_until("the condition", lambda: chat.condition("CapacityLimited") == ("True", "GPUQuota"))
        chat.says("CapacityLimited", "ResourceQuota gpus allows 6 nvidia.com/gpu; of the others may have code 3")
        assert chat.condition("Ready")[0] == "True"
        before = code.get("scaledobject")["metadata"]["generation"]  # chat's target may move with its load
        operator.kill(outrider)
        operator.start(outrider, {"OUTRIDER_GPU_SETTLE_S": str(SETTLE_S)})
        shares = set()
        end_s = time.monotonic() + PASSES_S
        while time.monotonic() < end_s:
            shares.add((most(chat), most(code)))
            time.sleep(0.5)
        ready(chat, 3)
        assert shares == {(3, 3)}
        assert code.get("scaledobject")["metadata"]["generation"] == before
    assert [number for number, _ in groupby(of_code.seen)] == [4, 3], "one replica went, and none came back"
    assert sorted(of_chat.seen) == of_chat.seen, "chat never gave one up"


def test_pods_that_wait_for_a_gpu_hold_nobody_up(outrider: Cluster, namespace: str) -> None:
    chat, code = (ServiceView(outrider, namespace, name) for name in NAMES)
    serve(code, wanting(4))
    ready(code, 4)
    serve(chat, {"mode": "Off", "minReplicas": 6})
    ready(chat, 4)
    outrider.wait_until("the condition", lambda: chat.condition("CapacityLimited") == ("True", "NoFreeGPU"))
    assert chat.condition("Ready")[0] == "True"
    chat.says("CapacityLimited", "4 of 6 engines serve")
    serve(code, wanting(1))
    # The next one follows after a minute: what matters is that one goes, and who gets its place.
    outrider.wait_until("one engine of code less", lambda: len(code.ready_addresses()) <= 3)
    outrider.wait_until("one engine of chat more", lambda: len(chat.ready_addresses()) >= 5)
