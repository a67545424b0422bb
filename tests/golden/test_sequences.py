"""Whole stretches of control as readable logs: a change of behaviour is a change of a log that somebody reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.core import memory
from tests.golden.plant import PERIOD_S, Plant, Scenario
from tests.unit.core.builders import config

HERE = Path(__file__).parent / "sequences"
Golden = Callable[[Path, str], None]


def step(before: float, after: float, at_s: float) -> Callable[[float], float]:
    return lambda now_s: before if now_s <= at_s else after


def always(value: float) -> Callable[[float], float]:
    return lambda _: value


SCENARIOS = {
    "steady": Scenario(batch=always(32.0), alpha=always(0.75)),
    "acceptance_drop": Scenario(batch=always(32.0), alpha=step(0.8, 0.35, 300.0)),
    "acceptance_recovers": Scenario(batch=always(32.0), alpha=lambda t: 0.1 if t <= 450.0 else 0.8, duration_s=1200.0),
    "load_spike": Scenario(batch=lambda t: 12.0 if t <= 240.0 or t > 420.0 else 150.0, alpha=always(0.7)),
    "switch_collapses": Scenario(
        batch=always(8.0), alpha=always(0.85), slowdown=lambda _t, k: 3.0 if k == 5 else 1.0, duration_s=900.0
    ),
    "metrics_lost": Scenario(
        batch=always(32.0), alpha=step(0.75, 0.3, 180.0), metrics=lambda t: not 180.0 < t <= 360.0
    ),
    "queue_builds": Scenario(
        batch=always(200.0), alpha=always(0.75), waiting=step(0.0, 120.0, 150.0), duration_s=450.0
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_sequence(name: str, golden: Golden) -> None:
    plant = Plant(config(), SCENARIOS[name]).play()
    golden(HERE / f"{name}.log", "\n".join(plant.log) + "\n")


def test_the_threshold_policy_follows_acceptance_alone(golden: Golden) -> None:
    scenario = Scenario(
        batch=always(32.0), alpha=lambda t: 0.95 if t <= 120 else 0.3 if t <= 240 else 0.95, duration_s=750.0
    )
    plant = Plant(config(policy="AcceptanceThreshold"), scenario).play()
    golden(HERE / "threshold_policy.log", "\n".join(plant.log) + "\n")


@pytest.mark.parametrize("mode", ["Observe", "Fixed"])
def test_modes_that_keep_their_hands_off_change_no_schedule(mode: str) -> None:
    plant = Plant(config(mode=mode), SCENARIOS["acceptance_drop"]).play()
    assert {str(outcome.state.schedule) for _, outcome in plant.outcomes} == {"1-256:3"}


def test_observe_still_says_what_it_would_do() -> None:
    plant = Plant(config(mode="Observe"), SCENARIOS["acceptance_drop"]).play()
    assert any(
        "→" in outcome.reason or outcome.proposal.schedule != outcome.state.schedule for _, outcome in plant.outcomes
    )


def test_a_frozen_service_keeps_what_it_has_even_outside_its_bounds() -> None:
    plant = Plant(config(), SCENARIOS["acceptance_drop"])
    for pass_ in range(1, 12):
        plant.tick(15.0 * pass_)
    before = plant.state.schedule
    plant.config = replace(plant.config, frozen=True, values=(0, 1))
    for pass_ in range(12, 40):
        plant.tick(15.0 * pass_)
    assert plant.state.schedule == before


def test_speculation_comes_back_when_drafts_are_accepted_again_after_a_collapse() -> None:
    scenario = Scenario(batch=always(32.0), alpha=lambda t: 0.75 if t <= 300.0 or t > 900.0 else 0.0, duration_s=1800.0)
    plant = Plant(config(), scenario).play()
    k = {now_s: outcome.state.schedule.at(32) for now_s, outcome in plant.outcomes}
    assert (k[300.0], k[345.0], k[900.0], k[1800.0]) == (3, 0, 0, 3)
    looks = [now_s for now_s, outcome in plant.outcomes if outcome.proposal.probing and 345.0 < now_s <= 900.0]
    assert len(looks) == 1


@pytest.mark.parametrize("away_periods", [0, 2, 20])
def test_a_look_that_a_restart_cut_short_is_returned_from_or_judged(away_periods: int) -> None:
    plant = Plant(config(), SCENARIOS["steady"])
    now_s = PERIOD_S
    while not plant.tick(now_s).proposal.probing:
        now_s += PERIOD_S
    assert plant.state.probe is not None
    before = plant.state.probe.before
    stored = json.loads(json.dumps(memory.to_document(plant.state)))
    plant.state, fault = memory.from_document(stored, plant.config)
    assert fault is None
    now_s += (1 + away_periods) * PERIOD_S
    outcome = plant.tick(now_s)
    assert outcome.state.probe is None
    assert outcome.state.schedule == before
