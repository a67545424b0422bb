"""A candidate's answers are evaluated before it takes requests: by a Job whose script asks the engines for real."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed import evaluations, operator
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.scaling import named_after
from tests.testbed.service import ServiceView

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXAMPLE = yaml.safe_load((EXAMPLES / "11-quality-before-traffic.yaml").read_text(encoding="utf-8"))
NAME = EXAMPLE["metadata"]["name"]
REPLICAS = 2


@pytest.fixture(scope="module")
def outrider(start_cluster: StartCluster) -> Iterator[Cluster]:
    """Four GPUs, and Outrider."""
    cluster = start_cluster({"prometheus", "engines"}, scrape_interval_s=0.5, nodes=1, gpus_per_node=4)
    operator.install(cluster)
    operator.start(cluster)
    yield cluster
    operator.stop(cluster)


@pytest.fixture
def support(outrider: Cluster, request: pytest.FixtureRequest) -> Iterator[ServiceView]:
    """The example's service in a namespace of its own, with its questions; its engines serve."""
    name = named_after(request)
    outrider.kubectl("create", "namespace", name)
    outrider.kubectl("create", "configmap", f"{NAME}-quality", "-n", name, f"--from-file={EXAMPLES / 'quality'}")
    view = ServiceView(outrider, name, NAME)
    apply(view)
    view.cluster.wait_until("engines", lambda: len(view.ready_addresses()) == REPLICAS)
    view.cluster.wait_until("stable revision", lambda: "stable" in revisions(view))
    yield view
    outrider.kubectl("delete", "sis,deployment", "--all", "-n", name, "--wait=false")
    outrider.wait_until("free GPUs", lambda: not view.pods())


def apply(view: ServiceView, **engine: Any) -> None:
    """The example with a fixed number of replicas, and an engine of these settings."""
    spec = {**EXAMPLE["spec"], "autoscaling": {"mode": "Off", "minReplicas": REPLICAS}, "engine": engine}
    view.apply({**EXAMPLE, "metadata": {"name": NAME, "namespace": view.namespace}, "spec": spec})


def revisions(view: ServiceView) -> dict[str, Any]:
    found: dict[str, Any] = view.status().get("revisions", {})
    return found


def candidate(view: ServiceView) -> dict[str, Any]:
    found: dict[str, Any] = revisions(view).get("candidate", {})
    return found


def tracks_with_requests(view: ServiceView) -> list[str]:
    """Tracks of the ready pods that the Service selects."""
    selector = view.get("service")["spec"]["selector"].items()
    labels = [pod["metadata"]["labels"] for pod in view.pods() if ready(pod)]
    return sorted(one["serving.outrider.dev/track"] for one in labels if selector <= one.items())


def ready(pod: dict[str, Any]) -> bool:
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True"


def jobs(view: ServiceView) -> list[str]:
    listed = view.cluster.api.get(f"/apis/batch/v1/namespaces/{view.namespace}/jobs")["items"]
    return [one["metadata"]["name"] for one in listed]


def test_a_candidate_gets_requests_once_its_answers_are_as_good_though_the_operator_dies(support: ServiceView) -> None:
    cluster = support.cluster
    assert tracks_with_requests(support) == ["stable"] * REPLICAS
    apply(support, maxNumSeqs=128)
    cluster.wait_until("evaluation", lambda: len(jobs(support)) == 1)
    # The Job is made first, and told of at the end of that pass.
    cluster.wait_until("word of it", lambda: candidate(support).get("stage") == "Checking")
    assert support.condition("RevisionCurrent") == ("False", "CandidateChecked")
    assert len(support.ready_addresses()) == REPLICAS + 1
    assert tracks_with_requests(support) == ["stable"] * REPLICAS
    operator.kill(cluster)
    with evaluations.running(cluster):
        operator.start(cluster)
        cluster.wait_until("comparison", lambda: candidate(support).get("stage") == "Running")
    assert candidate(support)["quality"] == "score 1 beside a baseline of 1: no loss, and 2 % is allowed"
    cluster.wait_until("its share", lambda: "candidate" in tracks_with_requests(support))
    assert len(jobs(support)) == 1


def test_a_candidate_that_answers_worse_never_gets_a_request_and_its_job_goes_with_it(support: ServiceView) -> None:
    cluster, before = support.cluster, revisions(support)["stable"]
    with evaluations.running(cluster):
        apply(support, image="registry.example/vllm:careless-50", version="0.33.0")
        cluster.wait_until("withdrawal", lambda: candidate(support).get("stage") == "Withdrawn")
    reason = candidate(support)["reason"]
    assert "beside a baseline of 1: a loss of" in reason
    assert "retryAfter" not in candidate(support)
    assert revisions(support)["stable"] == before
    assert tracks_with_requests(support) == ["stable"] * REPLICAS
    cluster.wait_until("end of the candidate", lambda: not support.get("deployment", f"{NAME}-candidate"))
    cluster.wait_until("end of its Job", lambda: not jobs(support))
