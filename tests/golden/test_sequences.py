"""Whole stretches of control as readable logs: a change of behaviour is a change of a log that somebody reads.

After a change of the law or of its constants: ``pytest tests/golden/test_sequences.py --refresh-golden``, then read the
diff.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from outrider.core import memory
from outrider.core.exploration import MAX_PERIODS
from outrider.core.schedule import parse_text
from outrider.core.series import Missing
from outrider.core.state import START_CREDIT_S
from outrider.simulator.faults import Restart, SlowReplica
from outrider.simulator.profile import MOE_PROFILE
from tests.golden import service
from tests.golden.plant import Plant, Scenario
from tests.unit.core.builders import config

HERE = Path(__file__).parent / "sequences"
Golden = Callable[[Path, str], None]
PERIOD_S = config().period_s


def step(before: float, after: float, at_s: float) -> Callable[[float], float]:
    return lambda now_s: before if now_s <= at_s else after


def always(value: float) -> Callable[[float], float]:
    return lambda _: value


def alternating(low: float, high: float, then: float, at_s: float) -> Callable[[float], float]:
    return lambda now_s: then if now_s > at_s else high if round(now_s / PERIOD_S) % 2 else low


def sinking(now_s: float) -> float:
    """Acceptance of which four drafts give 3.07 tokens a step at first and 2.80 after six hours, with noise of 0.1."""
    noise = np.random.default_rng(round(now_s)).uniform(-0.02, 0.02)
    return 0.752 - 0.047 * now_s / 21_600.0 + float(noise)


SCENARIOS = {
    "steady": Scenario(batch=always(32.0), alpha=always(0.75)),
    "acceptance_drop": Scenario(batch=always(32.0), alpha=step(0.8, 0.35, 300.0)),
    "acceptance_rise": Scenario(batch=always(32.0), alpha=step(0.35, 0.85, 300.0)),
    "acceptance_sinks_for_hours": Scenario(
        batch=always(32.0),
        alpha=sinking,
        duration_s=21_600.0,
        settings={
            "values": (0, 2, 4, 6),
            "initial": parse_text("1-64:4"),
            "max_batch_size": 64,
            "period_s": 45.0,
        },
        brief=True,
    ),
    "acceptance_on_a_boundary": Scenario(
        batch=always(16.0),
        alpha=alternating(0.50, 0.52, then=0.80, at_s=100 * PERIOD_S),
        duration_s=120 * PERIOD_S,
        brief=True,
    ),
    "off_for_an_hour": Scenario(
        batch=always(32.0),
        alpha=lambda t: 0.0 if t <= 3_600.0 else 0.8,
        duration_s=4_800.0,
        settings={"period_s": 30.0},
        brief=True,
    ),
    "all_drafts_rejected": Scenario(
        batch=always(32.0), alpha=lambda t: 0.75 if t <= 300.0 or t > 900.0 else 0.0, duration_s=1800.0
    ),
    "load_spike": Scenario(batch=lambda t: 12.0 if t <= 240.0 or t > 420.0 else 150.0, alpha=always(0.7)),
    "queue_builds": Scenario(
        batch=always(200.0), alpha=always(0.75), waiting=step(0.0, 120.0, 150.0), duration_s=450.0
    ),
    "switch_collapses": Scenario(
        batch=always(8.0), alpha=always(0.85), slowdown=lambda _t, k: 3.0 if k == 5 else 1.0, duration_s=900.0
    ),
    "switch_collapses_later": Scenario(
        batch=always(8.0),
        alpha=always(0.9),
        slowdown=lambda t, k: 4.0 if k == 5 and t > 60.0 else 1.0,
        duration_s=900.0,
    ),
    "wrong_prior": Scenario(
        batch=always(32.0),
        alpha=always(0.75),
        slowdown=lambda _t, k: 0.8 if k == 5 else 1.0,
        settings={"initial": parse_text("1-256:1")},
    ),
    "mixture_of_experts": Scenario(
        batch=lambda t: 2.0 if t <= 240.0 else 16.0 if t <= 480.0 else 64.0,
        alpha=always(0.8),
        profile=MOE_PROFILE,
        duration_s=900.0,
        settings={
            "values": (2, 3, 4, 6),
            "initial": parse_text("1-256:2"),
            "min_speculative_tokens": 1,
            "tpot_objective_s": 0.050,
        },
    ),
    "slow_replica": Scenario(
        batch=always(32.0), alpha=always(0.75), replicas=(always(1.0), always(1.0), step(1.0, 2.0, 180.0))
    ),
    "operator_restarts": Scenario(
        batch=always(32.0), alpha=step(0.8, 0.35, 300.0), restarts=(30.0, 60.0, 75.0, 315.0, 330.0)
    ),
    "metrics_lost": Scenario(
        batch=always(32.0), alpha=step(0.75, 0.3, 180.0), metrics=lambda t: not 180.0 < t <= 360.0
    ),
}


@cache
def played(name: str) -> Plant:
    scenario = SCENARIOS[name]
    return Plant(config(**scenario.settings), scenario).play()


@pytest.mark.parametrize("name", SCENARIOS)
def test_sequence(name: str, golden: Golden) -> None:
    golden(HERE / f"{name}.log", played(name).log)


def test_a_fall_of_acceptance_is_answered_within_two_windows() -> None:
    plant = played("acceptance_drop")
    assert plant.k(300.0, 32) > plant.k(330.0, 32) == 1
    after = [change for change in plant.changes() if change.at_s > 300.0]
    assert len(after) == 1


def test_a_rise_of_acceptance_is_answered_within_two_minutes() -> None:
    plant = played("acceptance_rise")
    assert plant.k(300.0, 32) == 1
    assert plant.k(420.0, 32) == 5


def test_a_slow_decline_changes_little_and_is_told() -> None:
    """Case C29 of the collection: three tokens a step sink by a tenth in six hours, in noise of a thirtieth."""
    plant = played("acceptance_sinks_for_hours")
    assert len(plant.changes()) <= 3
    told = plant.state.acceptance.trend
    assert told is not None
    assert told.declining
    assert "*** told: " in plant.log


def test_acceptance_on_a_boundary_moves_nothing_and_a_step_off_it_does() -> None:
    """Case C30: at most one change in a hundred passes, then a rise within five."""
    plant = played("acceptance_on_a_boundary")
    assert sum(change.at_s <= 100 * PERIOD_S for change in plant.changes()) <= 1
    assert plant.k(100 * PERIOD_S, 16) < plant.k(105 * PERIOD_S, 16) == 5


def test_looks_keep_to_their_budget_while_nothing_changes() -> None:
    plant = played("acceptance_on_a_boundary")
    quiet = [outcome for now_s, outcome in plant.outcomes if now_s <= 100 * PERIOD_S]
    away = sum(outcome.state.probe is not None for outcome in quiet)
    assert 0 < away <= len(quiet) / 10


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_look_lasts_longer_than_four_periods_or_overdraws_its_budget(name: str) -> None:
    plant = played(name)
    since: float | None = None
    for now_s, outcome in plant.outcomes:
        probe = outcome.state.probe
        if probe is None:
            since = None
        elif not isinstance(plant.observe(now_s - 1.0, now_s), Missing):
            since = probe.at_s if since is None else since
            assert now_s - since < MAX_PERIODS * plant.config.period_s
        assert 0.0 <= outcome.state.credit_s <= START_CREDIT_S * max(1.0, plant.config.period_s / 15.0)


@pytest.mark.failure(
    "Engines",
    "every draft is rejected",
    k="off, with looks",
    conditions=["SpeculationHealthy False AcceptanceCollapsed"],
    alerts=["OutriderAllDraftsRejected"],
    ends="looks bring it back",
    guard="core/guards.py:collapse",
)
@pytest.mark.parametrize(
    ("name", "off_s", "back_s"), [("off_for_an_hour", 90.0, 3_600.0), ("all_drafts_rejected", 345.0, 900.0)]
)
def test_rejected_drafts_turn_drafting_off_and_looks_bring_it_back(name: str, off_s: float, back_s: float) -> None:
    plant = played(name)
    assert plant.k(off_s, 32) == 0
    assert plant.k(plant.scenario.duration_s, 32) >= 3
    while_off = [change for change in plant.changes("Probe") if off_s < change.at_s <= back_s]
    assert 1 <= len(while_off) <= 2 * (back_s - off_s) / 300.0
    assert not [change for change in plant.changes() if off_s < change.at_s <= back_s]


def test_a_burst_meets_its_k_in_the_first_pass_that_sees_it() -> None:
    plant = played("load_spike")
    assert plant.k(255.0, 150) == 2
    assert all(change.kind == "Target" or change.at_s in (255.0, 435.0) for change in plant.state.history)


@pytest.mark.failure(
    "Engines",
    "a change makes it worse",
    k="taken back within three windows, and barred",
    replicas="the target waits",
    guard="core/guards.py:last_change",
)
def test_a_change_that_collapses_is_taken_back_within_three_windows_and_stays_away() -> None:
    """Case C03: only K 5 is slow, and acceptance never tells."""
    plant = played("switch_collapses")
    made, undone = plant.changes()[:2]
    assert undone.at_s - made.at_s <= 3 * PERIOD_S
    assert "131 tokens/s a request after the change" in undone.reason
    assert plant.state.schedule.at(8) == 3
    (bar,) = plant.state.bars
    assert (bar.num_speculative_tokens, bar.until_s) == (5, undone.at_s + 600.0)


def test_a_k_that_collapses_later_is_left() -> None:
    assert played("switch_collapses_later").k(75.0, 8) == 3


def test_a_look_at_a_k_that_collapsed_drives_nothing_else_away() -> None:
    assert played("switch_collapses_later").k(900.0, 8) == 3


def test_a_k_that_no_prior_knows_to_be_good_is_found_in_two_minutes() -> None:
    plant = played("wrong_prior")
    assert plant.k(120.0, 32) == 5
    assert {plant.k(15.0 * number, 32) for number in range(8, 41)} == {5}


def test_a_mixture_of_experts_may_draft_more_at_a_larger_batch() -> None:
    plant = played("mixture_of_experts")
    assert plant.k(240.0, 2) < plant.k(465.0, 16)
    assert len(plant.changes()) <= 4


@pytest.mark.parametrize("name", ["steady", "slow_replica"])
def test_what_no_k_can_mend_changes_no_k(name: str) -> None:
    assert played(name).changes() == []


def test_no_k_is_looked_at_while_requests_queue() -> None:
    assert played("queue_builds").changes("Probe") == []


def test_nothing_moves_without_metrics() -> None:
    plant = played("metrics_lost")
    blind = [outcome for now_s, outcome in plant.outcomes if 195.0 <= now_s <= 360.0]
    assert all(outcome.changes == () for outcome in blind)
    assert plant.k(420.0, 32) == 1


def test_a_restart_of_the_operator_changes_no_decision() -> None:
    """The restarts fall into a look, a trial and a jump."""
    restarted, other = played("operator_restarts"), played("acceptance_drop")
    assert [str(outcome.state.schedule) for _, outcome in restarted.outcomes] == [
        str(outcome.state.schedule) for _, outcome in other.outcomes
    ]


def test_counters_that_start_anew_are_not_seen_as_a_change(golden: Golden) -> None:
    narrated, result = service.play(Restart(0, 120.0))
    golden(HERE / "counters_reset.log", narrated.narrator.text)
    lengths = [length for now_s, length in narrated.lengths if now_s > 30.0]
    assert max(lengths) - min(lengths) < 0.7
    assert not [change for change in narrated.operator.changes if change.kind == "Schedule"]
    assert result.num_completed < result.num_arrived  # the process that ended took its requests along


def test_a_slow_replica_behind_a_router_is_told_and_drafting_goes_on(golden: Golden) -> None:
    narrated, _ = service.play(SlowReplica(1, 2.0, 120.0))
    golden(HERE / "slow_replica_behind_a_router.log", narrated.narrator.text)
    assert narrated.operator.state.schedule.at(4) in (3, 5)
    assert len([change for change in narrated.operator.changes if change.kind == "Schedule"]) <= 2


def test_the_threshold_policy_follows_acceptance_alone(golden: Golden) -> None:
    scenario = Scenario(
        batch=always(32.0), alpha=lambda t: 0.95 if t <= 120 else 0.3 if t <= 240 else 0.95, duration_s=750.0
    )
    plant = Plant(config(policy="AcceptanceThreshold"), scenario).play()
    golden(HERE / "threshold_policy.log", plant.log)


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
    assert (k[300.0], k[345.0], k[900.0]) == (3, 0, 0)
    assert k[960.0] >= 3  # the look began at 945 s
    looks = [now_s for now_s, outcome in plant.outcomes if outcome.proposal.probing and 345.0 < now_s <= 900.0]
    assert len(looks) == 1


@pytest.mark.failure(
    "Ourselves",
    "killed during a look",
    k="judged, or returned from",
    ends="first passes with data",
    guard="core/exploration.py:probe_ended",
)
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
