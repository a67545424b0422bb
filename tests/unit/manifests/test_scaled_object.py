"""The ScaledObject and its queries."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.manifests import promql, queries
from outrider.manifests.scaled_object import waiting_target, warnings
from outrider.manifests.store_access import StoreAccess, with_access
from tests.unit.api.bodies import resource
from tests.unit.manifests.builders import made


def spec(changes: dict[str, Any] | None = None, target: int = 40) -> dict[str, Any]:
    """Its spec."""
    found: dict[str, Any] = made(changes, target)["ScaledObject"]["spec"]
    return found


def test_triggers_keep_their_order_since_metrics_are_named_by_it() -> None:
    assert [trigger["name"] for trigger in spec()["triggers"]] == ["in-flight", "waiting", "kv-cache"]


def test_all_triggers_are_sums_with_average_values_that_do_not_read_silence_as_zero() -> None:
    for trigger in spec()["triggers"]:
        assert trigger["metricType"] == "AverageValue"
        assert trigger["useCachedMetrics"] is True
        assert trigger["metadata"]["ignoreNullValues"] == "false"
        assert trigger["metadata"]["query"].startswith(("sum(", "(max(outrider_held_requests"))
        assert "avg(" not in trigger["metadata"]["query"]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        pytest.param(40, ["40", "5", "80"], id="a target of 40"),
        pytest.param(5, ["5", "1", "80"], id="a small one leaves at least one waiting"),
        pytest.param(256, ["256", "32", "80"], id="a large one"),
    ],
)
def test_thresholds_are_whole_numbers_in_strings(target: int, expected: list[str]) -> None:
    triggers = spec(target=target)["triggers"]
    assert [trigger["metadata"]["threshold"] for trigger in triggers] == expected
    assert waiting_target(target) >= 1


IDLE: dict[str, Any] = {
    "spec.autoscaling": {
        "minReplicas": 0,
        "maxReplicas": 4,
        "idle": {"wakeQuery": "sum(gateway_requests)"},
        "triggers": [{"name": "queue", "query": "sum(q)", "metricType": "AverageValue", "target": 2}],
    }
}


def test_the_trigger_that_wakes_comes_last_and_asks_for_one_replica_at_most() -> None:
    triggers = spec(IDLE)["triggers"]
    assert [trigger["name"] for trigger in triggers] == ["in-flight", "waiting", "kv-cache", "queue", "wake"]
    wake = triggers[-1]["metadata"]
    assert (wake["query"], wake["activationThreshold"], wake["ignoreNullValues"]) == (
        "sum(gateway_requests)",
        "0",
        "false",
    )
    assert int(wake["threshold"]) >= 10**9


def test_a_service_that_may_sleep_falls_asleep_by_its_own_clock_and_not_while_its_first_engine_loads() -> None:
    found = spec(IDLE | {"spec.startup": {"budgetSeconds": 2400}})
    assert (found["minReplicaCount"], found["cooldownPeriod"], found["initialCooldownPeriod"]) == (0, 300, 2400)
    later = {"spec.autoscaling": IDLE["spec.autoscaling"] | {"idle": {"afterSeconds": 0, "wakeQuery": "x"}}}
    assert spec(later)["cooldownPeriod"] == 0


def test_a_service_that_may_sleep_has_no_fallback_which_would_wake_it_for_ever() -> None:
    assert "fallback" not in spec(IDLE)
    assert "initialCooldownPeriod" not in spec()


DESIRED = {"spec.autoscaling": {"minReplicas": 2, "maxReplicas": 8, "scaleBy": "DesiredReplicas"}}


def test_scaling_by_desired_replicas_asks_the_operator_and_leaves_two_triggers_that_do_not() -> None:
    triggers = spec(DESIRED)["triggers"]
    assert [trigger["name"] for trigger in triggers] == ["desired-replicas", "waiting", "kv-cache"]
    assert (triggers[0]["metricType"], triggers[0]["metadata"]["threshold"]) == ("AverageValue", "1")
    assert triggers[0]["metadata"]["ignoreNullValues"] == "false"
    for trigger in triggers[1:]:
        assert "outrider_desired_replicas" not in trigger["metadata"]["query"]


@pytest.mark.parametrize("target", [1, 5, 40, 256])
def test_scaling_by_desired_replicas_no_target_ever_moves(target: int) -> None:
    assert spec(DESIRED, target=target) == spec(DESIRED, target=32)


def test_the_desired_replicas_are_found_whatever_a_scrape_makes_of_their_labels() -> None:
    assert queries.desired_replicas("ml", "chat") == (
        'max(outrider_desired_replicas{namespace="ml",service="chat",exported_namespace=""}'
        ' or outrider_desired_replicas{exported_namespace="ml",service="chat",exported_service=""}'
        ' or outrider_desired_replicas{exported_namespace="ml",exported_service="chat"})'
    )


def test_a_new_target_changes_thresholds_and_nothing_else() -> None:
    before, after = spec(target=40), spec(target=50)
    for trigger in (*before["triggers"], *after["triggers"]):
        trigger["metadata"].pop("threshold")
    assert before == after


def test_bounds_and_fallback() -> None:
    found = spec({"spec.autoscaling": {"minReplicas": 2, "maxReplicas": 8}})
    assert (found["minReplicaCount"], found["maxReplicaCount"]) == (2, 8)
    assert found["fallback"] == {"failureThreshold": 3, "replicas": 2, "behavior": "currentReplicasIfHigher"}
    assert found["advanced"]["restoreToOriginalReplicaCount"] is False


def test_down_by_one_pod_a_minute_after_a_look_back_up_without_delay() -> None:
    found = spec({"spec.autoscaling.scaleDownStabilizationSeconds": 900})
    behavior = found["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"]["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 60}]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 900
    assert behavior["scaleUp"]["stabilizationWindowSeconds"] == 0


def test_queries_in_full() -> None:
    labels = 'namespace="ml",serving_outrider_dev_service="chat",serving_outrider_dev_track="stable"}'
    engine = "namespace, pod, engine"
    assert queries.in_flight_requests("ml", "chat") == (
        f"sum(max by (__name__, {engine})"
        ' ({__name__=~"vllm:num_requests_running|vllm:num_requests_waiting",' + labels + "))"
    )
    assert queries.waiting_requests("ml", "chat") == (
        f"sum(max by ({engine})" + ' ({__name__="vllm:num_requests_waiting",' + labels + "))"
    )
    assert queries.kv_cache_percent("ml", "chat") == (
        "sum(max by (namespace, pod)"
        + ' ({__name__=~"vllm:kv_cache_usage_perc|vllm:gpu_cache_usage_perc",'
        + labels
        + ")) * 100"
    )


def test_the_main_trigger_sees_what_the_operator_holds_if_that_is_more_than_a_load_that_is_there() -> None:
    load, held = queries.in_flight_requests("ml", "chat"), queries.of_operator("outrider_held_requests", "ml", "chat")
    assert spec()["triggers"][0]["metadata"]["query"] == f"({held} > ({load} > 0)) or {load}"


def test_label_values_are_escaped() -> None:
    assert queries.escape('a"b\\c\nd') == 'a\\"b\\\\c\\nd'


OWN = {"name": "gateway", "query": "sum(gateway_queue)", "metricType": "AverageValue", "target": 20}


def test_triggers_of_the_users_own_come_after_ours_in_their_order() -> None:
    second = {"name": "a", "query": "max(backlog)", "metricType": "Value", "target": 5}
    found = spec({"spec.autoscaling.triggers": [OWN, second]})["triggers"]
    assert [trigger["name"] for trigger in found] == ["in-flight", "waiting", "kv-cache", "gateway", "a"]
    assert found[:3] == spec()["triggers"], "ours keep their metrics' names"
    assert [trigger["metricType"] for trigger in found[3:]] == ["AverageValue", "Value"]
    assert found[3]["metadata"] == {
        "serverAddress": found[0]["metadata"]["serverAddress"],
        "query": "sum(gateway_queue)",
        "threshold": "20",
        "ignoreNullValues": "false",
    }


def test_the_target_of_the_cache_is_the_users_when_given() -> None:
    assert spec({"spec.autoscaling.kvCacheTargetPercent": 65})["triggers"][2]["metadata"]["threshold"] == "65"


@pytest.mark.parametrize(
    ("changes", "warned"),
    [
        pytest.param({"query": "avg(vllm:num_requests_waiting)"}, True, id="an average"),
        pytest.param({"query": "avg(x)", "metricType": "Value"}, False, id="which Value takes as it is"),
        pytest.param({"query": "sum(x)"}, False, id="a sum"),
    ],
)
def test_c24_an_average_is_divided_twice(changes: dict[str, Any], warned: bool) -> None:
    one = resource({"spec.autoscaling.triggers": [OWN | changes]})
    found = warnings(one)
    assert [("divided twice" in text, "spec.autoscaling.triggers[gateway]" in text) for text in found] == (
        [(True, True)] if warned else []
    )
    off = resource({"spec.autoscaling": {"mode": "Off", "triggers": [OWN | changes]}})
    assert warnings(off) == []


@pytest.mark.parametrize(
    ("query", "average"),
    [
        ("avg(x)", True),
        ("  avg (x)", True),
        ("avg by (pod) (x)", True),
        ("avg without (pod) (x)", True),
        ("avg(sum by (pod) (x)) * 2", True),
        ("100 * (avg(x))", True),
        ("max(x) + avg(x)", True),
        ("sum(avg by (pod) (x))", False),
        ("sum by (pod) (avg by (pod, engine) (x))", False),
        ("sum by(pod)((avg(x)))", False),
        ("sum(rate(x[5m]))", False),
        ("sum(avg_over_time(x[5m]))", False),
        ("avg_over_time(x[5m])", False),
        ("sum(average)", False),
        ('sum(x{job="avg(y)"})', False),
        ('x{job="avg(y)"}', False),
        ("sum(x)) avg", False),
    ],
)
def test_whether_a_query_answers_with_an_average(query: str, average: bool) -> None:
    assert promql.is_average(query) is average


def test_what_keda_shows_the_store_goes_with_every_trigger_that_asks_it() -> None:
    plain = made({"spec.autoscaling.triggers": [OWN]})["ScaledObject"]
    plain["spec"]["triggers"].append({"type": "cron", "name": "night", "metadata": {"timezone": "UTC"}})
    access = StoreAccess("outrider-prometheus", ("basic", "tls"), (("X-Scope-OrgID", "ml"), ("X-From", "outrider")))
    *asking, other = with_access(plain, access)["spec"]["triggers"]
    assert [one["name"] for one in asking] == ["in-flight", "waiting", "kv-cache", "gateway"]
    for one in asking:
        assert one["authenticationRef"] == {"kind": "ClusterTriggerAuthentication", "name": "outrider-prometheus"}
        assert one["metadata"]["authModes"] == "basic,tls"
        assert one["metadata"]["customHeaders"] == "X-Scope-OrgID=ml,X-From=outrider"
    assert other == plain["spec"]["triggers"][-1]


@pytest.mark.parametrize(
    ("access", "added"),
    [
        pytest.param(StoreAccess(), set(), id="a store that is open"),
        pytest.param(StoreAccess(headers=(("X-Scope-OrgID", "ml"),)), {"customHeaders"}, id="a tenant alone"),
        pytest.param(StoreAccess("a"), set(), id="a reference that names its modes itself"),
        pytest.param(StoreAccess("a", ("bearer",)), {"authModes"}, id="a reference and its mode"),
    ],
)
def test_nothing_is_added_that_was_not_asked_for(access: StoreAccess, added: set[str]) -> None:
    before = made()["ScaledObject"]
    after = with_access(before, access)
    for one, other in zip(before["spec"]["triggers"], after["spec"]["triggers"], strict=True):
        assert other["metadata"].keys() - one["metadata"].keys() == added
        assert ("authenticationRef" in other) == (access.trigger_authentication is not None)
    assert {name: value for name, value in after["spec"].items() if name != "triggers"} == {
        name: value for name, value in before["spec"].items() if name != "triggers"
    }
