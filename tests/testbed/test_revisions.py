"""Changes on trial on a real control plane: a candidate beside the stable engines, and each way in which it ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.testbed import operator
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.scaling import named_after
from tests.testbed.service import ServiceView
from tests.testbed.trials import (
    apply,
    candidate,
    draft,
    on_trial,
    outcomes,
    outrider_with,
    revisions,
    running,
    served,
    stage,
    wait,
)

GPUS = 4
CRASHING: dict[str, Any] = {
    "engine": {"image": "registry.example/vllm:broken", "version": "0.33.0"},
    "podTemplate": {"metadata": {"annotations": {"simulator.outrider.dev/crash": "exit 1: no kernel image"}}},
}


@pytest.fixture(scope="module")
def outrider(start_cluster: StartCluster) -> Iterator[Cluster]:
    """Four GPUs, and Outrider."""
    cluster = start_cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5, nodes=1, gpus_per_node=GPUS)
    with outrider_with(cluster):
        yield cluster


@pytest.fixture
def chat(outrider: Cluster, request: pytest.FixtureRequest) -> Iterator[ServiceView]:
    """A service in a namespace of its own, which gives its GPUs back when the test ends."""
    name = named_after(request)
    outrider.kubectl("create", "namespace", name)
    view = ServiceView(outrider, name, "chat")
    yield view
    outrider.kubectl("delete", "sis,deployment", "--all", "-n", name, "--wait=false")
    outrider.wait_until("free GPUs", lambda: not view.pods())


def compared(view: ServiceView, but: str = "") -> str:
    """Wait until a revision is compared, another one than ``but``; the revision."""
    return view.cluster.reading("comparison", lambda: on_trial(view), lambda found: found not in ("", but))


def test_an_image_that_crashes_is_withdrawn_and_the_engines_never_get_it(chat: ServiceView) -> None:
    before, edited = served(chat), datetime.now(UTC)
    apply(chat, **CRASHING)
    wait(chat, "withdrawal", lambda: stage(chat) == "Withdrawn")
    wait(chat, "end of the candidate", lambda: not candidate(chat))
    ended = datetime.fromisoformat(revisions(chat)["history"][0]["time"])
    assert ended - edited < timedelta(minutes=1)  # both crashes included, so the second is less than that away
    assert "no kernel image" in revisions(chat)["candidate"]["reason"]
    assert chat.condition("RevisionCurrent") == ("False", "CandidateWithdrawn")
    assert chat.condition("Ready")[0] == "True"
    assert running(chat) == {before}


def test_a_draft_is_tried_replaced_approved_and_taken_back_whatever_happens_to_the_operator(chat: ServiceView) -> None:
    first = served(chat)
    example = chat.resource()["spec"]["speculation"]
    apply(chat, policy="Manual", speculation=draft(chat, "lab/second"))
    tried = compared(chat)
    operator.kill(chat.cluster)
    operator.start(chat.cluster)
    apply(chat, policy="Manual", speculation=draft(chat, "lab/third"))
    third = compared(chat, but=tried)
    assert outcomes(chat) == ["Replaced"]
    assert running(chat) == {first}
    approved = {"policy": "Manual", "approve": third}
    apply(chat, speculation=draft(chat, "lab/third"), rollout=approved)
    wait(chat, "promotion", lambda: stage(chat) == "Promoting" or outcomes(chat)[:1] == ["Promoted"])
    operator.kill(chat.cluster)
    operator.start(chat.cluster)
    wait(chat, "end of the promotion", lambda: outcomes(chat)[:1] == ["Promoted"])
    wait(chat, "end of the candidate", lambda: not candidate(chat))
    wait(chat, "the third draft alone", lambda: running(chat) == {third})
    apply(chat, speculation=example)
    wait(chat, "the former draft", lambda: running(chat) == {first} and stage(chat) == "")
    assert outcomes(chat) == ["Promoted", "Replaced"]


def test_without_a_free_gpu_a_candidate_waits_or_takes_the_place_of_a_replica(chat: ServiceView) -> None:
    served(chat, GPUS)
    apply(chat, GPUS, speculation=draft(chat, "lab/second"))
    for reached in ({"Waiting", "Starting", "Running"}, {"Starting", "Running"}):
        wait(chat, "a stage", lambda reached=reached: stage(chat) in reached)
        operator.kill(chat.cluster)
        operator.start(chat.cluster)
    wait(chat, "comparison in a freed place", lambda: stage(chat) == "Running")
    assert chat.get("deployment")["spec"]["replicas"] == GPUS - 1
    assert len(chat.ready_addresses()) == GPUS
    apply(chat, GPUS)
    wait(chat, "the replica to come back", lambda: len(running(chat)) == 1 and not candidate(chat))
    wait(chat, "all replicas", lambda: len(chat.ready_addresses()) == GPUS)
    wait(chat, "its outcome", lambda: outcomes(chat) == ["Reverted"])
