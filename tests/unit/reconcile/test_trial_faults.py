"""What fails around a change on trial: the store, the spec, and the operator at every single step."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from outrider.errors import Unreachable
from outrider.manifests.config_maps import REVISIONS_KEY
from outrider.reconcile import persistence
from outrider.reconcile.neighbours import Neighbours
from outrider.reconcile.objects import ObjectsPass
from tests.failures import Failure

from .builders import FIXED_REPLICAS, KEY, World
from .fakes import Manifest
from .test_killed import ENDLESS, Killed, Life, Mortal
from .test_objects_pass import IMPOSSIBLE
from .test_trials import (
    CANARY,
    CANDIDATE,
    DRAFT,
    IMAGE,
    candidate_status,
    edit,
    find,
    has_candidate,
    play,
    served,
    settled,
    template,
)

GONE = Unreachable("PrometheusUnreachable", "Prometheus does not answer")
REVISION = "serving.outrider.dev/revision"


async def periods(world: World, minutes: float) -> None:
    """Control passes of 15 s each, and the objects pass that follows."""
    for _ in range(round(minutes * 4)):
        world.clock.advance(15.0)
        await world.control.run()
        await world.reconcile()


@pytest.mark.failure(
    "Prometheus",
    "gone in mid-trial",
    k="held",
    replicas="stay; the candidate serves on",
    conditions=["MetricsAvailable False PrometheusUnreachable", "RevisionCurrent False CandidateCompared"],
    status="crashes still withdraw it; without a verdict it ends when `maxMinutes` are over, and is tried again",
    alerts=["OutriderMetricsMissing"],
    ends="with the first answer; what was missed is read, 40 windows a pass",
    guard="reconcile/comparisons.py:Comparisons._fetch",
)
async def test_without_a_store_no_trial_ends_before_its_time(failure: Failure) -> None:
    world = await served()
    half_an_hour = {**DRAFT, "spec.rollout": {"policy": "Canary", "maxMinutes": 30}}
    await edit(world, half_an_hour)
    before = template(world)
    world.metrics.error = GONE
    await periods(world, 29)
    assert (candidate_status(world)["stage"], has_candidate(world)) == ("Running", True)
    assert world.service().trial.boot == 1  # type: ignore[union-attr]
    for type_ in ("MetricsAvailable", "RevisionCurrent"):
        assert (world.condition(type_) or ("", "", ""))[:2] == failure.condition(type_)
    await periods(world, 2)
    assert not has_candidate(world)
    assert world.status()["revisions"]["history"][0]["outcome"] == "Inconclusive"
    assert "retryAfter" in candidate_status(world)
    assert template(world) == before


@pytest.mark.failure(
    "The cluster and its people",
    "the spec is spoilt in mid-trial",
    k="engines of both tracks go on",
    replicas="stay; the candidate serves on, and no step is taken",
    conditions=["Stalled True"],
    alerts=["OutriderServiceNotReady", "OutriderTrialStuck"],
    ends="the trial goes on where it was when the spec is mended",
    guard="reconcile/objects.py:ObjectsPass._reconcile",
)
async def test_a_spec_that_is_spoilt_in_mid_trial_takes_no_engine_away() -> None:
    world = await served()
    await edit(world, DRAFT)
    tried, before = candidate_status(world)["revision"], template(world)
    find("promote", world)
    world.add({**FIXED_REPLICAS, **CANARY, **DRAFT, **IMPOSSIBLE}, generation=5)
    await world.reconcile()
    assert (world.condition("Stalled") or ("",))[0] == "True"
    assert has_candidate(world)
    assert template(world) == before
    await edit(world, DRAFT, generation=6)
    find("promote", world)
    await settled(world)
    assert template(world)["metadata"]["labels"][REVISION] == tried


async def test_a_change_that_rolled_is_not_tried_after_all_by_the_next_operator() -> None:
    """The record of a moment ago had another stable revision: by it, what all engines run would be a candidate."""
    world = await served()
    await persistence.save(world.service(), world.neighbours)
    rolling = {**IMAGE, "spec.rollout": {"policy": "Rolling"}}
    await edit(world, rolling)
    after = template(world)
    world.restart()
    await edit(world, IMAGE, generation=5)
    assert template(world) == after
    assert not has_candidate(world)


@dataclass
class Witness:
    """What the API server shows of one operator after the other."""

    stable: str
    """The revision that the stable engines had at first."""
    candidates: set[str] = field(default_factory=set)
    recorded: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def saw(self, _: str, one: Manifest) -> None:
        name = one["metadata"]["name"]
        if one["kind"] == "ConfigMap" and name == "chat-memory":
            self.recorded = json.loads(one["data"].get(REVISIONS_KEY, "{}"))
        elif one["kind"] == "Deployment":
            self._deployment(name, one["spec"]["template"]["metadata"]["labels"][REVISION])

    def _deployment(self, name: str, revision: str) -> None:
        trial = self.recorded.get("trial") or {}
        if name == CANDIDATE and revision not in self.candidates:
            self.candidates.add(revision)
            if trial.get("revision") != revision or not trial["placed"]:
                self.faults.append(f"a candidate of {revision}, and on record is {trial}")
        elif name != CANDIDATE and revision != self.stable and self.recorded.get("stable") != revision:
            self.faults.append(f"the stable engines get {revision}, and on record is {self.recorded.get('stable')}")


async def tried_and_promoted(writes: int) -> tuple[World, Witness, Life]:
    """A user edits the draft, the cluster starts the candidate, and it is promoted; an operator lives for so many
    writes of that, and another one for the rest."""
    world = await served()
    witness, life = Witness(template(world)["metadata"]["labels"][REVISION]), Life(writes)
    now = life
    world.kube.listeners.append(witness.saw)
    await persistence.save(world.service(), world.neighbours)

    async def one_pass() -> None:
        mortal = Mortal(world.kube, now)
        neighbours = Neighbours(mortal, world.metrics, world.engines, world.clock, world.settings)  # type: ignore[arg-type]
        await ObjectsPass(world.registry, neighbours, lambda: None).run(KEY)

    world.add({**FIXED_REPLICAS, **CANARY, **DRAFT}, generation=4)
    for number in range(12):
        if number >= 5 and world.service().trial is not None:
            find("promote", world)  # a control pass finds it again, whoever runs it
        try:
            await one_pass()
        except Killed:
            now = Life(ENDLESS)
            world.restart()
            world.kube.listeners.append(witness.saw)
            continue
        play(world)
    return world, witness, life


@pytest.mark.failure(
    "Ourselves",
    "killed at every single step of a trial",
    k="of the stable engines stays",
    replicas="none goes; a candidate and a promotion are on record before they are carried out",
    status="the trial is in the history once",
    ends="start-up; the comparison is read again, 40 windows a pass",
    guard="reconcile/persistence.py:record",
)
async def test_whatever_step_of_a_trial_it_is_killed_at_the_next_one_promotes_it_all_the_same() -> None:
    whole = (await tried_and_promoted(ENDLESS))[2]
    assert whole.done > 12
    for writes in range(whole.done + 1):
        world, witness, life = await tried_and_promoted(writes)
        assert witness.faults == [], life.last
        (tried,) = witness.candidates
        assert template(world)["metadata"]["labels"][REVISION] == tried, life.last
        assert not has_candidate(world), life.last
        assert [one["outcome"] for one in world.status()["revisions"]["history"]] == ["Promoted"], life.last
        assert world.kube.replicas() == 3
