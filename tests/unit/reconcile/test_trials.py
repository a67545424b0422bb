"""A change on trial, from the edit of a spec to its end, with an API server that keeps what it is told."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.core.demand import Demand
from outrider.core.revisions.analysis import Figures, Judgement, Verdict
from outrider.core.revisions.course import RETRY_S
from outrider.core.revisions.evidence import UNDRAFTED
from outrider.core.revisions.intervals import Spread
from outrider.manifests.candidate import BOOT_ANNOTATION

from .builders import FIXED_REPLICAS, World, pod

CANARY = {"spec.rollout": {"policy": "Canary"}}
DRAFT = {"spec.speculation.draft": {"id": "lab/eagle-of-its-own"}}
IMAGE = {"spec.engine": {"image": "registry.example/vllm:patched", "version": "0.33.0"}}
CANDIDATE = "chat-candidate"


def play(world: World, *, pending: bool = False) -> None:
    """What the cluster does: each Deployment gets pods of its template that serve, at once; with ``pending`` no node
    takes the candidate's."""
    for (kind, _, name), live in list(world.kube.objects.items()):
        if kind == "Deployment":
            _play_one(world, name, pending=pending and name == CANDIDATE)
            assert live["spec"]["replicas"] >= 1
    for _, _, name in [key for key in world.kube.objects if key[0] == "Pod"]:
        owner, _, index = name.rpartition("-")
        deployment = world.kube.objects.get(("Deployment", "ml", owner))
        if deployment is None or int(index) >= deployment["spec"]["replicas"]:
            world.kube.take_away("Pod", name)


def _play_one(world: World, name: str, *, pending: bool) -> None:
    live = world.kube.live("Deployment", name)
    number, meta = live["spec"]["replicas"], live["spec"]["template"]["metadata"]
    conditions = [{"type": "PodScheduled", "status": "False", "message": "1 Insufficient nvidia.com/gpu"}]
    for index in range(number):
        body = pod(
            f"{name}-{index}",
            uid=f"{name}-{index}-{meta.get('annotations')}-{meta['labels']['serving.outrider.dev/revision']}",
            revision=meta["labels"]["serving.outrider.dev/revision"],
            track=meta["labels"]["serving.outrider.dev/track"],
            ready=not pending,
            conditions=conditions if pending else (),
        )
        body["metadata"]["annotations"] = meta.get("annotations", {})
        world.see(body)
    status = {"replicas": number, "updatedReplicas": number, "observedGeneration": live["metadata"]["generation"]}
    world.kube.put({**live, "status": status})


async def served(changes: dict[str, Any] | None = None) -> World:
    """Three replicas of the first revision serve, and their load needs two."""
    world = World()
    world.add({**FIXED_REPLICAS, **CANARY, **(changes or {})})
    await settled(world)
    needs(world, 2)
    return world


def needs(world: World, replicas: int) -> None:
    """Load that so many replicas carry."""
    world.service().demand = Demand(looks=((world.clock(), replicas),))


async def settled(world: World, *, pending: bool = False) -> None:
    for _ in range(4):
        assert await world.reconcile() is None
        play(world, pending=pending)
    assert await world.reconcile() is None


async def edit(world: World, changes: dict[str, Any], *, pending: bool = False, generation: int = 4) -> None:
    world.add({**FIXED_REPLICAS, **CANARY, **changes}, generation=generation)
    await settled(world, pending=pending)


def find(verdict: Verdict, world: World, *, restart: bool = False) -> None:
    """A control pass has compared."""
    figures = Figures(0.031, -0.01, 0.072, 2, 3.0, 0.014, 0.004, 3, 0.0, Spread(), UNDRAFTED, UNDRAFTED)
    world.service().judgement = Judgement(verdict, ("token goodput +3.1 %",), figures, restart=restart)


def image(world: World, name: str = "chat") -> str:
    found: str = world.kube.live("Deployment", name)["spec"]["template"]["spec"]["containers"][0]["image"]
    return found


def template(world: World, name: str = "chat") -> Any:
    return world.kube.live("Deployment", name)["spec"]["template"]


def has_candidate(world: World) -> bool:
    return ("Deployment", "ml", CANDIDATE) in world.kube.objects


def candidate_status(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.status()["revisions"]["candidate"]
    return found


def events(world: World) -> list[str]:
    return [one["reason"] for one in world.kube.created("Event")]


class TestTheTwoTracks:
    async def test_a_new_draft_is_tried_on_one_engine_and_the_others_keep_theirs(self) -> None:
        world = await served()
        before = template(world)
        await edit(world, DRAFT)
        assert template(world) == before
        tried = world.kube.live("Deployment", CANDIDATE)["spec"]
        assert tried["replicas"] == 1
        assert tried["strategy"] == {"type": "Recreate"}
        assert "lab/eagle-of-its-own" in str(tried["template"]["spec"]["containers"][0]["args"])
        assert tried["template"]["metadata"]["annotations"] == {BOOT_ANNOTATION: "1"}
        assert (candidate_status(world)["stage"], candidate_status(world)["question"]) == ("Running", "Better")
        status, reason, message = world.condition("RevisionCurrent") or ("", "", "")
        assert (status, reason) == ("False", "CandidateCompared")
        assert candidate_status(world)["revision"] in message

    async def test_a_new_image_must_not_be_worse_by_the_margin(self) -> None:
        world = await served()
        await edit(world, {**IMAGE, "spec.rollout": {"policy": "Canary", "marginPercent": 3}})
        trial = world.service().trial
        assert trial is not None
        assert (trial.plan.question, trial.plan.margin) == ("NotWorse", 0.03)

    @pytest.mark.parametrize(
        "changes",
        [
            pytest.param({"spec.resources": {"gpus": 1, "memory": "64Gi"}}, id="memory"),
            pytest.param({"spec.podTemplate": {"metadata": {"labels": {"team": "chat"}}}}, id="a label"),
            pytest.param({"spec.engine": {"env": [{"name": "A", "value": "b"}]}}, id="a variable"),
            pytest.param({"spec.model.servedName": "chat2"}, id="the name that clients ask for"),
            pytest.param({"spec.model.id": "lab/another"}, id="another model"),
            pytest.param({"spec.resources": {"gpus": 2}}, id="more GPUs"),
            pytest.param({"spec.speculation.tuning": {"mode": "Off"}}, id="speculation switched off"),
            pytest.param({**IMAGE, "spec.rollout": {"policy": "Rolling"}}, id="an image with policy Rolling"),
            pytest.param({**IMAGE, "spec.rollout": {"strategy": "Recreate"}}, id="an image where all stop first"),
        ],
    )
    async def test_other_changes_roll_as_ever(self, changes: dict[str, Any]) -> None:
        world = await served()
        before = template(world)
        await edit(world, changes)
        assert template(world) != before
        assert not has_candidate(world)
        assert world.condition("RevisionCurrent") is None

    @pytest.mark.parametrize("needed", [2, 0], ids=["under load", "without requests"])
    async def test_where_nobody_says_how_a_change_is_tried_under_load_alone(self, needed: int) -> None:
        world = await served({"spec.rollout": {}})
        needs(world, needed)
        await edit(world, {**IMAGE, "spec.rollout": {}})
        assert has_candidate(world) is (needed > 0)
        assert (image(world) == IMAGE["spec.engine"]["image"]) is (needed == 0)

    async def test_what_no_engine_is_started_with_takes_effect_in_mid_trial(self) -> None:
        world = await served()
        before = template(world)
        changes = {**DRAFT, "spec.objectives": {"tpotMilliseconds": 33}, "spec.disruption": {"maxUnavailable": 2}}
        await edit(world, {**changes, "spec.speculation.tuning": {"mode": "Observe"}})
        assert template(world) == before
        assert world.kube.live("PodDisruptionBudget", "chat")["spec"]["maxUnavailable"] == 2
        config = world.service().config
        assert config is not None
        assert (config.tpot_objective_s, config.mode) == (0.033, "Observe")

    async def test_control_goes_on_with_the_engines_that_serve(self) -> None:
        world = await served()
        values = world.service().config.values  # type: ignore[union-attr]
        await edit(world, {"spec.speculation.maxSpeculativeTokens": 2})
        assert has_candidate(world)
        assert world.service().config.values == values  # type: ignore[union-attr]


class TestVerdicts:
    async def test_a_good_one_is_promoted_and_its_candidate_goes_once_all_engines_have_it(self) -> None:
        world = await served()
        await edit(world, DRAFT)
        tried = candidate_status(world)["revision"]
        find("promote", world)
        await world.reconcile()
        assert template(world)["metadata"]["labels"]["serving.outrider.dev/revision"] == tried
        assert "annotations" not in template(world)["metadata"]
        assert has_candidate(world), "it serves until the others have its template"
        await settled(world)
        assert not has_candidate(world)
        assert world.status()["revisions"]["stable"] == tried
        assert world.status()["revisions"]["history"][0]["outcome"] == "Promoted"
        assert world.condition("RevisionCurrent") is None
        assert {"CandidateStarted", "CandidatePromoting", "CandidatePromoted"} <= set(events(world))

    async def test_a_worse_one_is_withdrawn_and_stays_so(self) -> None:
        world = await served()
        before = template(world)
        await edit(world, DRAFT)
        find("withdraw", world)
        await settled(world)
        assert not has_candidate(world)
        assert template(world) == before
        assert candidate_status(world)["stage"] == "Withdrawn"
        assert (world.condition("RevisionCurrent") or ("", "", ""))[1] == "CandidateWithdrawn"
        assert "CandidateWithdrawn" in events(world)
        world.clock.advance(100 * RETRY_S)
        await settled(world)
        assert not has_candidate(world)

    async def test_figures_are_shown_while_it_is_compared(self) -> None:
        world = await served()
        await edit(world, DRAFT)
        find("wait", world)
        world.clock.advance(60)
        await world.reconcile()
        shown = candidate_status(world)
        assert (shown["gainPercent"], shown["lowPercent"], shown["highPercent"]) == ("3.1", "-1.0", "7.2")

    async def test_a_boot_that_has_told_all_is_started_anew_once(self) -> None:
        world = await served()
        await edit(world, DRAFT)
        find("wait", world, restart=True)
        await world.reconcile()
        await world.reconcile()
        annotations = template(world, CANDIDATE)["metadata"]["annotations"]
        assert annotations == {BOOT_ANNOTATION: "2"}
        assert candidate_status(world)["stage"] == "Starting"
        assert world.service().judgement is None
        await settled(world)
        assert candidate_status(world)["stage"] == "Running"

    @pytest.mark.failure(
        "Engines",
        "a candidate crashes twice",
        k="of the stable engines stays",
        replicas="stay",
        conditions=["RevisionCurrent False CandidateWithdrawn", "Ready True"],
        status="with its last words",
        alerts=["OutriderRevisionNotCurrent"],
        ends="withdrawn at once; tried again after an hour, doubling up to a day",
        guard="core/revisions/course.py:_advanced",
    )
    async def test_a_second_crash_withdraws_an_image(self) -> None:
        world = await served()
        await edit(world, IMAGE)
        ended = {"terminated": {"exitCode": 1, "message": "no kernel image is available", "reason": "Error"}}
        crashed = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended}
        live = world.kube.live("Pod", f"{CANDIDATE}-0")
        for restarts, remains in ((0, True), (1, False)):
            live["status"]["containerStatuses"] = [{"name": "engine", "restartCount": restarts, **crashed}]
            world.see(live)
            await world.reconcile()
            assert has_candidate(world) is remains
        assert "no kernel image" in candidate_status(world)["reason"]
        assert "retryAfter" in candidate_status(world)

    async def test_with_policy_manual_it_waits_for_the_users_word(self) -> None:
        world = await served()
        manual = {**DRAFT, "spec.rollout": {"policy": "Manual"}}
        await edit(world, manual)
        find("promote", world)
        await settled(world)
        assert candidate_status(world)["stage"] == "Approval"
        approved = candidate_status(world)["revision"]
        await edit(world, {**DRAFT, "spec.rollout": {"policy": "Manual", "approve": approved}}, generation=5)
        assert world.status()["revisions"]["stable"] == approved
        assert not has_candidate(world)


class TestChangesOfMind:
    @pytest.mark.failure(
        "The cluster and its people",
        "the spec is edited in mid-trial",
        k="of the stable engines stays",
        replicas="stay; another candidate takes the place of the first",
        conditions=["RevisionCurrent False"],
        status="the first is in the history as Replaced",
        ends="at once",
        guard="core/revisions/course.py:_replaced",
    )
    async def test_another_draft_in_mid_trial_takes_the_place_of_the_first(self) -> None:
        world = await served()
        await edit(world, DRAFT)
        first = candidate_status(world)["revision"]
        await edit(world, {"spec.speculation.draft": {"id": "lab/a-third"}}, generation=5)
        assert candidate_status(world)["revision"] != first
        assert "lab/a-third" in str(template(world, CANDIDATE))
        assert world.status()["revisions"]["history"][0]["outcome"] == "Replaced"

    async def test_taking_the_change_back_removes_the_candidate(self) -> None:
        world = await served()
        before = template(world)
        await edit(world, DRAFT)
        await edit(world, {}, generation=5)
        assert not has_candidate(world)
        assert template(world) == before
        assert world.condition("RevisionCurrent") is None

    async def test_the_former_spec_comes_back_without_a_trial(self) -> None:
        world = await served()
        before = template(world)
        await edit(world, DRAFT)
        find("promote", world)
        await settled(world)
        assert template(world) != before
        await edit(world, {}, generation=5)
        assert template(world) == before
        assert not has_candidate(world)
        assert events(world).count("CandidateStarted") == 1

    async def test_a_paused_service_stays_as_it_is_in_mid_trial(self) -> None:
        world = await served()
        await edit(world, DRAFT)
        world.forget_writes()
        find("promote", world)
        await edit(world, {**DRAFT, "spec.paused": True}, generation=5)
        assert has_candidate(world)
        assert [one for one in world.kube.applied() if one.startswith("Deployment")] == []


class TestRestarts:
    @pytest.mark.failure("Ourselves", "killed at every single step of a trial")
    @pytest.mark.parametrize("stage", ["Running", "Promoting", "Withdrawn"])
    async def test_an_operator_that_starts_again_goes_on_where_the_last_one_was(self, stage: str) -> None:
        world = await served()
        await edit(world, DRAFT)
        if stage != "Running":
            find("promote" if stage == "Promoting" else "withdraw", world)
            await world.reconcile()
        before, candidate = template(world), has_candidate(world)
        world.restart()
        await world.reconcile()
        assert template(world) == before
        assert has_candidate(world) is candidate
        assert candidate_status(world)["stage"] == stage
        await settled(world)
        assert has_candidate(world) is (stage == "Running")

    async def test_a_former_revision_is_known_after_a_restart(self) -> None:
        world = await served()
        before = template(world)
        await edit(world, DRAFT)
        find("promote", world)
        await settled(world)
        world.restart()
        await settled(world)
        await edit(world, {}, generation=5)
        assert template(world) == before
        assert not has_candidate(world)

    async def test_nothing_is_done_before_it_is_remembered(self) -> None:
        world = await served()
        world.add({**FIXED_REPLICAS, **CANARY, **DRAFT}, generation=4)
        world.journal.clear()
        await world.reconcile()
        assert world.journal.index("apply ConfigMap/chat-memory") < world.journal.index(f"apply Deployment/{CANDIDATE}")


class TestRoom:
    @pytest.mark.failure(
        "The cluster and its people",
        "no GPU is free for a candidate",
        replicas="one goes while the load needs fewer, and comes back; else all stay, and the candidate waits",
        conditions=["RevisionCurrent False CandidateWaits", "Ready True"],
        alerts=["OutriderRevisionNotCurrent"],
        ends="with a GPU, or with less load",
        guard="core/revisions/stages.py:_freed",
    )
    async def test_a_candidate_that_no_node_takes_gets_the_place_of_a_replica(self) -> None:
        world = await served()
        await edit(world, DRAFT, pending=True)
        assert world.kube.replicas() == 2
        assert candidate_status(world)["stage"] == "Waiting"
        await settled(world)
        assert candidate_status(world)["stage"] == "Running"
        find("withdraw", world)
        await settled(world)
        assert world.kube.replicas() == 3

    async def test_what_the_load_needs_is_known_of_a_fixed_number_of_replicas_too(self) -> None:
        world = await served()
        world.service().demand = Demand()
        world.measure()
        await world.control.run()
        assert world.service().demand.wanted is not None

    @pytest.mark.failure("The cluster and its people", "no GPU is free for a candidate")
    async def test_it_waits_while_the_load_needs_all_replicas(self) -> None:
        world = await served()
        needs(world, 3)
        await edit(world, DRAFT, pending=True)
        assert world.kube.replicas() == 3
        assert "the load needs 3 replicas" in (world.condition("RevisionCurrent") or ("", "", ""))[2]

    async def test_a_candidate_counts_in_the_gpu_budget(self) -> None:
        scaled = {"spec.autoscaling": {"minReplicas": 3, "maxReplicas": 8, "gpuBudget": 3}}
        world = await served(scaled)
        await edit(world, {**scaled, **DRAFT})
        bounds = world.kube.live("ScaledObject", "chat")["spec"]
        assert (bounds["minReplicaCount"], bounds["maxReplicaCount"]) == (2, 2)
        assert not has_candidate(world), "three pods hold three GPUs"
        live = world.kube.live("Deployment", "chat")
        world.kube.put({**live, "spec": live["spec"] | {"replicas": 2}})
        await settled(world)
        assert has_candidate(world)
        find("withdraw", world)
        await settled(world)
        bounds = world.kube.live("ScaledObject", "chat")["spec"]
        assert (bounds["minReplicaCount"], bounds["maxReplicaCount"]) == (3, 3)
