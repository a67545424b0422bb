"""Every query of every dashboard, asked of a real Prometheus under load: each must have an answer."""

from __future__ import annotations

import base64
import json
import math
import time
import urllib.request
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest
import yaml

from outrider.observability.__main__ import DASHBOARDS
from outrider.observability.alerts import ALERTS
from outrider.observability.service_trial import TRIAL
from tests.testbed import operator
from tests.testbed.cluster import Cluster
from tests.testbed.dashboards import Asked, answer, choices, elements, every_query, filled_in
from tests.testbed.fixtures import StartCluster
from tests.testbed.load import Load
from tests.testbed.service import ServiceView
from tests.testbed.test_operator import created, example

NAMESPACE, SERVICE, QUIET, TRIED = "watched", "chat", "quiet", "tried"
ONE_SERVICE = {"namespace": NAMESPACE, "service": SERVICE, "gpu_hour": "2.50"}
VARIABLES: Mapping[str, Mapping[str, str]] = {
    "outrider-fleet": {"namespace": ".+"},
    "outrider-service": ONE_SERVICE,
    "outrider-operator": {"operator": ".+"},
}
TRIAL_S = 480.0
"""Some times as long as a boot of the candidate is heard, 40 windows of 2 s: only then is there a gain."""
QUERIES = list(every_query())
TWO_ENGINES: Mapping[str, Any] = {
    "autoscaling": {"mode": "Off", "minReplicas": 2},
    "rollout": {"policy": "Manual"},
    "objectives": {"tpotMilliseconds": 100, "ttftMilliseconds": 5000},
}


@pytest.fixture(scope="module")
def busy(start_cluster: StartCluster) -> Iterator[Cluster]:
    """A service under load, and beside it what goes wrong now and then: those panels have no series else."""
    cluster = start_cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5, nodes=4)
    operator.install(cluster)
    operator.start(cluster, {"OUTRIDER_LEASE_S": "60"})
    view, quiet, tried = created(cluster, NAMESPACE), created(cluster, QUIET), created(cluster, TRIED, **TWO_ENGINES)
    name_is_taken(cluster)
    for name, each in {"loaded": view, "quiet": quiet, "tried": tried}.items():
        cluster.wait_until(f"ready {name} service", partial(is_ready, each))
    with (
        Load(cluster, NAMESPACE, SERVICE, concurrency=48, acceptance=0.75),
        Load(cluster, TRIED, SERVICE, concurrency=12, acceptance=0.75),
    ):
        a_draft_is_tried(tried)
        a_stranger_delivers(view)
        yield cluster
    operator.stop(cluster)


def is_ready(view: ServiceView) -> bool:
    return view.condition("Ready")[0] == "True"


def a_draft_is_tried(view: ServiceView) -> None:
    """A candidate beside two engines."""
    cluster = view.cluster
    cluster.wait_until("two engines", lambda: len(view.ready_addresses()) == 2)
    cluster.wait_until("stable revision", lambda: "revisions" in view.status())
    speculation = view.resource()["spec"]["speculation"] | {"draft": {"id": "lab/second"}}
    view.apply(example(TRIED, **TWO_ENGINES, speculation=speculation))
    cluster.wait_until("comparison", lambda: stage(view) == "Running")


def stage(view: ServiceView) -> str:
    return str(view.status()["revisions"].get("candidate", {}).get("stage", ""))


def variables(asked: Asked) -> Mapping[str, str]:
    """What stands at the top of the dashboard: only one service has a candidate."""
    chosen = VARIABLES[asked.dashboard.uid]
    return {**chosen, "namespace": TRIED} if asked.panel in TRIAL.panels else chosen


def name_is_taken(cluster: Cluster) -> None:
    """An objects pass that fails, and conditions that are not True: somebody has a Service of that name already."""
    cluster.kubectl("create", "namespace", "taken")
    taken = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": "taken"},
        "spec": {"ports": [{"port": 80}]},
    }
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(taken))
    ServiceView(cluster, "taken", SERVICE).apply(example("taken"))


def a_stranger_delivers(view: ServiceView) -> None:
    """A delivery that fails: an engine holds a later generation when its lease is renewed."""
    key = base64.b64decode(view.get("secret", f"{SERVICE}-admin")["data"]["key"]).decode().split()[0]
    body = {"generation": 1000, "schedule": [[1, 256, 2]], "leaseSeconds": 600}
    view.cluster.wait_until("an engine", lambda: bool(view.ready_addresses()))
    request = urllib.request.Request(
        f"http://{view.ready_addresses()[0]}:8001/schedule",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        assert reply.status == 200


@pytest.fixture(scope="module")
def answers(busy: Cluster) -> Mapping[str, list[dict[str, Any]]]:
    """What each query was answered, by its expression: asked again until it has data, for as long as a trial takes."""
    found: dict[str, list[dict[str, Any]]] = {}
    until_s = time.monotonic() + TRIAL_S
    while time.monotonic() < until_s and len(found) < len({asked.query.expr for asked in QUERIES}):
        for asked in QUERIES:
            if asked.query.expr not in found:
                rows = answer(busy, filled_in(asked.query.expr, variables(asked)))
                if rows:
                    found[asked.query.expr] = rows
        time.sleep(1.0)
    return found


@pytest.mark.parametrize("asked", QUERIES, ids=str)
def test_a_query_of_a_panel_has_data(answers: Mapping[str, list[dict[str, Any]]], asked: Asked) -> None:
    assert asked.query.expr in answers, filled_in(asked.query.expr, variables(asked))


def test_no_panel_shows_nan_for_a_service_without_traffic(
    busy: Cluster, answers: Mapping[str, list[dict[str, Any]]]
) -> None:
    """Of counters that stand still the rates are 0, and 0 over 0 is a value that Grafana shows as such."""
    told = {}
    for asked in QUERIES:
        chosen = dict(VARIABLES[asked.dashboard.uid])
        if "service" in chosen:
            chosen["namespace"] = QUIET
        found = elements(busy, filled_in(asked.query.expr, chosen))
        told[str(asked)] = [one["metric"] for one in found if math.isnan(float(one["value"][1]))]
    assert {name: found for name, found in told.items() if found} == {}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.uid)
def test_its_variables_offer_what_is_there(
    busy: Cluster, answers: Mapping[str, list[dict[str, Any]]], dashboard: Any
) -> None:
    offered = {
        variable.name: choices(busy, variable, VARIABLES[dashboard.uid])
        for variable in dashboard.variables
        if variable.query
    }
    assert all(offered.values()), offered
    if dashboard.uid == "outrider-service":
        assert offered == {"namespace": sorted((NAMESPACE, QUIET, TRIED)), "service": [SERVICE]}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda one: one.name)
def test_a_rule_is_understood_and_keeps_still_for_a_service_that_is_well(
    busy: Cluster, answers: Mapping[str, list[dict[str, Any]]], alert: Any
) -> None:
    """One that was broken on purpose is not looked at; load and learning may bring the rest up for a moment, which is
    what `for` is there for."""
    steady = alert.name in (
        "OutriderAllDraftsRejected", "OutriderKVCacheNearlyFull", "OutriderEngineStalls", "OutriderMetricsMissing",
        "OutriderRevisionNotCurrent", "OutriderScalingLimited", "OutriderCapacityLimited", "OutriderServiceNotReady",
        "OutriderEngineRestarts", "OutriderTrialStuck",
        "OutriderOperatorRestarts", "OutriderOperatorDown", "OutriderNotDeciding", "OutriderEnginesNotControllable",
    )  # fmt: skip

    def fires() -> list[Any]:
        firing = [one["metric"] for one in answer(busy, alert.expression)]
        return [one for one in firing if steady and one.get("namespace") not in ("taken", TRIED)]

    # A scrape or a pass that is late brings some up until the next one.
    busy.reading(f"rest of {alert.name}", fires, lambda found: not found)


def test_a_service_that_cannot_be_made_is_told(busy: Cluster, answers: Mapping[str, list[dict[str, Any]]]) -> None:
    alert = next(one for one in ALERTS if one.name == "OutriderServiceNotReady")

    def firing() -> list[Any]:
        return [one["metric"] for one in answer(busy, alert.expression)]

    expected = [{"namespace": "taken", "service": SERVICE}]
    busy.reading(f"{alert.name} for one service alone", firing, lambda found: found == expected)
