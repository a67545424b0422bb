"""Verdicts on a real control plane: what a comparison of engines under load finds, and what becomes of the change."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.testbed import operator
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.load import Load
from tests.testbed.service import ServiceView
from tests.testbed.trials import apply, candidate, outcomes, outrider_with, revisions, running, served, stage, wait

REPLICAS = 3
REQUESTS = 12
"""In flight at each service: three on each of four engines make well over the 200 tokens a window that count."""
DECIDED_S = 900
"""Twice as long as four boots of the candidate, each of 42 windows of 2 s, and their starts."""
CHANGES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "better-draft": ("Canary by default", {"draft": {"id": "lab/eagle-better-15"}}),
    "worse-draft": ("Canary by default", {"draft": {"id": "lab/eagle-worse-15"}}),
    "equal-draft": ("Canary by default", {"draft": {"id": "lab/eagle-retrained"}}),
    "equal-image": ("Canary by default", {"image": "registry.example/vllm:rebuilt"}),
    "approved-draft": ("Manual", {"draft": {"id": "lab/eagle-better-20"}}),
}
"""By namespace: the policy, and what its user edits."""


def edit(view: ServiceView, **rollout: Any) -> None:
    """What the user of this service changes."""
    policy, change = CHANGES[view.namespace]
    blocks: dict[str, Any] = {"rollout": {"policy": "Manual", **rollout}} if policy == "Manual" else {}
    if "image" in change:
        blocks["engine"] = change | {"version": "0.33.0"}
    else:
        blocks["speculation"] = view.resource()["spec"]["speculation"] | change
    apply(view, REPLICAS, None, **blocks)


@contextmanager
def on_trial(cluster: Cluster, names: Collection[str]) -> Iterator[Mapping[str, ServiceView]]:
    """A service in each of these namespaces under load, all with a candidate that serves."""
    views = {name: ServiceView(cluster, name, "chat") for name in names}
    with ExitStack() as stack:
        for name, view in views.items():
            cluster.kubectl("create", "namespace", name)
            served(view, REPLICAS, None)
            stack.enter_context(Load(cluster, name, "chat", REQUESTS, 0.7))
        for view in views.values():
            wait(view, "a known load", lambda view=view: replicas_for_load(view) > 0)
            edit(view)
        for view in views.values():
            # Those at the end are looked at last: by then the comparison may be between two boots, or over.
            wait(view, "comparison", lambda view=view: stage(view) == "Running" or bool(outcomes(view)))
        yield views


@pytest.fixture(scope="module")
def services(start_cluster: StartCluster) -> Iterator[Mapping[str, ServiceView]]:
    """One service for each change, all on trial at the same time; the operator is killed once meanwhile."""
    cluster = start_cluster(
        {"keda", "prometheus", "engines"},
        scrape_interval_s=0.5,
        nodes=1,
        gpus_per_node=(REPLICAS + 1) * len(CHANGES),
    )
    with outrider_with(cluster), on_trial(cluster, CHANGES) as views:
        _again(cluster)
        yield views


def _again(cluster: Cluster) -> None:
    operator.kill(cluster)
    operator.start(cluster)


def replicas_for_load(view: ServiceView) -> int:
    return int(view.status().get("capacity", {}).get("replicasForLoad", 0))


def decided(view: ServiceView) -> dict[str, Any]:
    """The trial of the change, once it is over."""
    wait(view, "verdict", lambda: bool(outcomes(view)), DECIDED_S)
    wait(view, "end of the candidate", lambda: not candidate(view))
    found: dict[str, Any] = revisions(view)["history"][0]
    return found


@pytest.mark.parametrize("name", ["better-draft", "equal-image"])
def test_a_better_draft_and_an_equal_image_reach_all_engines(services: Mapping[str, ServiceView], name: str) -> None:
    view = services[name]
    trial = decided(view)
    assert trial["outcome"] == "Promoted", trial
    wait(view, "the change on all engines", lambda: running(view) == {trial["revision"]})
    assert view.condition("RevisionCurrent")[0] != "False"


@pytest.mark.parametrize("name", ["worse-draft", "equal-draft"])
def test_a_worse_draft_and_an_equal_one_are_left(services: Mapping[str, ServiceView], name: str) -> None:
    view = services[name]
    trial = decided(view)
    assert trial["outcome"] in {"Withdrawn"} | ({"Inconclusive"} if name == "equal-draft" else set()), trial
    assert running(view) == {trial["replaces"]}
    assert view.condition("RevisionCurrent") == ("False", "CandidateWithdrawn")
    assert view.condition("Ready")[0] == "True"


def test_with_policy_manual_a_better_draft_waits_for_its_approval_though_the_operator_ends_meanwhile(
    services: Mapping[str, ServiceView],
) -> None:
    view = services["approved-draft"]
    wait(view, "verdict", lambda: stage(view) == "Approval", DECIDED_S)
    waiting = revisions(view)["candidate"]
    assert float(waiting["lowPercent"]) > 0
    _again(view.cluster)
    edit(view, approve=waiting["revision"])
    assert decided(view)["outcome"] == "Promoted"
    wait(view, "the change on all engines", lambda: running(view) == {waiting["revision"]})
