"""``outrider explain``: sentences from status, memory and metrics, and from what is left where one is missing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outrider.cli.explaining import Evidence, explain
from outrider.cli.seen import moment_s, see
from tests.unit.cli.conftest import Ask
from tests.unit.cli.fake_cluster import CANDIDATE, FakeCluster, busy, memory_map, service

MEMORY = "/api/v1/namespaces/ml/configmaps/chat-memory"
HPA = "/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/keda-hpa-chat"
SCALED = "/apis/keda.sh/v1alpha1/namespaces/ml/scaledobjects/chat"


def cluster(changes: dict[str, Any] | None = None) -> FakeCluster:
    found = busy(FakeCluster(service(changes=changes)))
    found.objects[MEMORY] = memory_map()
    return found


def test_why_this_k_and_why_so_many_replicas(ask: Ask) -> None:
    result = ask(cluster(), "explain", "chat", "--prometheus", "STORE")
    assert result.exit_code == 0, result.output
    for said in (
        "Ready. 3 of 3 replicas ready, 43 requests in flight.",
        # 9 of 10 requests are counted within 40 ms, half way through the bucket from 30 to 50 ms.
        "The objective is missed: 90 % of the requests of the last minute took 40 ms a token or less, 95 % are asked",
        "The schedule is K 3 up to batch 24, 1 beyond (generation 17; 3/3 engines hold it).",
        "Drafts are kept up to their first, second, … token with 70 %, 43 %, 26 %",
        "K 5 is barred at batch 10 to 30",
        "2 times by now",
        "What the operator expects of each K at batch 14",
        "From batch 25 on the engines draft 1 by themselves.",
        "43 requests in flight over 20 a replica need 3 replicas.",
        "Limited by TPOT. A larger spec.objectives.tpotMilliseconds",
        "schedule 1-256:2 → 1-24:3 25-256:1: at batch 14 K 2→3: 8 % more",
    ):
        assert said in result.stdout
    assert "What could not be looked at" not in result.stdout


def test_a_candidate_is_explained_with_the_trials_before_it(ask: Ask) -> None:
    result = ask(cluster({"status.revisions": CANDIDATE}), "explain", "chat", "--prometheus", "STORE")
    assert result.exit_code == 0, result.output
    for said in (
        "Which revision",
        "The engines have revision 0f3c1d7a22.",
        "The spec asks for 9be24c1177: running for ",
        "It must be better than the stable one",
        "Last found: the candidate's boot 2 was heard in 12 of 40 windows",
        "77aa01bb33 beside 0f3c1d7a22 was withdrawn: its engine crashed 2 times.",
    ):
        assert said in " ".join(result.stdout.split())


def five_trials() -> dict[str, Any]:
    """Revisions of a service on its sixth candidate."""
    outcomes = ("Withdrawn", "Promoted", "Inconclusive", "Replaced", "Reverted")
    past = [
        {
            "revision": f"{number}{number}aa01bb33",
            "replaces": "0f3c1d7a22",
            "outcome": outcome,
            "time": f"2027-01-1{4 - number}T08:00:00Z",
            "reason": f"reason {number}",
        }
        for number, outcome in enumerate(outcomes)
    ]
    return {**CANDIDATE, "history": past}


def test_both_revisions_the_figures_the_verdict_and_five_trials_before_stand_there_in_so_many_words() -> None:
    now_s = moment_s("2027-01-15T08:00:00Z")
    sections = explain(Evidence(seen=see(service(changes={"status.revisions": five_trials()})), now_s=now_s))
    (told,) = [one.sentences for one in sections if one.title == "Which revision"]
    assert list(told) == [
        "The engines have revision 0f3c1d7a22.",
        "The spec asks for 9be24c1177: running for 1h; token goodput 3.1 % beyond the stable engines' (-1.0 to 7.2 %)."
        " It must be better than the stable one (spec.rollout).",
        "Last found: the candidate's boot 2 was heard in 12 of 40 windows at like load.",
        "1d ago, 00aa01bb33 beside 0f3c1d7a22 was withdrawn: reason 0.",
        "2d ago, 11aa01bb33 beside 0f3c1d7a22 was promoted: reason 1.",
        "3d ago, 22aa01bb33 beside 0f3c1d7a22 was inconclusive: reason 2.",
        "4d ago, 33aa01bb33 beside 0f3c1d7a22 was replaced: reason 3.",
        "5d ago, 44aa01bb33 beside 0f3c1d7a22 was reverted: reason 4.",
    ]


def test_the_document_has_revisions_as_status_has_them(ask: Ask) -> None:
    revisions = five_trials()
    result = ask(cluster({"status.revisions": revisions}), "explain", "chat", "-o", "json")
    assert json.loads(result.stdout)["revisions"] == revisions
    before = ask(cluster(), "explain", "chat", "-o", "json")
    assert json.loads(before.stdout)["revisions"] is None


@pytest.mark.parametrize("reason", ["score 0.71 beside a baseline of 0.72", "12 of 40 windows were heard"])
def test_what_a_candidate_s_answers_were_worth_is_told_once(ask: Ask, reason: str) -> None:
    figures = "score 0.71 beside a baseline of 0.72"
    found = {**CANDIDATE, "candidate": {**CANDIDATE["candidate"], "quality": figures, "reason": reason}}
    said = " ".join(
        ask(cluster({"status.revisions": found}), "explain", "chat", "--prometheus", "STORE").stdout.split()
    )
    assert f"Its answers passed: {figures}." in said
    assert said.count(figures) == 1
    assert (f"Last found: {reason}." in said) == (reason != figures)


def test_engines_that_must_be_restarted_for_another_k_are_told_of(ask: Ask) -> None:
    rolled = {"status.tuning.delivery": "Rollout", "status.tuning.rollouts": 1}
    result = ask(cluster(rolled), "explain", "chat", "--prometheus", "STORE")
    assert "another K is rolled out when it earns a restart, 1 time in the last 24 hours." in " ".join(
        result.stdout.split()
    )


def test_expectations_are_those_of_the_operators_own_law(ask: Ask) -> None:
    result = ask(cluster(), "explain", "chat", "--prometheus", "STORE", "-o", "json")
    document = json.loads(result.stdout)
    expected = {row["num_speculative_tokens"]: row for row in document["expected"]}
    assert document["batch"] == 14
    assert set(expected) == {0, 1, 2, 3, 5}
    assert expected[0]["tokens_per_step"] == 1
    assert expected[3]["tokens_per_step"] == pytest.approx(1 + 0.7 + 0.43 + 0.26, abs=0.01)
    # The memory holds 0.010 + 0.0001·14·4 + 0.0012·3 s for a step of 14 requests at K 3.
    assert expected[3]["tpot_s"] == pytest.approx(0.0192 / 2.39, rel=0.05)
    assert expected[3]["measured"]
    assert not expected[2]["measured"]


def test_without_memory_and_store_the_rest_is_explained_and_the_gaps_are_named(ask: Ask) -> None:
    bare = FakeCluster(service())
    bare.refused[MEMORY] = 403
    bare.refused[HPA] = 403
    result = ask(bare, "explain", "chat")
    assert result.exit_code == 0, result.output
    before, gaps = result.stdout.split("What could not be looked at")
    assert "The schedule is K 3 up to batch 24, 1 beyond" in before
    assert "The load of the last window needs 3 replicas." in before
    assert "the operator's memory cannot be read" in gaps
    assert "the HPA cannot be read" in gaps
    assert "no metrics store is known: name it with --prometheus or in OUTRIDER_PROMETHEUS_URL" in gaps


def test_a_store_that_does_not_answer_is_a_gap_and_no_fault(ask: Ask) -> None:
    result = ask(cluster(), "explain", "chat", "--prometheus", "http://127.0.0.1:9")
    assert result.exit_code == 0
    assert "Prometheus at http://127.0.0.1:9: no connection" in result.stdout


@pytest.mark.parametrize("text", ["", "{", '{"version": 99}', '{"version": 1}'])
def test_a_memory_that_cannot_be_used_is_a_gap(ask: Ask, text: str) -> None:
    damaged = cluster()
    damaged.objects[MEMORY] = {"data": {"memory.json": text}}
    result = ask(damaged, "explain", "chat")
    assert result.exit_code == 0
    assert "the operator's memory cannot be used" in result.stdout


def test_the_store_that_keda_was_told_of_is_asked(ask: Ask) -> None:
    told = cluster()
    told.objects[SCALED] = {"spec": {"triggers": [{"metadata": {"serverAddress": "http://127.0.0.1:9"}}]}}
    result = ask(told, "explain", "chat")
    assert "Prometheus at http://127.0.0.1:9" in result.stdout


def test_a_store_that_only_the_cluster_reaches_is_asked_through_the_api_server(ask: Ask) -> None:
    told = cluster()
    address = "http://prometheus-operated.monitoring.svc:9090"
    told.objects[SCALED] = {"spec": {"triggers": [{"metadata": {"serverAddress": address}}]}}
    result = ask(told, "explain", "chat")
    assert "43 requests in flight" in result.stdout
    service_of = "/api/v1/namespaces/monitoring/services/http:prometheus-operated:9090/proxy/api/v1/query"
    assert service_of in told.seen


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status.tuning.mode": "Observe"}, "set spec.speculation.tuning.mode: Adaptive to let it act"),
        ({"status.tuning.mode": "Fixed"}, "the schedule is that of spec.speculation.tuning"),
        ({"status.tuning.mode": "Off"}, "the engines run without a drafter"),
        ({"status.tuning.mode": "Paused"}, "everything stays as it is"),
        ({"spec.autoscaling.maxReplicas": 2}, "spec.autoscaling.maxReplicas holds it at 2"),
        ({"spec.autoscaling.minReplicas": 5}, "spec.autoscaling.minReplicas keeps 5"),
        ({"status.effective.replicas": "external"}, "an autoscaler of your own"),
        ({"status.effective.replicas": "3"}, "The number is fixed at 3"),
        ({"status.capacity.limitedBy": "KVCache"}, "spec.model.kvCacheDtype: fp8"),
        ({"status.capacity.limitedBy": "BatchSize"}, "spec.engine.maxNumSeqs"),
        ({"spec.objectives": None}, "It has no objectives"),
        ({"status": None}, "The operator has not seen this service yet"),
    ],
)
def test_what_would_change_it_is_named_by_its_field(ask: Ask, changes: dict[str, Any], said: str) -> None:
    result = ask(cluster(changes), "explain", "chat", "--prometheus", "STORE")
    assert result.exit_code == 0, result.output
    assert said in result.stdout


def test_an_hpa_that_is_limited_is_told_in_its_own_words(ask: Ask) -> None:
    limited = cluster()
    condition = {"type": "ScalingLimited", "status": "True", "message": "the desired count is over the maximum"}
    limited.objects[HPA] = {"status": {"currentReplicas": 1, "desiredReplicas": 6, "conditions": [condition]}}
    result = ask(limited, "explain", "chat")
    assert "The HPA sees 1 replica and asks for 6." in result.stdout
    assert "ScalingLimited is True: the desired count is over the maximum" in result.stdout


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        (("AbleToScale", "True"), False),
        (("AbleToScale", "False"), True),
        (("ScalingActive", "False"), True),
        (("ScalingLimited", "False"), False),
        (("ScaledToZero", "False"), False),
        (("ScaledToZero", "True"), False),
        (("SomethingNew", "False"), False),
    ],
)
def test_only_conditions_of_the_hpa_that_tell_of_a_trouble_are_told(
    ask: Ask, condition: tuple[str, str], told: bool
) -> None:
    scaled = cluster()
    body = {"type": condition[0], "status": condition[1], "message": "so it is"}
    scaled.objects[HPA] = {"status": {"currentReplicas": 1, "desiredReplicas": 1, "conditions": [body]}}
    assert ("so it is" in ask(scaled, "explain", "chat").stdout) == told
