"""Changes on trial on a real control plane: a candidate beside the stable engines, and each way in which it ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed import operator
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.scaling import named_after
from tests.testbed.service import ServiceView

MINIMAL = Path(__file__).resolve().parents[2] / "examples" / "01-minimal.yaml"
GPUS = 4
CRASHING: dict[str, Any] = {
    "engine": {"image": "registry.example/vllm:broken", "version": "0.33.0"},
    "podTemplate": {"metadata": {"annotations": {"simulator.outrider.dev/crash": "exit 1: no kernel image"}}},
}


@pytest.fixture(scope="module")
def outrider(start_cluster: StartCluster) -> Iterator[Cluster]:
    """Four GPUs, and Outrider."""
    cluster = start_cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5, nodes=1, gpus_per_node=GPUS)
    cluster.kubectl("apply", "-f", str(Path(__file__).with_name("pod_monitor_crd.yaml")))
    operator.install(cluster)
    operator.start(cluster)
    yield cluster
    operator.stop(cluster)


@pytest.fixture
def chat(outrider: Cluster, request: pytest.FixtureRequest) -> Iterator[ServiceView]:
    """A service in a namespace of its own, which gives its GPUs back when the test ends."""
    name = named_after(request)
    outrider.kubectl("create", "namespace", name)
    view = ServiceView(outrider, name, "chat")
    yield view
    outrider.kubectl("delete", "sis,deployment", "--all", "-n", name, "--wait=false")
    outrider.wait_until("free GPUs", lambda: not view.pods(), 60)


def apply(view: ServiceView, replicas: int = 3, policy: str = "Canary", **changes: Any) -> None:
    """The minimal example with a fixed number of replicas, and whatever else."""
    manifest = yaml.safe_load(MINIMAL.read_text())
    manifest["metadata"]["namespace"] = view.namespace
    manifest["spec"]["autoscaling"] = {"mode": "Off", "minReplicas": replicas}
    manifest["spec"] |= {"rollout": {"policy": policy}, **changes}
    view.apply(manifest)


def draft(view: ServiceView, id_: str) -> dict[str, Any]:
    """The speculation of the example with another draft."""
    speculation: dict[str, Any] = view.resource()["spec"]["speculation"]
    return speculation | {"draft": {"id": id_}}


def served(view: ServiceView, replicas: int = 3) -> str:
    """Apply and wait until all engines serve and their revision is known to be good; the revision."""
    apply(view, replicas)
    wait(view, f"{replicas} engines", lambda: len(view.ready_addresses()) == replicas)
    wait(view, "stable revision", lambda: stable(view) != "")
    return stable(view)


def wait(view: ServiceView, what: str, condition: Any, timeout_s: float = 60) -> None:
    view.cluster.wait_until(what, condition, timeout_s)


def revisions(view: ServiceView) -> dict[str, Any]:
    found: dict[str, Any] = view.status().get("revisions", {})
    return found


def stable(view: ServiceView) -> str:
    return str(revisions(view).get("stable", ""))


def stage(view: ServiceView) -> str:
    return str(revisions(view).get("candidate", {}).get("stage", ""))


def candidate(view: ServiceView) -> dict[str, Any]:
    return view.get("deployment", "chat-candidate")


def running(view: ServiceView) -> set[str]:
    """Revisions of the stable engines that are there."""
    label = "serving.outrider.dev/"
    return {
        pod["metadata"]["labels"][label + "revision"]
        for pod in view.pods()
        if pod["metadata"]["labels"][label + "track"] == "stable"
    }


def outcomes(view: ServiceView) -> list[str]:
    return [one["outcome"] for one in revisions(view).get("history", [])]


def test_an_image_that_crashes_is_withdrawn_and_the_engines_never_get_it(chat: ServiceView) -> None:
    before = served(chat)
    apply(chat, **CRASHING)
    wait(chat, "withdrawal", lambda: stage(chat) == "Withdrawn", 90)
    wait(chat, "end of the candidate", lambda: not candidate(chat))
    assert "no kernel image" in revisions(chat)["candidate"]["reason"]
    assert chat.condition("RevisionCurrent") == ("False", "CandidateWithdrawn")
    assert chat.condition("Ready")[0] == "True"
    assert running(chat) == {before}


def test_a_draft_is_tried_replaced_approved_and_taken_back_whatever_happens_to_the_operator(chat: ServiceView) -> None:
    first = served(chat)
    example = chat.resource()["spec"]["speculation"]
    apply(chat, policy="Manual", speculation=draft(chat, "lab/second"))
    wait(chat, "comparison", lambda: stage(chat) == "Running")
    tried = revisions(chat)["candidate"]["revision"]
    operator.kill(chat.cluster)
    operator.start(chat.cluster)
    apply(chat, policy="Manual", speculation=draft(chat, "lab/third"))
    wait(
        chat,
        "comparison of the third draft",
        lambda: stage(chat) == "Running" and revisions(chat)["candidate"]["revision"] != tried,
    )
    third = revisions(chat)["candidate"]["revision"]
    assert outcomes(chat) == ["Replaced"]
    assert running(chat) == {first}
    approved = {"policy": "Manual", "approve": third}
    apply(chat, speculation=draft(chat, "lab/third"), rollout=approved)
    wait(chat, "promotion", lambda: stage(chat) == "Promoting")
    operator.kill(chat.cluster)
    operator.start(chat.cluster)
    wait(chat, "end of the promotion", lambda: outcomes(chat)[:1] == ["Promoted"], 120)
    wait(chat, "end of the candidate", lambda: not candidate(chat))
    assert running(chat) == {third}
    apply(chat, speculation=example)
    wait(chat, "the former draft", lambda: running(chat) == {first} and stage(chat) == "", 120)
    assert outcomes(chat) == ["Promoted", "Replaced"]


def test_without_a_free_gpu_a_candidate_waits_or_takes_the_place_of_a_replica(chat: ServiceView) -> None:
    served(chat, GPUS)
    apply(chat, GPUS, speculation=draft(chat, "lab/second"))
    wait(chat, "comparison in a freed place", lambda: stage(chat) == "Running", 120)
    assert chat.get("deployment")["spec"]["replicas"] == GPUS - 1
    assert len(chat.ready_addresses()) == GPUS
    apply(chat, GPUS)
    wait(chat, "the replica to come back", lambda: len(running(chat)) == 1 and not candidate(chat))
    wait(chat, "all replicas", lambda: len(chat.ready_addresses()) == GPUS)
    assert outcomes(chat) == ["Reverted"]
