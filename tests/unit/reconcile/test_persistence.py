"""The memory document: read at most once a process, whatever it holds, and never anybody else's."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from outrider.core.memory import to_document
from outrider.core.schedule import parse_text
from outrider.core.state import ControllerState, initial_state
from outrider.errors import NotReady
from outrider.manifests import config_maps
from outrider.reconcile import persistence
from tests.unit.api.bodies import resource
from tests.unit.core.builders import config

from .builders import UID, World, unavailable

REMEMBERED = replace(initial_state(config()), schedule=parse_text("1-24:5 25-256:1"), generation=17, target=42)


def document(**changes: Any) -> str:
    return json.dumps(to_document(REMEMBERED) | changes)


def stored(world: World, text: str, uid: str = UID) -> None:
    """A document that an earlier process wrote, for the resource with this UID."""
    world.kube.put(config_maps.memory(resource({"metadata.uid": uid}), text))


@pytest.fixture
def world() -> World:
    world = World()
    world.add().resource = resource({"metadata.uid": UID})
    return world


async def load(world: World) -> ControllerState:
    texts = await persistence.read(world.service(), world.neighbours)
    return persistence.load(world.service(), config(), texts)


async def test_a_new_service_begins_at_the_beginning(world: World) -> None:
    assert await load(world) == initial_state(config())


async def test_what_was_remembered_is_taken_up(world: World, caplog: pytest.LogCaptureFixture) -> None:
    stored(world, document())
    assert await load(world) == REMEMBERED
    assert caplog.text == ""


async def test_what_is_saved_can_be_read_by_the_next_process(world: World) -> None:
    world.service().state = REMEMBERED
    await persistence.save(world.service(), world.neighbours)
    assert world.service().saved_s == world.clock()
    world.restart()
    assert await load(world) == REMEMBERED


async def test_the_memory_of_a_deleted_namesake_is_not_ours(world: World) -> None:
    stored(world, document(), uid="the one before")
    assert await load(world) == initial_state(config())


@pytest.mark.failure(
    "Ourselves",
    "its memory is damaged",
    k="initial schedule, learnt anew",
    status="the log says so",
    guard="core/memory.py:from_document",
)
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("", "not a JSON object", id="empty"),
        pytest.param('{"version": 1, "sched', "not a JSON object", id="cut off"),
        pytest.param("[1, 2]", "not a JSON object", id="something else"),
        pytest.param("{}", "has version None, not 1", id="no version"),
        pytest.param(document(version=2), "has version 2, not 1", id="of a later operator"),
        pytest.param(document(schedule=[[1, 24, 5], [20, 256, 1]]), "is damaged", id="a schedule that overlaps"),
        pytest.param(document(generation="many"), "is damaged", id="a number that is none"),
        pytest.param(document(generation=float("inf")), "is damaged", id="a number without end"),
        pytest.param(document(acceptance=[]), "is damaged", id="another form"),
        pytest.param(document(trial={"before": [[1, 256, 3]]}), "is damaged", id="half a trial"),
        pytest.param(document(history=[{"kind": "Schedule"}]), "is damaged", id="half a change"),
    ],
)
async def test_a_damaged_document_costs_what_was_learnt_and_no_more(
    world: World, caplog: pytest.LogCaptureFixture, text: str, sentence: str
) -> None:
    stored(world, text)
    assert await load(world) == initial_state(config())
    assert "starting afresh" in caplog.text
    assert sentence in caplog.text


async def test_a_config_map_without_data_costs_no_more_either(world: World) -> None:
    stored(world, "")
    del world.kube.objects["ConfigMap", "ml", "chat-memory"]["data"]
    assert await load(world) == initial_state(config())


async def test_a_memory_that_cannot_be_read_is_no_empty_memory(world: World) -> None:
    world.kube.fail(unavailable, "get", "ConfigMap/chat-memory")
    with pytest.raises(type(unavailable())):
        await load(world)


async def test_a_save_that_fails_is_not_taken_for_one(world: World) -> None:
    world.service().state = REMEMBERED
    world.kube.fail(unavailable, "apply")
    with pytest.raises(type(unavailable())):
        await persistence.save(world.service(), world.neighbours)
    assert world.service().saved_s == 0.0


async def test_somebody_elses_config_map_of_that_name_is_not_written_over(world: World) -> None:
    before = world.kube.put(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "chat-memory", "namespace": "ml"},
            "data": {"memory.json": "what a chat application keeps"},
        }
    )
    world.service().state = REMEMBERED
    with pytest.raises(NotReady, match="ConfigMap/chat-memory exists and belongs to someone else"):
        await persistence.save(world.service(), world.neighbours)
    assert world.kube.live("ConfigMap", "chat-memory") == before


@pytest.mark.parametrize("change", [{"data": {"memory.json": "{"}}, None], ids=["spoilt", "deleted"])
async def test_a_document_that_somebody_meddles_with_is_written_again(
    world: World, change: dict[str, Any] | None
) -> None:
    service = world.service()
    service.state = REMEMBERED
    await persistence.record(service, world.neighbours)
    written = world.kube.live("ConfigMap", "chat-memory")["data"]
    await persistence.record(service, world.neighbours)
    assert world.kube.applied() == ["ConfigMap/chat-memory"]
    if change is None:
        world.kube.take_away("ConfigMap", "chat-memory")
        service.forget_child("ConfigMap/chat-memory")
    else:
        spoilt = world.kube.put(world.kube.live("ConfigMap", "chat-memory") | change)
        service.saw("ConfigMap/chat-memory", spoilt)
    await persistence.record(service, world.neighbours)
    assert world.kube.live("ConfigMap", "chat-memory")["data"] == written


async def test_the_document_goes_with_the_resource(world: World) -> None:
    world.service().state = REMEMBERED
    await persistence.save(world.service(), world.neighbours)
    owners = world.kube.live("ConfigMap", "chat-memory")["metadata"]["ownerReferences"]
    assert [owner["uid"] for owner in owners] == [UID]
