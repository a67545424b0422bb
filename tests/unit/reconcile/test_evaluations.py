"""A candidate's evaluation, from its Job to its end, with an API server that keeps what it is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outrider.core.revisions.quality import REMEDY
from outrider.errors import Forbidden, KubeError, Unavailable
from outrider.reconcile.evaluations import told

from .builders import FIXED_REPLICAS, World
from .test_trials import IMAGE, candidate_status, edit, has_candidate, play, served, settled

QUIZ: dict[str, Any] = {"name": "quiz", "image": "quiz:1"}
QUALITY: dict[str, Any] = {
    "spec.rollout": {"policy": "Canary", "quality": {"template": {"spec": {"containers": [QUIZ]}}}}
}
PASSED = json.dumps({"score": 0.72, "baseline": 0.72})
LIMIT_S = 30 * 60.0


async def checking() -> World:
    """The candidate serves, and its answers are evaluated."""
    world = await served(QUALITY)
    await edit(world, {**IMAGE, **QUALITY})
    assert candidate_status(world)["stage"] == "Checking"
    return world


def jobs(world: World) -> list[dict[str, Any]]:
    return [one for (kind, _, _), one in world.kube.objects.items() if kind == "Job"]


def selected(world: World) -> str:
    """The track that the Service selects; empty for both."""
    track: str = world.kube.live("Service", "chat")["spec"]["selector"].get("serving.outrider.dev/track", "")
    return track


def state(message: str = "", exit_code: int = 0) -> dict[str, Any]:
    return {"terminated": {"exitCode": exit_code, "message": message}}


def evaluator(job: dict[str, Any], container: dict[str, Any], uid: str = "") -> dict[str, Any]:
    """The pod of a Job, its container in a state."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job['metadata']['name']}-x7k2p",
            "namespace": "ml",
            "labels": {"serving.outrider.dev/evaluates": "chat"},
            "ownerReferences": [{"kind": "Job", "uid": uid or job["metadata"]["uid"]}],
        },
        "status": {"containerStatuses": [{"name": "quiz", "state": container}]},
    }


async def ends(world: World, message: str, exit_code: int = 0) -> None:
    """The evaluation ends, and two passes look at what it left."""
    (job,) = jobs(world)
    world.kube.put(evaluator(job, state(message, exit_code)))
    for _ in range(2):
        assert await world.reconcile() is None


class TestBeforeItTakesRequests:
    async def test_the_service_selects_the_stable_track_alone_from_before_the_candidate_is_there(self) -> None:
        world = await served(QUALITY)
        assert selected(world) == "stable"
        await edit(world, {**IMAGE, **QUALITY})
        assert has_candidate(world)
        assert selected(world) == "stable"
        applied = world.kube.applied()
        assert applied.index("Service/chat") < applied.index("Deployment/chat-candidate")

    async def test_without_an_evaluation_it_selects_both(self) -> None:
        world = await served()
        assert selected(world) == ""

    async def test_one_job_is_made_of_the_template_and_belongs_to_the_candidate(self) -> None:
        world = await checking()
        world.clock.advance(60.0)
        await settled(world)
        (job,) = jobs(world)
        (owner,) = job["metadata"]["ownerReferences"]
        assert owner["uid"] == world.kube.live("Deployment", "chat-candidate")["metadata"]["uid"]
        status, reason, message = world.condition("RevisionCurrent") or ("", "", "")
        assert (status, reason) == ("False", "CandidateChecked")
        assert job["metadata"]["name"] in message

    async def test_a_control_pass_asks_for_a_look_at_it(self) -> None:
        world = await checking()
        await world.control.run()
        await world.reconcile()
        world.queued.clear()
        await world.control.run()
        assert ("ml", "chat") in world.queued

    async def test_a_paused_service_gets_no_job(self) -> None:
        world = await served(QUALITY)
        for _ in range(2):
            world.add({**FIXED_REPLICAS, **IMAGE, **QUALITY}, generation=4)
            await world.reconcile()
            play(world)
        world.add({**FIXED_REPLICAS, **IMAGE, **QUALITY, "spec.paused": True}, generation=5)
        for _ in range(3):
            await world.reconcile()
        assert jobs(world) == []


class TestTheResult:
    async def test_answers_that_are_as_good_let_requests_in(self) -> None:
        world = await checking()
        await ends(world, PASSED)
        assert candidate_status(world)["stage"] == "Running"
        assert "no loss" in candidate_status(world)["quality"]
        assert selected(world) == ""

    async def test_they_still_do_after_a_restart_in_the_middle(self) -> None:
        world = await checking()
        world.restart()
        await world.reconcile()
        await ends(world, PASSED)
        assert candidate_status(world)["stage"] == "Running"
        assert len(jobs(world)) == 1

    @pytest.mark.failure(
        "The cluster and its people",
        "a candidate's answers are worse than its baseline",
        replicas="those of the stable revision serve alone",
        conditions=["RevisionCurrent False CandidateWithdrawn"],
        ends="with another edit, or `spec.rollout.approve`",
        guard="reconcile/evaluations.py:told",
    )
    async def test_worse_answers_withdraw_it_before_it_had_a_request(self) -> None:
        world = await checking()
        await ends(world, json.dumps({"score": 0.5, "baseline": 0.72}))
        assert candidate_status(world)["stage"] == "Withdrawn"
        assert "a loss of 30.6 %, and 2 % is allowed" in candidate_status(world)["reason"]
        assert (world.condition("RevisionCurrent") or ())[:2] == ("False", "CandidateWithdrawn")
        assert not has_candidate(world)
        assert selected(world) == "stable"

    @pytest.mark.failure(
        "The cluster and its people",
        "a candidate's evaluation fails, or says nothing that can be read",
        replicas="those of the stable revision serve alone",
        conditions=["RevisionCurrent False CandidateWithdrawn"],
        ends="tried again after an hour, then two, up to a day",
        guard="reconcile/evaluations.py:look",
    )
    @pytest.mark.parametrize(
        ("message", "exit_code", "words"),
        [
            pytest.param("", 0, REMEDY, id="nothing"),
            pytest.param("72 of 100 are right", 0, "no JSON", id="words"),
            pytest.param('{"score": NaN, "baseline": 0.7}', 0, "NaN", id="no number"),
            pytest.param("Traceback\nOSError: refused", 1, "exit status 1: Traceback | OSError: refused", id="a crash"),
            pytest.param("", 137, "exit status 137: it said nothing", id="a crash without a word"),
        ],
    )
    async def test_one_that_fails_withdraws_it_for_an_hour(self, message: str, exit_code: int, words: str) -> None:
        world = await checking()
        await ends(world, message, exit_code)
        assert candidate_status(world)["stage"] == "Withdrawn"
        assert words in candidate_status(world)["reason"]
        assert "retryAfter" in candidate_status(world)

    @pytest.mark.failure(
        "The cluster and its people", "a candidate's evaluation fails, or says nothing that can be read"
    )
    async def test_one_that_never_ends_is_given_up_with_what_it_waits_for(self) -> None:
        world = await checking()
        (job,) = jobs(world)
        world.kube.put(evaluator(job, {"waiting": {"reason": "ImagePullBackOff", "message": "quiz:1 not found"}}))
        await world.reconcile()
        world.clock.advance(LIMIT_S + 1.0)
        await world.reconcile()
        reason = candidate_status(world)["reason"]
        assert "within 30 minutes" in reason
        assert "ImagePullBackOff quiz:1 not found" in reason

    async def test_secrets_in_what_a_harness_says_last_are_masked(self) -> None:
        world = await checking()
        await ends(world, "401 for hf_abcdefghijklmnopqrstuvwxyz0123456789", 1)
        assert "hf_abcdef" not in candidate_status(world)["reason"]


class TestTheApiServer:
    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (KubeError("ApplyRefused", "POST …: spec.template.spec.x: unknown field", 422), "unknown field"),
            (Forbidden("Forbidden", "POST …: exceeded quota: count/jobs.batch", 403), "exceeded quota"),
        ],
    )
    async def test_what_it_refuses_withdraws_the_candidate_and_names_the_field(
        self, error: KubeError, words: str
    ) -> None:
        world = await served(QUALITY)
        world.kube.fail(lambda: error, "create", "Job")
        await edit(world, {**IMAGE, **QUALITY})
        assert candidate_status(world)["stage"] == "Withdrawn"
        assert words in candidate_status(world)["reason"]
        assert "spec.rollout.quality.template" in candidate_status(world)["reason"]

    async def test_while_it_does_not_answer_nothing_is_concluded(self) -> None:
        world = await checking()
        world.kube.fail(lambda: Unavailable("APIServerUnreachable", "no answer"), "list", "Pod")
        await ends(world, PASSED)
        assert candidate_status(world)["stage"] == "Checking"
        world.kube.heal()
        for _ in range(2):
            await world.reconcile()
        assert candidate_status(world)["stage"] == "Running"


JOB: dict[str, Any] = {"metadata": {"name": "chat-quality-1", "uid": "job-uid"}}


class TestWhatAJobSays:
    def test_pods_of_other_jobs_say_nothing(self) -> None:
        assert told(JOB, [evaluator(JOB, state(PASSED), uid="another")], None).verdict == "pending"

    def test_a_job_whose_pod_was_ended_by_its_deadline_failed(self) -> None:
        ended = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "active for too long"}
        found = told({**JOB, "status": {"conditions": [ended]}}, [], None)
        assert found.verdict == "failed"
        assert "DeadlineExceeded: active for too long" in found.reason

    def test_a_pod_that_nobody_has_started_yet_is_waited_for(self) -> None:
        pod = evaluator(JOB, {}) | {"status": {}}
        assert told(JOB, [pod], None).verdict == "pending"
