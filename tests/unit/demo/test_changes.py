"""Acknowledgement of a schedule, and what counters say about it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from demo import changes
from demo.changes import ChangeRecorder, Counters, shows
from demo.facts import Pod
from demo.neighbours import NoAnswer
from outrider.core.schedule import parse_text
from tests.unit.demo.builders import change, pod

SCHEDULE = parse_text("1-16:3 17-64:1 65-256:0")


def grown(steps: dict[tuple[int, int], float], depth: int) -> Counters:
    """Increases: steps by (batch bucket, K), and drafts at so many positions."""
    return Counters({position: 100.0 if position < depth else 0.0 for position in range(5)}, steps)


@pytest.mark.parametrize(
    ("counters", "agree"),
    [
        pytest.param(grown({(8, 3): 100}, 3), True, id="small batches draft three"),
        pytest.param(grown({(8, 3): 100}, 5), False, id="drafts beyond the schedule"),
        pytest.param(grown({(8, 5): 100}, 5), False, id="still the K from before"),
        pytest.param(grown({(16, 3): 50, (32, 1): 50}, 3), True, id="both sides of a border"),
        pytest.param(grown({(64, 1): 50}, 1), True, id="middling batches draft one"),
        pytest.param(grown({(64, 3): 50}, 3), False, id="the small batches' K at a middling one"),
        pytest.param(grown({(256, 0): 50}, 0), True, id="large batches draft nothing"),
        pytest.param(grown({}, 0), True, id="no traffic says nothing against it"),
    ],
)
def test_counters_agree_with_a_schedule(counters: Counters, agree: bool) -> None:
    assert shows(SCHEDULE, counters) is agree


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        pytest.param({(8, 3): 10, (16, 3): 10, (16, 1): 5}, "3,1", id="most frequent first"),
        pytest.param({(8, 3): 100, (8, 1): 1}, "3", id="rare ones left out"),
        pytest.param({}, "none", id="no steps"),
    ],
)
def test_k_of_the_steps(steps: dict[tuple[int, int], float], text: str) -> None:
    assert grown(steps, 3).k == text


@pytest.mark.parametrize(
    ("k_by_pod", "new"),
    [
        pytest.param({"a": "5 → 1", "b": "5 → 1"}, True, id="all pods"),
        pytest.param({"a": "5 → 1", "b": "1 → 1"}, False, id="one pod goes on as before"),
        pytest.param({"a": "5 → 1", "b": "none → 1"}, True, id="one pod had no traffic before"),
        pytest.param({"a": "5 → 1", "b": "5 → none"}, False, id="one pod has no traffic to show it by"),
    ],
)
def test_another_k_is_one_that_no_pod_used_before(k_by_pod: dict[str, str], new: bool) -> None:
    assert change(10.0, k_drafted=k_by_pod).new_k is new


def document(key: str, generation: int, schedule: str, service: str = "chat") -> dict[str, Any]:
    content = {"generation": generation, "schedule": parse_text(schedule).as_lists()}
    name = f"{service}-{key.partition('.')[0]}"
    return {
        "metadata": {"name": name, "labels": {"serving.outrider.dev/service": service}},
        "data": {key: json.dumps(content)},
    }


class FakeApi:
    """Has a mounted schedule of generation 1, and tells of memory documents as they are given."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.events = events

    async def get(self, path: str) -> dict[str, Any]:
        return {"items": [document("schedule.json", 1, "1-256:3"), document("schedule.json", 1, "1-256:5", "guest")]}

    async def watch(self, path: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        for event in self.events:
            yield "MODIFIED", event
        await asyncio.Event().wait()


class FakeEngines:
    """Takes over a generation at its second question, and counts steps of K 3 before and K 1 after."""

    def __init__(self, generation: int) -> None:
        self.generation, self.asked, self.looks = generation, 0, 0

    async def schedule(self, service: str, address: str) -> dict[str, Any]:
        self.asked += 1
        if self.asked == 1:
            raise NoAnswer("busy")
        return {"generation": self.generation if self.asked > 2 else 1}

    async def samples(self, address: str, prefix: str) -> list[tuple[str, dict[str, str], float]]:
        self.looks += 1
        old, new = min(self.looks, 2) * 100.0, max(0, self.looks - 2) * 100.0
        return [
            (changes.STEPS, {"batch": "8", "speculative_tokens": "3"}, old),
            (changes.STEPS, {"batch": "8", "speculative_tokens": "1"}, new),
            (changes.DRAFTED, {"position": "0"}, old + new),
            (changes.DRAFTED, {"position": "1"}, old),
        ]


async def recorded(
    monkeypatch: pytest.MonkeyPatch, engines: FakeEngines, pods: list[Pod], *events: dict[str, Any]
) -> ChangeRecorder:
    for name in ("POLL_S", "SETTLE_S", "BETWEEN_S"):
        monkeypatch.setattr(changes, name, 0.0)
    recorder = ChangeRecorder(FakeApi(*events), engines, "ml", ["chat"], lambda _: pods, time.monotonic())  # type: ignore[arg-type]
    await recorder.prime()
    await recorder.sample("chat")
    running = asyncio.create_task(recorder.run())
    async with asyncio.timeout(60):
        while not recorder.changes or recorder.changes[-1].counters_show_k is None:  # noqa: ASYNC110 - a list has no event
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return recorder


async def test_a_change_is_followed_from_the_record_to_the_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = FakeEngines(generation=2)
    recorder = await recorded(monkeypatch, engines, [pod()], document("memory.json", 2, "1-256:1"))
    (found,) = recorder.changes
    assert (str(found.before), str(found.after), found.generation) == ("1-256:3", "1-256:1", 2)
    assert found.ack_s is not None
    assert engines.asked == 3
    assert found.counters_show_k is True
    assert found.k_drafted == {"chat-1": "3 → 1"}


async def test_a_record_that_repeats_the_schedule_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [document("memory.json", 1, "1-256:3"), document("memory.json", 2, "1-256:3")]
    later = document("memory.json", 3, "1-256:1")
    recorder = await recorded(monkeypatch, FakeEngines(3), [pod()], *events, later, later)
    assert [one.generation for one in recorder.changes] == [3]


async def test_services_of_somebody_else_in_the_namespace_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [document("memory.json", 2, "1-256:1", service) for service in ("guest", "newcomer", "chat")]
    recorder = await recorded(monkeypatch, FakeEngines(2), [pod()], *events)
    assert [one.service for one in recorder.changes] == ["chat"]


async def test_a_pod_that_leaves_meanwhile_need_not_acknowledge(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(FakeEngines):
        async def schedule(self, service: str, address: str) -> dict[str, Any]:
            pods.clear()
            raise NoAnswer("gone")

    pods = [pod()]
    recorder = await recorded(monkeypatch, Silent(2), pods, document("memory.json", 2, "1-256:1"))
    assert recorder.changes[0].ack_s is not None
