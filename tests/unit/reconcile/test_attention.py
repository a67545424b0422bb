"""Of a large fleet a pass judges what moved and whose turn it is; the others stand, and are still told of."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from prometheus_client import REGISTRY

from outrider.core.series import Series
from outrider.core.standing import TURNS
from outrider.errors import Unreachable
from outrider.reconcile.attention import FEW, LOOK_AGAIN_S, PART, look_again_s, parts
from outrider.reconcile.control import ControlPass

from .builders import EAGER, World, busy_series, pod
from .fakes import NOW_S

RATE = 0.7
"""Between the thresholds: K stays."""


SERVICES = 6


async def fleet(services: int = SERVICES, few: int = SERVICES - 1) -> World:
    """Services that all have settled, more than a ``few``, and a pass in which each decision came to stand."""
    world = World()
    world.control = ControlPass(world.registry, world.neighbours, world.queued.append, few)
    for number in range(services):
        name = f"chat-{number}"
        world.add(EAGER, name=name)
        await world.reconcile(name)
        world.see(pod(f"{name}-a", service=name, address=f"10.0.0.{number + 1}"))
        await world.reconcile(name)
    for _ in range(3):
        await passes(world)
    for one in world.registry:
        await world.reconcile(one.key[1])
    world.forget_writes()
    return world


async def passes(world: World, moved: tuple[str, ...] = (), after_s: float = 15.0) -> set[str]:
    """One pass, before which some services' drafts are all rejected; returns those that were asked for."""
    world.clock.advance(after_s)
    for one in world.registry:
        name = one.key[1]
        found = busy_series(world.clock(), [each.name for each in one.ready_pods], rate=RATE)
        world.metrics.series[one.key] = [fallen(world, series) for series in found] if name in moved else found
    world.metrics.asked_of.clear()
    await world.control.run()
    return set().union(*(asked or {one.key[1] for one in world.registry} for asked in world.metrics.asked_of))


def fallen(world: World, series: Series) -> Series:
    """A counter that has stood still for a control period."""
    if "accepted" not in series.name:
        return series
    begin_s = world.clock() - 15.0
    frozen = next(value for time_s, value in series.samples if time_s >= begin_s)
    return replace(series, samples=tuple((time_s, min(value, frozen)) for time_s, value in series.samples))


async def test_a_small_fleet_is_judged_whole_and_nobody_glances() -> None:
    world = await fleet(2, FEW)
    assert await passes(world) == {"chat-0", "chat-1"}
    assert (world.metrics.glances, world.metrics.asked_of) == (0, [None])


async def test_each_service_is_judged_once_in_so_many_passes_and_not_all_in_the_same() -> None:
    world = await fleet()
    asked = [await passes(world) for _ in range(TURNS)]
    assert sorted(name for names in asked for name in names) == sorted(one.key[1] for one in world.registry)
    assert max(map(len, asked)) < SERVICES / 2


async def test_what_moved_is_judged_in_the_pass_that_sees_it_with_all_that_was_not_learnt_before() -> None:
    world = await fleet()
    for _ in range(TURNS):
        asked = await passes(world)
        name = next(one.key[1] for one in world.registry if one.key[1] not in asked)
    service = world.service(name)
    assert service.state is not None
    before_s = service.state.learned_until_s
    assert name in await passes(world, moved=(name,))
    assert service.state.learned_until_s == world.clock() > (before_s or 0.0)
    assert service.state.acceptance.rejected_windows == 1, "quiet periods were counted with the one that collapsed"


async def test_samples_are_read_no_further_back_than_to_what_was_not_learnt() -> None:
    world = await fleet()
    window_s, scrapes_s = world.settings.window_s, 2.0 * world.settings.scrape_interval_s
    everybody = tuple(one.key[1] for one in world.registry)

    async def span_s(moved: tuple[str, ...]) -> tuple[float, float]:
        """What a pass asked for, and the longest time that one of those it asked for had not learnt from."""
        before = {one.key[1]: one.state.learned_until_s or 0.0 for one in world.registry if one.state is not None}
        world.metrics.asked.clear()
        asked = await passes(world, moved)
        ((found_s, at_s),) = world.metrics.asked
        return found_s, max(at_s - before[name] for name in asked)

    for _ in range(TURNS - 1):
        await passes(world)
    found_s, unlearnt_s = await span_s(everybody)
    assert found_s == unlearnt_s + scrapes_s > 2 * window_s
    assert await span_s(everybody) == (window_s + scrapes_s, 15.0)


async def test_what_stood_longest_does_not_make_the_others_answers_long() -> None:
    """Services are asked for in parts of about the same need."""
    world = await fleet(PART + 2)
    for _ in range(3):
        await passes(world)
    moved = {one.key[1]: one.state.learned_until_s or 0.0 for one in world.registry if one.state is not None}
    world.metrics.asked.clear()
    await passes(world, moved=tuple(moved))
    assert [len(asked or ()) for asked in world.metrics.asked_of] == [PART, 2]
    first_s, last_s = (span_s for span_s, _ in world.metrics.asked)
    assert first_s <= last_s
    first, last = ({moved[name] for name in asked or ()} for asked in world.metrics.asked_of)
    assert min(first) >= max(last)


async def test_a_long_pass_tells_that_it_gets_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The liveness probe listens; the first pass over thousands of services takes longer than it waits."""
    monkeypatch.setattr("outrider.reconcile.control.parts", lambda services: parts(services, 2))
    world, judged = await fleet(), list[int]()
    for one in world.registry:
        one.outcome = None

    def got_on() -> None:
        judged.append(sum(one.outcome is not None for one in world.registry))

    await ControlPass(world.registry, world.neighbours, world.queued.append, 1, got_on).run()
    assert judged == [2, 4, SERVICES]


async def test_a_collapse_is_answered_as_soon_as_in_a_small_fleet() -> None:
    """Two windows without an accepted draft end drafting, here as there."""

    async def answered(world: World, name: str) -> int:
        for number in range(1, 6):
            await passes(world, moved=(name,))
            state = world.service(name).state
            assert state is not None
            if max(state.schedule.values) < 3:
                return number
        return 0

    large, small = await fleet(), await fleet(1)
    assert await answered(large, "chat-0") == await answered(small, "chat-0") > 0


async def test_of_a_service_that_stands_everything_is_told_again() -> None:
    world = await fleet()
    held = {"namespace": "ml", "service": "chat-0"}
    for _ in range(2 * TURNS):
        await passes(world)
    service = world.service("chat-0")
    assert service.demand.looks[-1][0] == world.clock(), "what it wants would be forgotten in two minutes"
    assert REGISTRY.get_sample_value("outrider_desired_replicas", held) == 1.0


async def test_schedules_are_renewed_while_decisions_stand() -> None:
    world = await fleet()
    world.engines.asked.clear()
    for _ in range(int(world.settings.lease_s / 15.0) + 1):
        await passes(world)
    assert {address for address, *_ in world.engines.asked} == {f"10.0.0.{number + 1}" for number in range(SERVICES)}


async def test_a_service_that_is_well_and_has_nothing_to_tell_is_looked_at_every_two_minutes() -> None:
    world = await fleet()
    looked: dict[str, list[float]] = {one.key[1]: [] for one in world.registry}
    for _ in range(30):
        await passes(world)
        for key in dict.fromkeys(world.queued):
            looked[key[1]].append(world.clock() - NOW_S)
            await world.reconcile(key[1])
        world.queued.clear()
    for moments in looked.values():
        apart = [later - earlier for earlier, later in pairwise(moments)]
        assert apart
        assert min(apart[1:]) >= LOOK_AGAIN_S


@pytest.mark.parametrize(("services", "seconds"), [(33, 120.0), (960, 120.0), (1600, 200.0), (5000, 300.0)])
def test_a_large_fleet_takes_longer_for_a_look_at_all_of_it(services: int, seconds: float) -> None:
    assert look_again_s(services) == seconds


async def test_an_engine_that_is_not_ready_is_looked_at_every_half_minute() -> None:
    world = await fleet()
    world.see(pod("chat-0-b", service="chat-0", address="10.0.1.1", ready=False))
    count = 0
    for _ in range(8):
        await passes(world)
        if ("ml", "chat-0") in world.queued:
            count += 1
            await world.reconcile("chat-0")
        world.queued.clear()
    assert count == 4


async def test_without_metrics_all_are_held_after_one_question() -> None:
    world = await fleet()
    world.metrics.error = Unreachable("PrometheusUnreachable", "Prometheus does not answer")
    world.metrics.glances = 0
    assert await passes(world) == set()
    assert world.metrics.glances == 1
    assert {one.metrics.reason for one in world.registry if one.metrics is not None} == {"PrometheusUnreachable"}
    assert all(one.metrics is not None for one in world.registry)
    world.metrics.error = None
    assert len(await passes(world)) == SERVICES
    assert all(one.metrics is None for one in world.registry)


async def test_a_service_whose_series_went_is_judged_at_once() -> None:
    world = await fleet()
    await passes(world)
    world.metrics.series.pop(("ml", "chat-3"))
    world.clock.advance(15.0)
    await world.control.run()
    missing = world.service("chat-3").metrics
    assert missing is not None
    assert missing.reason in ("NoSeries", "MetricsStale")


async def test_a_service_made_anew_under_a_name_inherits_nothing() -> None:
    world = await fleet()
    old = world.kube.live("SpeculativeInferenceService", "chat-5")
    world.registry.forget(("ml", "chat-5"), old["metadata"]["uid"])
    world.registry.resource_event("ADDED", {**old, "metadata": {**old["metadata"], "uid": "another"}})
    await world.reconcile("chat-5")
    world.service("chat-5").pods.update(world.service("chat-4").pods)
    assert "chat-5" in await passes(world)


@pytest.mark.parametrize(("services", "sizes"), [(0, []), (1, [1]), (PART, [PART]), (PART + 1, [PART, 1])])
async def test_no_more_samples_are_held_at_a_time_than_those_of_a_part(services: int, sizes: list[int]) -> None:
    one = World().add()
    assert [len(part) for part in parts([one] * services)] == sizes
