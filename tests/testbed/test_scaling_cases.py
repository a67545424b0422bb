"""Cases of scaling that others had in production, with the real KEDA, HPA and Prometheus on a local control plane.

The services of all cases are applied at once and live side by side: most of their time is spent waiting.
"""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
import yaml

from tests.testbed import operator
from tests.testbed.alerting import values
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.load import Load
from tests.testbed.numbers import Numbers
from tests.testbed.pages import Pages
from tests.testbed.scaling import (
    GONE_BY_NOW_S,
    HPA_SYNC_S,
    POLLED_OFTEN,
    SEEN_BY_THE_HPA_S,
    between,
    create,
    demand,
    engine_labels,
    export,
    hpa,
    manifest,
    replicas,
    scale,
    serve,
    trigger,
    uids,
    wait,
    wait_replicas,
)
from tests.testbed.service import ServiceView
from tests.testbed.startup import TIMEOUT_S

SIX = "example.com/six"
"""A GPU of which the cluster has six."""
LONGEST = "a-service-whose-name-is-as-long-as-a-name-may-ever-b-x"
RATIO = 'sum(rate(vllm:spec_decode_num_accepted_tokens_total{namespace="c19"}[10s])) / '
DRAFTS = 'sum(rate(vllm:spec_decode_num_draft_tokens_total{namespace="c19"}[10s]))'
MTP = {"method": "mtp", "maxSpeculativeTokens": 3}
RANKS: dict[str, Any] = {"speculation": MTP, "parallelism": {"data": 2}, "resources": {"gpus": 2}}


@dataclass
class Fleet:
    """All services, by case, and the metrics that the test sets."""

    cluster: Cluster
    pages: Pages
    load: dict[str, int] = field(default_factory=dict)
    """Of a service, in a metric of that name."""

    def view(self, case: str) -> ServiceView:
        return ServiceView(self.cluster, case, LONGEST if case == "names" else "chat")

    def wants(self, case: str, number: int) -> dict[str, Any]:
        """A trigger that wants as many replicas as `load` says."""
        self.load[case] = number
        export(self.cluster, self.pages, f"{case}-load", lambda: f"{case}_load {self.load[case]}\n")
        return trigger("load", f"sum({case}_load)")


@pytest.fixture(scope="module")
def fleet(start_cluster: StartCluster) -> Iterator[Fleet]:
    """A cluster with Outrider and the service of every case."""
    parts = {"keda", "prometheus", "engines"}
    cluster = start_cluster(parts, scrape_interval_s=0.5, nodes=4, hpa_sync_s=HPA_SYNC_S)
    operator.install(cluster)
    operator.start(cluster, POLLED_OFTEN)
    six = {"status": {"capacity": {SIX: "6"}, "allocatable": {SIX: "6"}}}
    cluster.kubectl("patch", "node", "gpu-0", "--subresource=status", "-p", json.dumps(six))
    with Pages() as pages:
        found = Fleet(cluster, pages)
        for case in ("c28", "c19", "c22", "c24", "edit", "names"):
            create(cluster, case)
        c28 = {"minReplicas": 4, "maxReplicas": 8, "triggers": [found.wants("c28", 8)]}
        scale(found.view("c28"), c28, resources={"gpus": 1, "gpuResource": SIX})
        ratio = trigger("acceptance", RATIO + DRAFTS, 2)
        scale(found.view("c19"), {"minReplicas": 1, "maxReplicas": 6, "triggers": [found.wants("c19", 3), ratio]})
        scale(found.view("c22"), None, **RANKS)
        average = trigger("queue", 'avg(vllm:num_requests_waiting{namespace="c24"})', 5)
        scale(found.view("c24"), between(3, 8, kvCacheTargetPercent=50, triggers=[average]))
        scale(found.view("edit"), between(3, 8, kvCacheTargetPercent=50), **loading(45))
        scale(found.view("names"), between(1, 4, triggers=[demand(2)]))
        yield found
    operator.stop(cluster)


def loading(seconds: int) -> dict[str, Any]:
    """Engines that take so long to load."""
    return {"engine": {"env": [{"name": "SIMULATOR_LOAD_SECONDS", "value": str(seconds)}]}}


def fill_caches(fleet: Fleet, view: ServiceView) -> None:
    """Have the caches of the pods that are there be 80 percent full, all from one scrape on: by several, KEDA would see
    some of them before the others."""
    series = [{"engine": "0", **engine_labels(view, pod["metadata"]["name"])} for pod in view.pods()]
    sets = [",".join(f'{name}="{value}"' for name, value in labels.items()) for labels in series]
    text = "".join(f"vllm:kv_cache_usage_perc{{{labels}}} 0.8\n" for labels in sets)
    export(fleet.cluster, fleet.pages, f"{view.namespace}-cache", lambda: text)


def strictly(text: str) -> Any:
    """Parse JSON as every tool but Python's does: NaN and Infinity are none."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def documents(view: ServiceView) -> tuple[Any, Any]:
    """Status and memory of a service, read strictly."""
    status = view.cluster.kubectl("get", "sis", view.name, "-n", view.namespace, "-o", "json").stdout
    return strictly(status)["status"], strictly(view.get("configmap", f"{view.name}-memory")["data"]["memory.json"])


def test_c24_shares_of_the_cache_add_up_and_grow_the_fleet_to_where_it_stays(fleet: Fleet) -> None:
    """Three times 80 percent with a target of 50 are five replicas; averaged once more they would be one."""
    view = fleet.view("c24")
    serve(view, 3)
    wait(view, "AutoscalingReady", "True", "Scaling")
    fill_caches(fleet, view)
    serve(view, 5)
    time.sleep(SEEN_BY_THE_HPA_S)
    assert replicas(view) == 5
    assert view.condition("Admitted") == ("True", "AdmittedWithWarnings")
    view.says("Admitted", "spec.autoscaling.triggers[queue]: the query is an average")


def test_triggers_keep_their_places_since_the_hpa_knows_their_metrics_by_them(fleet: Fleet) -> None:
    view = fleet.view("c24")
    wait(view, "AutoscalingReady", "True", "Scaling")
    served = view.get("scaledobject")
    names = [one["name"] for one in served["spec"]["triggers"]]
    assert names == ["in-flight", "waiting", "kv-cache", "queue"]
    metrics = [f"s{number}-prometheus" for number in range(4)]
    assert served["status"]["externalMetricNames"] == metrics
    assert sorted(one["external"]["metric"]["name"] for one in hpa(view)["spec"]["metrics"]) == metrics


def test_c22_data_ranks_draft_as_at_their_start_at_every_load_and_status_claims_no_choice(fleet: Fleet) -> None:
    """The simulator plays one rank; that it gets no table, and takes none, is what keeps real ones alike."""
    view, cluster = fleet.view("c22"), fleet.cluster
    wait(view, "Ready", "True")
    view.says("Admitted", "table ignored with data > 1, K fixed at 3")
    wait(view, "ScheduleApplied", "True", "NothingToChoose")
    with Load(cluster, view.namespace, view.name, concurrency=48, acceptance=0.1):
        cluster.wait_until("measured acceptance", lambda: "acceptanceLength" in view.status()["tuning"])
        assert tokens_a_draft(view) == 3.0
    status = view.status()
    assert (status["tuning"]["schedule"], status["tuning"]["speculativeTokens"]) == ("1-256:3", 3)
    assert [one["kind"] for one in status["history"] if one["kind"] == "Schedule"] == []


def test_c22_a_table_that_the_engine_would_drop_in_silence_is_refused(fleet: Fleet) -> None:
    view = fleet.view("c22")
    wait(view, "Ready", "True")
    before = view.get("deployment")["spec"]["template"]
    rows = [{"first": 1, "last": 8, "speculativeTokens": 3}, {"first": 9, "last": 64, "speculativeTokens": 1}]
    scale(view, None, **RANKS | {"speculation": MTP | {"tuning": {"mode": "Fixed", "schedule": rows}}})
    wait(view, "Stalled", "True")
    view.says("Stalled", "leave schedule out")
    assert view.get("deployment")["spec"]["template"] == before
    scale(view, None, **RANKS)
    wait(view, "Ready", "True")


def tokens_a_draft(view: ServiceView) -> float:
    """Of all drafts that the first engine has made."""
    with urllib.request.urlopen(f"http://{view.ready_addresses()[0]}:8000/metrics", timeout=TIMEOUT_S) as answer:
        text = answer.read().decode()
    pattern = r"^vllm:spec_decode_num_{}_total\{{.*\}} (\S+)$"
    drafts, tokens = (
        sum(map(float, re.findall(pattern.format(name), text, re.M))) for name in ("drafts", "draft_tokens")
    )
    return tokens / drafts


def test_c28_a_pod_that_finds_no_gpu_keeps_nobody_from_scaling_down(fleet: Fleet) -> None:
    view, cluster = fleet.view("c28"), fleet.cluster
    serve(view, 6)
    wait(view, "CapacityLimited", "True", "NoFreeGPU")
    view.says("CapacityLimited", "6 of 8 engines serve")
    wait(view, "AutoscalingReady", "True", "Scaling")
    wait(view, "MetricsAvailable", "True")
    fleet.load["c28"] = 0
    wait_replicas(view, 7)
    assert sum(pod["status"]["phase"] == "Pending" for pod in view.pods()) >= 1, "one still waits for a GPU"
    few = {"minReplicas": 4, "maxReplicas": 5, "triggers": [trigger("load", "sum(c28_load)")]}
    scale(view, few, resources={"gpus": 1, "gpuResource": SIX})
    serve(view, 5)
    cluster.wait_until("end of the condition", lambda: view.condition("CapacityLimited") == ("", ""))


@pytest.mark.failure(
    "Prometheus",
    "NaN or infinity in samples",
    k="decided without them",
    replicas="kept",
    guard="adapters/prometheus.py:finite",
)
def test_c19_a_ratio_without_an_answer_and_engines_that_export_nan_cost_no_replica_and_leave_status_readable(
    fleet: Fleet,
) -> None:
    view, cluster = fleet.view("c19"), fleet.cluster
    serve(view, 3)
    cluster.wait_until("none of none drafts accepted", lambda: values(cluster, RATIO + DRAFTS) == ["NaN"])
    wait(view, "AutoscalingReady", "False", "Fallback")
    with Numbers(cluster, view.namespace, view.name) as numbers:
        fleet.load["c19"] = 0
        labels = engine_labels(view, view.pods()[0]["metadata"]["name"])
        export(cluster, fleet.pages, "c19-nan", lambda: BROKEN, **labels)
        for value in ("NaN", "+Inf"):
            query = f'{{__name__=~"vllm:num_requests_.*",namespace="c19",engine="1"}} == {value}'
            if value == "NaN":  # which equals nothing
                query = 'vllm:num_requests_running{namespace="c19",engine="1"}'
            cluster.wait_until(value, lambda: value in values(cluster, query))  # noqa: B023
        time.sleep(GONE_BY_NOW_S)
        assert set(numbers.seen) == {3}
        status, _ = documents(view)
        assert "acceptanceLength" not in status["tuning"], "not known is neither 0 nor 1"
        wait(view, "MetricsAvailable", "True")
        wait(view, "Ready", "True")
        fleet.pages.texts["/c19-nan"] = str
        # Two, and not none: within a minute after 1 became 3 the HPA's step of one a minute counts from 1.
        fleet.load["c19"] = 2
        guarded = trigger("acceptance", f"{RATIO}clamp_min({DRAFTS}, 1)", 2)
        load = trigger("load", "sum(c19_load)")
        scale(view, {"minReplicas": 1, "maxReplicas": 6, "triggers": [load, guarded]})
        wait(view, "AutoscalingReady", "True", "Scaling")
        wait_replicas(view, 2)
        assert [one for one in numbers.seen if one not in (3, 2)] == []
    assert "Traceback" not in operator.log(cluster)


BROKEN = """
vllm:num_requests_running{engine="1"} NaN
vllm:num_requests_waiting{engine="1"} +Inf
vllm:kv_cache_usage_perc{engine="1"} NaN
vllm:generation_tokens_total{engine="1"} NaN
vllm:spec_decode_num_drafts_total{engine="1"} +Inf
vllm:spec_decode_num_draft_tokens_total{engine="1"} NaN
vllm:spec_decode_num_accepted_tokens_total{engine="1"} NaN
"""


def test_a_target_that_is_edited_while_replicas_start_takes_none_back_and_remakes_nothing(fleet: Fleet) -> None:
    view, cluster = fleet.view("edit"), fleet.cluster
    serve(view, 3)
    wait(view, "AutoscalingReady", "True", "Scaling")
    before = uids(view)
    with Numbers(cluster, view.namespace, view.name) as numbers:
        fill_caches(fleet, view)
        wait_replicas(view, 5)
        for percent, wanted in ((35, 7), (50, 7)):
            assert len(view.ready_addresses()) < replicas(view), "some still load"
            scale(view, between(3, 8, kvCacheTargetPercent=percent), **loading(45))
            cluster.wait_until("target of the HPA", lambda: str(percent) in cache_targets(view))  # noqa: B023
            wait_replicas(view, wanted)
        serve(view, 7)
        falls = [(before, after) for before, after in pairwise(numbers.seen) if after < before]
        assert falls == []
        assert set(numbers.seen) == {3, 5, 7}
    assert uids(view) == before


def cache_targets(view: ServiceView) -> list[str]:
    """What the HPA compares the use of the cache with."""
    metrics = hpa(view)["spec"]["metrics"]
    return [one["external"]["target"]["averageValue"] for one in metrics if one["external"]["metric"]["name"][1] == "2"]


def test_a_name_of_54_characters_scales_and_one_of_55_is_refused_with_the_reason(fleet: Fleet) -> None:
    """KEDA names its HPA keda-hpa-<name> and labels it with the name: 63 characters is the limit for both."""
    view, cluster = fleet.view("names"), fleet.cluster
    assert len(LONGEST) == 54
    serve(view, 2)
    wait(view, "AutoscalingReady", "True", "Scaling")
    assert hpa(view)["metadata"]["name"] == view.get("scaledobject")["status"]["hpaName"]
    longer = ServiceView(cluster, view.namespace, LONGEST + "x")
    refused = cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(manifest(longer, between(1, 4))), check=False)
    assert refused.returncode != 0
    assert "metadata.name must be 54 characters or less" in refused.stderr
