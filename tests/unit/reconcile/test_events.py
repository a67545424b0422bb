"""Events about decisions: what they say, and what it costs when one cannot be posted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.api.conditions import Condition, condition
from outrider.api.defaults import resolve
from outrider.core.decision import Change
from outrider.core.state import initial_state
from outrider.errors import Forbidden, Unavailable
from outrider.reconcile import events
from tests.unit.api.bodies import resource
from tests.unit.core.builders import config

from .builders import World
from .fakes import NOW_S, Manifest

RAISED = Change(NOW_S, "Schedule", "1-256:3", "1-256:5", "acceptance rate 90% moves K 3→5")


@pytest.fixture
def world() -> World:
    world = World()
    world.add()
    return world


async def posted(world: World, change: Change) -> Manifest:
    await events.post(world.service(), change, world.neighbours)
    (event,) = world.kube.created("Event")
    return event


def test_times_are_written_as_the_api_server_writes_them() -> None:
    assert events.rfc3339(NOW_S + 0.9) == "2027-01-15T08:00:00Z"


@pytest.mark.parametrize(
    ("change", "reason", "type_", "message"),
    [
        pytest.param(
            RAISED, "ScheduleChanged", "Normal",
            "K 3 → K 5 (K = speculative tokens a step); acceptance rate 90% moves K 3→5",
            id="a schedule",
        ),
        pytest.param(
            Change(NOW_S, "Schedule", "1-256:3", "1-42:5 43-126:3 127-256:1", "at batch 9 K 3→5: 4 ms a token"),
            "ScheduleChanged",
            "Normal",
            "K 3 → K 5 up to batch 42, 3 up to 126, 1 beyond (K = speculative tokens a step);"
            " at batch 9 K 3→5: 4 ms a token",
            id="a schedule of several rows",
        ),
        pytest.param(
            Change(NOW_S, "Target", "32", "40", "TPOT: 40 fit"), "TargetChanged", "Normal",
            "32 → 40 requests in flight a replica; TPOT: 40 fit",
            id="a target",
        ),
        pytest.param(
            Change(NOW_S, "Schedule", "1-256:5", "1-256:3", "rolled back: 80 tokens/s a request"),
            "ScheduleRolledBack",
            "Warning",
            "K 5 → K 3 (K = speculative tokens a step); rolled back: 80 tokens/s a request",
            id="a change that did harm is taken back, and that is a warning",
        ),
    ],
)  # fmt: skip
async def test_what_an_event_says(world: World, change: Change, reason: str, type_: str, message: str) -> None:
    event = await posted(world, change)
    assert (event["reason"], event["type"], event["message"]) == (reason, type_, message)


async def test_k_is_explained_once(world: World) -> None:
    earlier = Change(NOW_S - 60, "Schedule", "1-256:5", "1-256:3", "at batch 8")
    world.service().state = replace(initial_state(config()), history=(RAISED, earlier))
    event = await posted(world, RAISED)
    assert event["message"] == "K 3 → K 5; acceptance rate 90% moves K 3→5"


TEMPLATE: Manifest = {
    "spec": {
        "nodeSelector": {"gpu": "H100"},
        "containers": [
            {"name": "mesh", "image": "proxy:1"},
            {
                "name": "engine",
                "image": "vllm:1",
                "args": ["--model", "m", "--max-num-seqs", "256", "--seed=1", "-tp", "2"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}],
                "resources": {"limits": {"gpu": "1"}},
            },
        ],
    }
}


def template(engine: Manifest, spec: Manifest | None = None) -> Manifest:
    mesh, old = TEMPLATE["spec"]["containers"]
    return {"spec": {**TEMPLATE["spec"], **(spec or {}), "containers": [mesh, {**old, **engine}]}}


@pytest.mark.parametrize(
    ("after", "fields"),
    [
        pytest.param(template({}), [], id="nothing"),
        pytest.param(
            template({"args": ["--model", "m", "--max-num-seqs", "128", "--seed=2", "-tp", "2", "--new"]}),
            ["--max-num-seqs", "--new", "--seed"],
            id="arguments by their flag",
        ),
        pytest.param(
            template({"env": [{"name": "A", "value": "2"}, {"name": "C", "value": "1"}]}), ["A", "B", "C"],
            id="variables by name",
        ),
        pytest.param(template({"image": "vllm:2", "resources": {}}), ["image", "resources"], id="the container"),
        pytest.param(template({}, {"nodeSelector": {}}), ["nodeSelector"], id="the pod"),
        pytest.param(
            {"spec": {**TEMPLATE["spec"], "containers": TEMPLATE["spec"]["containers"][1:]}}, ["container mesh"],
            id="a container beside the engine",
        ),
        pytest.param(
            {**TEMPLATE, "metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}}}, ["annotations", "labels"],
            id="what the user calls it",
        ),
        pytest.param(
            {**TEMPLATE, "metadata": {"labels": {"serving.outrider.dev/revision": "r2"}}}, [], id="what we call it",
        ),
    ],
)  # fmt: skip
def test_what_is_other_about_a_template(after: Manifest, fields: list[str]) -> None:
    assert events.template_changes(TEMPLATE, after) == fields


@pytest.mark.parametrize(
    ("rollout", "pace"),
    [
        pytest.param(None, "one at a time", id="without spare GPUs"),
        pytest.param({"maxSurge": 1, "maxUnavailable": 0}, "one at a time", id="with one"),
        pytest.param({"maxSurge": 2}, "up to 3 at a time", id="with two"),
        pytest.param({"strategy": "Recreate"}, "all at once", id="as asked"),
    ],
)
async def test_how_engines_are_replaced(world: World, rollout: Manifest | None, pace: str) -> None:
    world.add({"spec.rollout": rollout}, generation=4)
    await world.settle()
    world.add({"spec.rollout": rollout, "spec.engine": {"maxNumSeqs": 128}}, generation=5)
    await world.settle()
    (event,) = world.kube.created("Event")
    assert event["message"].startswith(f"the engines are replaced {pace}, for a change of --max-num-seqs")


async def test_what_is_stuck_is_warned_of_once(world: World) -> None:
    now = condition("CapacityLimited", True, "NoFreeGPU", "1 of 2 engines serves", 3)
    for before in (None, now):
        await events.stuck(world.service(), before, now, world.neighbours)
    (event,) = world.kube.created("Event")
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "NoFreeGPU", "1 of 2 engines serves")


class TestNotReady:
    @staticmethod
    async def warnings(world: World, *reasons: str) -> list[str]:
        """The service goes through these reasons a minute apart, ready where one is empty; what was warned of."""
        before: Condition | None = None
        for reason in reasons:
            now = condition("Ready", not reason, reason or "EnginesServe", "a sentence", 3)
            await events.not_ready(world.service(), before, now, world.neighbours)
            before = now
            world.clock.advance(60)
        posted = world.kube.created("Event")
        assert all(one["type"] == "Warning" and one["message"] == "not ready: a sentence" for one in posted)
        return [one["reason"] for one in posted]

    @pytest.mark.parametrize(
        ("reasons", "warned"),
        [
            pytest.param(["NoPods", "Starting", ""], [], id="a service that starts is no news"),
            pytest.param(["NoPods", "NameTaken", "NameTaken", ""], ["NameTaken"], id="a fault is told once"),
            pytest.param(["", "Starting"], ["Starting"], id="the last engine is gone"),
            pytest.param(
                ["Starting", "EngineCrashLoop", "Starting", "EngineCrashLoop", "Starting", "EngineCrashLoop"],
                ["EngineCrashLoop"],
                id="a crash loop comes and goes",
            ),
            pytest.param(
                ["EngineCrashLoop", *[""] * 5, "EngineCrashLoop"],
                ["EngineCrashLoop", "EngineCrashLoop"],
                id="the same again, later",
            ),
            pytest.param(["NameTaken", "Forbidden"], ["NameTaken", "Forbidden"], id="one fault after the other"),
        ],
    )
    async def test_each_turn_is_told_once(self, world: World, reasons: list[str], warned: list[str]) -> None:
        assert await self.warnings(world, *reasons) == warned

    async def test_where_services_sleep_an_engine_that_is_gone_is_no_news(self, world: World) -> None:
        world.service().resolved = replace(resolve(resource().spec), idle_after_s=300)
        assert await self.warnings(world, "", "Starting", "", "EngineCrashLoop") == ["EngineCrashLoop"]

    async def test_unknown_is_no_turn(self, world: World) -> None:
        unknown = condition("Ready", None, "APIServerUnreachable", "no answer", 3)
        await events.not_ready(world.service(), None, unknown, world.neighbours)
        assert world.kube.created("Event") == []


@pytest.mark.parametrize(
    ("reasons", "warned"),
    [
        pytest.param(["InsufficientData", "DraftsAccepted"], [], id="drafts that are accepted are no news"),
        pytest.param(
            ["DraftsAccepted", *["AcceptanceDeclining"] * 9], ["AcceptanceDeclining"], id="a decline is told once"
        ),
        pytest.param(
            ["AcceptanceDeclining", "AcceptanceCollapsed", "AcceptanceDeclining"],
            ["AcceptanceDeclining", "AcceptanceCollapsed"],
            id="a collapse is told beside it",
        ),
    ],
)
async def test_what_is_warned_of_drafts(world: World, reasons: list[str], warned: list[str]) -> None:
    before: Condition | None = None
    for reason in reasons:
        now = condition("SpeculationHealthy", reason != "AcceptanceCollapsed", reason, "a sentence", 3)
        await events.unhealthy_speculation(world.service(), before, now, world.neighbours)
        before = now
        world.clock.advance(60)
    posted = world.kube.created("Event")
    assert [(one["type"], one["reason"], one["message"]) for one in posted] == [
        ("Warning", reason, "a sentence") for reason in warned
    ]


async def test_an_event_is_about_the_resource_as_it_lives(world: World) -> None:
    event = await posted(world, RAISED)
    assert event["involvedObject"] == {
        "apiVersion": "serving.outrider.dev/v1alpha1",
        "kind": "SpeculativeInferenceService",
        "name": "chat",
        "namespace": "ml",
        "uid": "5f0c",
    }
    assert event["metadata"]["namespace"] == "ml"
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2027-01-15T08:00:00Z"


async def test_a_message_that_the_api_server_would_refuse_is_cut(world: World) -> None:
    event = await posted(world, Change(NOW_S, "Schedule", "1-256:3", "1-256:5", "word " * 400))
    assert len(event["message"]) == 1024
    assert event["message"].endswith("…")


async def test_two_changes_of_one_pass_are_two_events(world: World) -> None:
    await events.post(world.service(), RAISED, world.neighbours)
    await events.post(world.service(), Change(NOW_S, "Target", "32", "40", "TPOT"), world.neighbours)
    assert len({event["metadata"]["name"] for event in world.kube.created("Event")}) == 2


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(lambda: Unavailable("APIServerUnreachable", "no answer"), id="the API server is away"),
        pytest.param(lambda: Forbidden("Forbidden", "cannot create events", 403), id="a right is missing"),
    ],
)
async def test_an_event_that_cannot_be_posted_is_logged_and_forgotten(
    world: World, caplog: pytest.LogCaptureFixture, error: object
) -> None:
    world.kube.fail(error, "create")  # type: ignore[arg-type]
    await events.post(world.service(), RAISED, world.neighbours)
    assert "event not posted" in caplog.text
