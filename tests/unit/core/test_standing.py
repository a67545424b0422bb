"""When a decision stands after a glance, and what makes a service be judged again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outrider.core.acceptance import AcceptanceState
from outrider.core.capacity import UNKNOWN
from outrider.core.controller import Outcome
from outrider.core.decision import Change, Proposal
from outrider.core.exploration import REST_S
from outrider.core.glance import Glance
from outrider.core.observation import Observation
from outrider.core.schedule import constant
from outrider.core.series import Missing
from outrider.core.standing import Standing, moved, standing
from outrider.core.state import ControllerState, Probe, Trial

from .builders import GONE, config, observation

NOW_S = 1000.0
ENGINES = frozenset({("u-a", 0)})
K = constant(3, 256)
CONFIG = config(tpot_objective_s=0.02, ttft_objective_s=None)
WINDOW = replace(observation(since=NOW_S - 40.0, until=NOW_S, steps=4000.0), prompt_tokens=40_000.0)
"""100 steps a second of 32 requests with K 3: 8,736 tokens a second in all."""


def outcome(hold: str | None = "DeadBand", able: int = 64, **state: Any) -> Outcome:
    proposal = Proposal(K) if hold is None else Proposal(K).hold(K, hold, "as it is")
    capacity = replace(UNKNOWN, requests_per_replica=able, limited_by="TPOT")
    return Outcome(ControllerState(K, **{"target": 64, **state}), proposal, capacity)


def stands(found: Outcome | None = None, window: Observation | Missing = WINDOW) -> Standing | None:
    return standing(CONFIG, outcome() if found is None else found, window, ENGINES, NOW_S)


def at(seconds: float, **changes: Any) -> Glance:
    """A look so many seconds after an earlier one at a service that does as it did; ``changes`` are factors."""
    by = {"tokens": 1.0, "accepted": 1.0, "prompt": 1.0, "tpot": 1.0, "running": 1.0, "drafts": 1.0, **changes}
    accepted = {("accepted", str(at)): share * by["accepted"] for at, share in enumerate((0.75, 0.56, 0.42))}
    drafts = 3200.0 * seconds * by["drafts"]
    requests = 16.0 * seconds
    counts = {
        ("drafts", ""): drafts,
        ("tokens", ""): WINDOW.generation_tokens / 40.0 * seconds * by["tokens"],
        ("prompt", ""): 1000.0 * seconds * by["prompt"],
        ("tpot sum", ""): requests * (WINDOW.tpot.mean or 0.0) * by["tpot"],
        ("tpot count", ""): requests,
        ("preemptions", ""): by.get("preemptions", 0.0),
        **{key: drafts * share for key, share in accepted.items()},
    }
    return Glance(NOW_S + seconds, 32.0 * by["running"], by.get("waiting", 0.0), counts, by.get("generation", 1))


def why(
    seconds: float = 15.0, *, now_s: float = NOW_S + 15.0, last: Standing | None = None, **changes: Any
) -> str | None:
    last = last or stands()
    assert last is not None
    return moved(last, at(0.0), at(seconds, **changes), CONFIG, ENGINES, now_s)


def test_a_service_that_does_as_it_did_is_left_alone() -> None:
    assert why() is None


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"tokens": 0.85, "running": 0.9}, id="a little less load"),
        pytest.param({"tokens": 1.15, "running": 1.1}, id="a little more load"),
        pytest.param({"tpot": 1.07}, id="a little slower"),
        pytest.param({"accepted": 0.95}, id="accepted a little less"),
        pytest.param({"waiting": 1.0}, id="one request waits for the next step"),
    ],
)
def test_noise_moves_nothing(changes: dict[str, float]) -> None:
    assert why(**changes) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"running": 1.3}, "requests in flight 32.0→41.6", id="load jumps"),
        pytest.param({"running": 0.5}, "requests in flight 32.0→16.0", id="load falls"),
        pytest.param({"waiting": 2.0}, "requests in flight 32.0→34.0", id="a queue begins"),
        pytest.param({"tokens": 0.0}, "tokens a second moved", id="a stall: work is there, and nothing comes"),
        pytest.param({"tokens": 0.7}, "tokens a second moved", id="steps got slow"),
        pytest.param({"prompt": 1.5}, "prompt tokens a second moved", id="longer prompts"),
        pytest.param({"tpot": 1.2}, "mean TPOT moved", id="an objective comes near"),
        pytest.param({"accepted": 0.0}, "acceptance moved", id="a collapse"),
        pytest.param({"accepted": 0.9}, "acceptance moved", id="acceptance falls"),
        pytest.param({"drafts": 0.0}, "acceptance moved", id="no draft is made any more"),
        pytest.param({"preemptions": 1.0}, "requests are preempted", id="the cache is full"),
        pytest.param({"generation": 0}, "an engine holds another schedule", id="an engine forgot its schedule"),
    ],
)
def test_what_moves_by_more_than_its_band_is_judged_in_the_same_pass(changes: dict[str, float], reason: str) -> None:
    assert why(**changes) == reason


def test_a_load_that_needs_another_replica_is_judged_however_small_the_step() -> None:
    last = stands(outcome(target=32))
    assert why(running=1.04, last=last) == "33.3 requests in flight need other replicas"


def test_another_spec_another_engine_and_a_restart_of_one_are_judged() -> None:
    last = stands()
    assert last is not None
    for own, engines in (
        (replace(CONFIG, min_speculative_tokens=1), ENGINES),
        (CONFIG, ENGINES | {("u-b", 0)}),
        (CONFIG, frozenset({("u-a", 1)})),
    ):
        assert moved(last, at(0.0), at(15.0), own, engines, NOW_S + 15.0) == "its resource or its engines changed"


def test_looks_of_the_same_second_are_not_compared() -> None:
    assert why(1.0, tokens=3.0) is None
    assert why(0.0) is None


def test_counters_that_begin_again_are_judged() -> None:
    assert why(15.0, tokens=-0.1) == "counters began again, or nothing was heard of its engines"


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({"probed_s": NOW_S - REST_S + 10.0}, id="the rest between two looks"),
        pytest.param({"jumped_s": NOW_S - 50.0}, id="settling after a jump"),
        pytest.param({"target_changed_s": NOW_S - 110.0}, id="the pause between two targets"),
        pytest.param({"drafts_seen_s": NOW_S - 290.0}, id="a while without drafts"),
    ],
)
def test_a_wait_that_ends_is_not_slept_through(state: dict[str, Any]) -> None:
    last = stands(outcome(**state))
    assert why(now_s=NOW_S + 9.0, last=last) is None
    assert why(now_s=NOW_S + 10.0, last=last) == "a wait is over"


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(outcome("Verifying"), id="a hold that waits"),
        pytest.param(outcome("AcceptanceUnclear"), id="unclear acceptance"),
        pytest.param(outcome("InsufficientData"), id="too little is known"),
        pytest.param(outcome("AcceptanceCollapsed"), id="a collapse"),
        pytest.param(replace(outcome(), changes=(Change(NOW_S, "Target", "1", "2", "why"),)), id="a change"),
        pytest.param(outcome(trial=Trial(K, NOW_S, 100.0, 0.01, 32.0, 0.0)), id="a change on trial"),
        pytest.param(outcome(probe=Probe(K, NOW_S)), id="a look at another K"),
        pytest.param(outcome(acceptance=AcceptanceState(jumped=True)), id="a jump"),
        pytest.param(outcome(able=40), id="a target that is to fall"),
    ],
)
def test_what_waits_for_something_does_not_stand(found: Outcome) -> None:
    assert stands(found) is None


@pytest.mark.parametrize(
    "window",
    [
        pytest.param(GONE, id="no metrics"),
        pytest.param(replace(WINDOW, left_out=(GONE,)), id="an engine that cannot be read"),
        pytest.param(observation(until=NOW_S, waiting=8.0), id="requests that wait"),
        pytest.param(observation(until=NOW_S, tpot_s=0.05), id="a missed objective"),
    ],
)
def test_what_is_amiss_does_not_stand(window: Observation | Missing) -> None:
    assert stands(window=window) is None


@pytest.mark.parametrize("hold", [None, "DeadBand", "Idle"])
def test_what_rests_stands(hold: str | None) -> None:
    assert stands(outcome(hold)) is not None
