"""An operator that is killed at every single step of what it does, and the next one that finds what it left.

A step is a write that was carried out, and whose answer came too late: between two of them neighbours see nothing of
the process, so it is one to them where it died. No step is named by hand: a story is told up to the n-th write, for
every n that it has.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from outrider.adapters.engine import Acknowledgement
from outrider.core.schedule import Schedule
from outrider.reconcile.control import ControlPass
from outrider.reconcile.neighbours import Neighbours
from outrider.reconcile.objects import ObjectsPass
from tests.failures import Failure

from .builders import EAGER, FIXED_REPLICAS, KEY, World, pod
from .fakes import Manifest

A, B = "10.0.0.1", "10.0.0.2"
ENDLESS = 10_000
"""More writes than any story has."""
READS = ("get", "list", "serves", "engine_series", "compared_series")


class Killed(BaseException):
    """SIGKILL: nothing of the process may catch it."""


@dataclass
class Life:
    """Lasts for so many writes."""

    writes: int
    done: int = 0
    last: str = "at once"

    def go_on(self) -> None:
        if self.done == self.writes:
            raise Killed(self.last)

    def wrote(self, what: str) -> None:
        self.done, self.last = self.done + 1, f"after {what}"


class Mortal:
    """A neighbour as a process sees it whose life ends."""

    def __init__(self, neighbour: Any, life: Life) -> None:
        self._neighbour, self._life = neighbour, life

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any, **named: Any) -> Any:
            self._life.go_on()
            answer = await getattr(self._neighbour, name)(*arguments, **named)
            if name not in READS:
                target = arguments[0]
                self._life.wrote(f"{name} {target if isinstance(target, str) else target['kind']}")
                self._life.go_on()
            return answer

        return call


@dataclass
class Witness:
    """What neighbours see of one operator after the other, and what none of them may do. Stands before the engines."""

    world: World
    recorded: int = 1
    """Generation in the memory document; the first needs no record."""
    told: dict[int, str] = field(default_factory=dict)
    """Schedules by the generation under which engines were told."""
    replicas: set[int] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    """Noted, not raised: the operator would take it for a fault of its neighbour."""

    def saw(self, _: str, one: Manifest) -> None:
        """An object changed."""
        if one["metadata"]["name"] == "chat-memory":
            generation = document(one, "memory.json")["generation"]
            if generation < self.recorded:
                self.faults.append(f"the memory went from generation {self.recorded} back to {generation}")
            self.recorded = generation
        elif one["kind"] == "Deployment":
            self.replicas.add(one["spec"]["replicas"])

    async def put_schedule(
        self, address: str, key: str, generation: int, schedule: Schedule, lease_s: int
    ) -> Acknowledgement:
        if generation > self.recorded:
            self.faults.append(f"an engine heard of generation {generation}, and the memory holds {self.recorded}")
        if self.told.setdefault(generation, str(schedule)) != str(schedule):
            self.faults.append(f"generation {generation} was {self.told[generation]} and then {schedule}")
        return await self.world.engines.put_schedule(address, key, generation, schedule, lease_s)


def document(config_map: Manifest, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(config_map["data"][name])
    return found


@dataclass(frozen=True)
class Story:
    """What was there, what a user asks for then, and how it ends when nobody dies."""

    before: dict[str, Any] | None
    after: dict[str, Any]
    schedule: str
    replicas: int


def scaled(least: int) -> dict[str, Any]:
    return EAGER | {"spec.autoscaling": {"minReplicas": least, "maxReplicas": 20}}


FIXED = EAGER | FIXED_REPLICAS
STORIES = {
    "a service is made": Story(None, EAGER, "1-256:5", 1),
    "a decision is delivered": Story(EAGER, EAGER, "1-256:5", 1),
    "autoscaling is turned on": Story(FIXED, scaled(1), "1-256:5", 3),
    "autoscaling is turned off": Story(scaled(3), FIXED, "1-256:5", 3),
}


async def begun(story: Story) -> tuple[World, Witness]:
    """A world in which the user has just asked."""
    world = World()
    world.see(pod("chat-a", address=A), pod("chat-b", address=B))
    if story.before is not None:
        world.add(story.before)
        await world.settle()
    witness = Witness(world)
    world.add(story.after, generation=4)
    return world, witness


async def live(world: World, witness: Witness, life: Life) -> None:
    """A process, for two control periods or until it is killed."""
    kube, metrics, engines = (Mortal(one, life) for one in (world.kube, world.metrics, witness))
    world.restart()
    world.kube.listeners.append(witness.saw)
    neighbours = Neighbours(kube, metrics, engines, world.clock, world.settings)  # type: ignore[arg-type]
    objects = ObjectsPass(world.registry, neighbours, lambda: None)
    control = ControlPass(world.registry, neighbours, lambda key: None)
    try:
        for rate in (0.7, 0.9):  # the first moves nothing, so that the second finds a process that has settled
            await objects.run(KEY)
            world.clock.advance(15.0)
            world.measure(rate=rate)
            await control.run()
            await objects.run(KEY)
    except* Killed:  # perhaps within a group of tasks
        pass


@pytest.mark.failure(
    "Ourselves",
    "killed at every single step of what it does",
    k="the decision is on record before an engine hears of it; no generation goes back, none has two schedules",
    replicas="none goes, also while autoscaling is turned on or off",
    conditions=["ScheduleApplied True Acknowledged"],
    status="every change is in the history once",
    ends="start-up and two control periods",
    guard="reconcile/delivery.py:bring_up_to_date",
)
@pytest.mark.parametrize(
    ("story", "deaths"),
    [
        *(pytest.param(story, 1, id=name) for name, story in STORIES.items()),
        pytest.param(STORIES["a decision is delivered"], 2, id="a decision is delivered, and the next is killed there"),
    ],
)
async def test_whatever_step_it_is_killed_at_the_next_one_ends_where_it_would_have(
    story: Story, deaths: int, failure: Failure
) -> None:
    world, witness = await begun(story)
    whole = Life(ENDLESS)
    await live(world, witness, whole)
    for writes in range(whole.done + 1):
        world, witness = await begun(story)
        for _ in range(deaths):
            life = Life(writes)
            await live(world, witness, life)
        await live(world, witness, Life(ENDLESS))
        assert witness.faults == [], life.last
        assert ends(world) == (story.schedule, failure.condition("ScheduleApplied"), 1), life.last
        assert {*witness.replicas, world.kube.replicas()} == {story.replicas}, life.last


def ends(world: World) -> tuple[str, tuple[str, ...], int]:
    """The one schedule of memory, engines and the document for new pods; the condition; changes of the schedule."""
    remembered = document(world.kube.live("ConfigMap", "chat-memory"), "memory.json")
    mounted = document(world.kube.live("ConfigMap", "chat-schedule"), "schedule.json")
    state = world.service().state
    assert state is not None
    wanted = (state.generation, state.schedule)
    for one in (remembered, mounted):
        assert (one["generation"], one["schedule"]) == (state.generation, state.schedule.as_lists())
    assert [(one.generation, one.schedule) for one in world.engines.engines.values()] == [wanted, wanted]
    assert world.status()["tuning"]["generation"] == state.generation
    changes = [one for one in world.status()["history"] if one["kind"] == "Schedule"]
    return str(state.schedule), (world.condition("ScheduleApplied") or ())[:2], len(changes)
