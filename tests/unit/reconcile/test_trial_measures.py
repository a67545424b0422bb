"""What passes report of a candidate's trial as metrics, and that nothing of it stays when it is over."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from prometheus_client import REGISTRY

from outrider import telemetry
from outrider.core.revisions.analysis import Figures, Judgement, Plan
from outrider.core.revisions.evidence import UNDRAFTED, Evidence
from outrider.core.revisions.intervals import Spread
from outrider.reconcile import measures

from .builders import KEY, World
from .fakes import NOW_S
from .test_measures import every, told
from .test_trials import DRAFT, edit, find, served, settled
from .trial_plant import Plant

FIGURES = Figures(0.031, -0.01, 0.072, 2, 3.0, 0.014, 0.004, 3, 0.0, Spread(), UNDRAFTED, UNDRAFTED)
OF_TRIALS = (
    "trial_stage", "trial_stage_timestamp_seconds", "trial_stage_limit_seconds", "trial_gain_ratio",
    "trial_gain_low_ratio", "trial_gain_high_ratio", "trial_within_objective_ratio", "trial_failed_ratio",
)  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_told() -> None:
    """Series outlive the world of a test."""
    telemetry.keep({KEY})
    telemetry.keep(set())


async def on_trial() -> World:
    world = await served()
    await edit(world, DRAFT)
    return world


def outcomes() -> dict[str, float | None]:
    """How many trials ended in each way, of those ways that are told."""
    ways = [labels["outcome"] for labels in every("trials_ended_total")]
    return {way: told("trials_ended_total", outcome=way) for way in ways}


async def test_without_a_candidate_there_is_no_series() -> None:
    await served()
    assert [name for name in OF_TRIALS if every(name)] == []
    assert outcomes() == {}


async def test_a_trial_tells_its_stage_and_since_when() -> None:
    world = await on_trial()
    assert every("trial_stage") == [{"stage": "Running"}]
    assert told("trial_stage", stage="Running") == 1.0
    trial = world.service().trial
    assert trial is not None
    assert told("trial_stage_timestamp_seconds") == trial.stage_since_s >= NOW_S
    assert told("trial_stage_limit_seconds") == trial.plan.max_time_s
    assert set(outcomes().values()) == {0.0}, "the first one that ends shows in a rate"


@pytest.mark.parametrize(
    ("stage", "limit_s"),
    [
        pytest.param("Waiting", None, id="it waits for a GPU as long as it takes"),
        pytest.param("Starting", 600.0, id="a start has its limit"),
        pytest.param("Checking", 900.0, id="an evaluation too"),
        pytest.param("Running", 7200.0, id="a comparison has its own"),
        pytest.param("Approval", None, id="a person takes as long as it takes"),
        pytest.param("Promoting", 1800.0, id="each of three engines starts in turn"),
    ],
)
async def test_what_a_stage_may_take(stage: str, limit_s: float | None) -> None:
    service = (await on_trial()).service()
    assert service.trial is not None
    assert service.resolved is not None
    service.resolved = replace(service.resolved, evaluation_max_s=900.0)
    service.trial = replace(service.trial, stage=stage)  # type: ignore[arg-type]
    measures.tried(service, 600.0)
    assert told("trial_stage_limit_seconds") == limit_s


async def test_while_a_service_is_paused_nothing_of_it_takes_too_long() -> None:
    world = await on_trial()
    await edit(world, {**DRAFT, "spec.paused": True}, generation=5)
    assert every("trial_stage") == [{"stage": "Running"}]
    assert every("trial_stage_limit_seconds") == []


async def test_a_trial_that_is_over_is_counted_once_and_leaves_nothing_else() -> None:
    world = await on_trial()
    measures.compared(KEY, Evidence(NOW_S), Judgement("promote", (), FIGURES))
    find("promote", world)
    await world.reconcile()
    assert every("trial_stage") == [{"stage": "Promoting"}]
    assert told("trial_gain_ratio") == 0.031, "what it was promoted for stays until its end"
    await settled(world)
    assert [name for name in OF_TRIALS if every(name)] == []
    assert {way for way, count in outcomes().items() if count} == {"Promoted"}
    world.restart()
    await settled(world)
    assert outcomes()["Promoted"] == 1.0, "what was remembered is not counted again"


async def test_the_next_candidate_begins_with_nothing_found() -> None:
    world = await on_trial()
    plant = Plant(Plan("Better"))
    service, other = world.service(), await plant.start()
    await plant.period()
    service.record, service.judgement = other.record, other.judgement  # of a candidate before this one
    measures.compared(KEY, Evidence(NOW_S), Judgement("wait", (), FIGURES))
    await world.reconcile()
    assert every("trial_gain_ratio") == []


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        pytest.param(FIGURES, (0.031, -0.01, 0.072), id="a gain and its bounds"),
        pytest.param(replace(FIGURES, low=-1.0, high=inf), (0.031, None, None), id="a gain that nothing bounds yet"),
        pytest.param(None, (None, None, None), id="nothing found yet"),
    ],
)
def test_the_gain_is_told_with_the_bounds_that_there_are(
    figures: Figures | None, expected: tuple[float | None, ...]
) -> None:
    measures.compared(KEY, Evidence(NOW_S), Judgement("wait", (), FIGURES))
    measures.compared(KEY, Evidence(NOW_S), Judgement("wait", (), figures))
    assert tuple(told(f"trial_gain{which}_ratio") for which in ("", "_low", "_high")) == expected


async def test_a_control_pass_tells_of_both_tracks_how_requests_ended() -> None:
    plant = Plant(Plan("NotWorse"), "acme/engine:error-10")
    await plant.start()
    await plant.run(4)
    assert told("trial_failed_ratio", track="candidate") == pytest.approx(0.1, abs=0.06)
    assert told("trial_failed_ratio", track="stable") == 0.0
    assert {(one["track"], one["objective"]) for one in every("trial_within_objective_ratio")} >= {
        ("stable", "tpot"),
        ("candidate", "tpot"),
    }


async def test_all_of_it_goes_with_the_service() -> None:
    world = await on_trial()
    measures.compared(KEY, Evidence(NOW_S), Judgement("wait", (), FIGURES))
    telemetry.keep({KEY})
    assert told("trial_gain_ratio") is not None
    world.registry.forget(KEY, world.service().body["metadata"]["uid"])
    await world.control.run()
    left = [one.name for family in REGISTRY.collect() for one in family.samples if one.labels.get("service") == "chat"]
    assert [name for name in left if "trial" in name] == []
