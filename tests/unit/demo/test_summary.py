"""The summary: its promised keys, and what makes a run fail."""

from __future__ import annotations

import json
from typing import Any

import pytest

from demo.scenario import SECOND_SERVICE, SERVICE
from demo.summary import comparison, seconds_from_drop, summarize
from tests.unit.demo.builders import arms, change, facts, live

PROMISED = {
    "engine_pods_replaced_by_tuning": 0,
    "schedule_changes": 2,
    "ack_ms_p50": 30.0,
    "ack_ms_max": 30.0,
    "seconds_from_drop_to_change": 12.0,
    "target_patches": 1,
    "scaledobject_uid_constant": True,
    "hpa_uid_constant": True,
    "replicas_min": 1,
    "replicas_max": 3,
    "replicas_end": 2,
    "generation_constant": True,
}


def test_a_run_that_shows_everything_passes() -> None:
    document = summarize(live(), arms(), {"total": 400.0})
    assert document["passed"], document["missed"]
    assert {key: document[key] for key in PROMISED} == PROMISED
    assert json.loads(json.dumps(document)) == document, "the file must hold what was computed"


def test_the_arms_are_named_and_ranked() -> None:
    found = summarize(live(), arms(), {})["arms"]
    assert found["outrider"] == {
        "tokens_per_second": 1000.0,
        "tpot_attainment_percent": 90.0,
        "replica_seconds": 600.0,
        "tokens_within_objective_per_replica_second": 450.0,
    }
    assert found["best_fixed"]["speculative_tokens"] == 2
    assert found["worst_fixed"]["speculative_tokens"] == 5
    assert found["fixed_0"]["target"] == 6


def two_generations() -> dict[str, Any]:
    touched = facts()
    touched.generations.add(2)
    return {SERVICE: touched, SECOND_SERVICE: facts(SECOND_SERVICE, (1,), (32,))}


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        pytest.param({"changes": [change(140.0)]}, "at least twice", id="one change alone"),
        pytest.param(
            {"changes": [change(20.0, ack_s=None), change(140.0)]}, "acknowledged", id="a pod that never heard of it"
        ),
        pytest.param({"changes": [change(20.0), change(50.0)]}, "within 60 s", id="no change after the drop"),
        pytest.param({"changes": [change(20.0), change(190.0)]}, "within 60 s", id="a change too late"),
        pytest.param(
            {"changes": [change(20.0), change(140.0, counters_show_k=False)]}, "within 60 s", id="counters disagree"
        ),
        pytest.param({"facts": {SERVICE: facts(targets=(32,))}}, "target must be patched", id="target never moved"),
        pytest.param({"facts": {SERVICE: facts(replicas=(2,))}}, "replicas must move", id="replicas never moved"),
        pytest.param({"facts": {SERVICE: facts(replicas=(1, 3))}}, "on their way down", id="replicas stay up"),
        pytest.param({"facts": two_generations()}, "no spec", id="somebody wrote the spec"),
    ],
)
def test_what_was_not_seen_is_said(changes: dict[str, Any], missed: str) -> None:
    document = summarize(live(**changes), arms(), {})
    assert not document["passed"]
    assert any(missed in sentence for sentence in document["missed"]), document["missed"]


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        pytest.param([], None, id="none at all"),
        pytest.param([change(90.0)], None, id="before the drop"),
        pytest.param([change(110.0), change(150.0)], 10.0, id="the first one counts"),
        pytest.param([change(110.0, k_drafted={"a": "1 → 1"}), change(150.0)], 50.0, id="the first that changes K"),
        pytest.param([change(110.0, counters_show_k=None), change(150.0)], 50.0, id="superseded before it was seen"),
    ],
)
def test_seconds_from_the_drop(changes: list[Any], seconds: float | None) -> None:
    assert seconds_from_drop(changes, 100.0) == seconds


def test_changes_of_the_second_service_are_listed_but_not_counted() -> None:
    other = change(60.0, service=SECOND_SERVICE)
    document = summarize(live(changes=[change(20.0), other, change(140.0)]), arms(), {})
    assert document["schedule_changes"] == 2
    assert len(document["changes"]) == 3


@pytest.mark.parametrize(
    ("best", "words"),
    [
        pytest.param(
            {"replica_seconds": 750.0, "tpot_attainment_percent": 97.5},
            "25 % cheaper (replica-seconds) and with 2.5 percentage points more of the requests",
            id="the best fixed K won",
        ),
        pytest.param(
            {"replica_seconds": 1500.0, "tpot_attainment_percent": 90.0},
            "50 % dearer (replica-seconds) and with 5.0 percentage points fewer of the requests",
            id="it lost",
        ),
        pytest.param(
            {"replica_seconds": 1000.0, "tpot_attainment_percent": 95.0},
            "at the same price (replica-seconds) and with as many of the requests",
            id="neither",
        ),
    ],
)
def test_the_comparison_says_who_was_better_in_what(best: dict[str, Any], words: str) -> None:
    ours = {"replica_seconds": 1000.0, "tpot_attainment_percent": 95.0}
    arms = {
        "best_fixed": {"speculative_tokens": 1, "target": 21} | best,
        "outrider_virtual": ours,
        "outrider": ours | {"tpot_attainment_percent": 94.9},
    }
    hindsight, beside, asked = comparison(arms, 95)
    assert "in hindsight" in hindsight
    assert words in beside
    assert "95 % of its requests" in asked
    assert "Outrider, live 94.9 %, missed; Outrider in virtual time 95.0 %, reached;" in asked
