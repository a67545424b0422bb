"""Events about decisions: what they say, and what it costs when one cannot be posted."""

from __future__ import annotations

import pytest

from outrider.core.decision import Change
from outrider.errors import Forbidden, Unavailable
from outrider.reconcile import events

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
            RAISED, "ScheduleChanged", "Normal", "1-256:3 → 1-256:5: acceptance rate 90% moves K 3→5", id="a schedule"
        ),
        pytest.param(
            Change(NOW_S, "Target", "32", "40", "TPOT: 40 fit"), "TargetChanged", "Normal", "32 → 40: TPOT: 40 fit",
            id="a target",
        ),
        pytest.param(
            Change(NOW_S, "Schedule", "1-256:5", "1-256:3", "rolled back: 80 tokens/s a request"),
            "ScheduleRolledBack",
            "Warning",
            "1-256:5 → 1-256:3: rolled back: 80 tokens/s a request",
            id="a change that did harm is taken back, and that is a warning",
        ),
    ],
)  # fmt: skip
async def test_what_an_event_says(world: World, change: Change, reason: str, type_: str, message: str) -> None:
    event = await posted(world, change)
    assert (event["reason"], event["type"], event["message"]) == (reason, type_, message)


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
