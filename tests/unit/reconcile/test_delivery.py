"""A schedule on its way to the engines: who is due, what each answer leads to, and what one engine costs the others."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from outrider.errors import (
    EngineError,
    EngineUnreachable,
    KeyRefused,
    NotControllable,
    ScheduleRefused,
)
from outrider.manifests import secret
from outrider.reconcile import delivery
from outrider.reconcile.registry import Service
from tests.failures import Failure
from tests.unit.api.bodies import resource

from .builders import ENGINE_UID, World, pod, unavailable
from .fakes import FakeEngine

LEASE_S = 3600
A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
UNREACHABLE = EngineUnreachable("EngineUnreachable", f"engine {A}: no answer")


async def started() -> World:
    """`chat` with three ready engines that were not told anything yet, at generation 1."""
    world = World()
    world.add()
    await world.settle()
    world.see(pod("chat-a", address=A), pod("chat-b", address=B), pod("chat-c", address=C))
    world.forget_writes()
    return world


def at_generation(service: Service, generation: int) -> None:
    """Something was decided in the meantime."""
    assert service.state is not None
    service.state = replace(service.state, generation=generation)


def due(world: World) -> list[str]:
    return [one.name for one in delivery.due(world.service(), world.clock(), LEASE_S)]


async def bring(world: World) -> None:
    await delivery.bring_up_to_date(world.service(), world.neighbours)


class TestDue:
    async def test_every_ready_engine_that_was_never_told(self) -> None:
        assert due(await started()) == ["chat-a", "chat-b", "chat-c"]

    @pytest.mark.parametrize(
        "one",
        [
            pytest.param(pod(ready=False), id="it is not ready"),
            pytest.param(pod(terminating=True), id="it is on its way out"),
            pytest.param(pod(address=None), id="it has no address yet"),
        ],
    )
    async def test_a_pod_that_cannot_be_told_is_not_due(self, one: dict[str, object]) -> None:
        world = await started()
        world.see(one)
        assert due(world) == ["chat-b", "chat-c"]

    async def test_nobody_after_all_have_acknowledged(self) -> None:
        world = await started()
        await bring(world)
        assert due(world) == []

    @pytest.mark.parametrize(
        ("elapsed_s", "names"),
        [
            pytest.param(LEASE_S / 3 - 1, [], id="just before a third of the lease"),
            pytest.param(LEASE_S / 3 + 1, ["chat-a", "chat-b", "chat-c"], id="just after a third of the lease"),
        ],
    )
    async def test_leases_are_renewed_after_a_third(self, elapsed_s: float, names: list[str]) -> None:
        world = await started()
        await bring(world)
        world.clock.advance(elapsed_s)
        assert due(world) == names

    @pytest.mark.failure("Ourselves", "its clock is set back")
    async def test_an_answer_from_the_future_stops_no_renewal(self) -> None:
        world = await started()
        await bring(world)
        world.clock.advance(-2.0 * LEASE_S)
        assert due(world) == ["chat-a", "chat-b", "chat-c"]

    async def test_a_new_generation_makes_everybody_due(self) -> None:
        world = await started()
        await bring(world)
        at_generation(world.service(), 2)
        assert due(world) == ["chat-a", "chat-b", "chat-c"]

    async def test_a_new_pod_is_due_alone(self) -> None:
        world = await started()
        await bring(world)
        world.see(pod("chat-d", address="10.0.0.4"))
        assert due(world) == ["chat-d"]


class TestAnswers:
    async def test_engines_get_generation_schedule_and_lease(self) -> None:
        world = await started()
        await bring(world)
        state = world.service().state
        assert state is not None
        assert world.engines.engines[A] == FakeEngine(1, state.schedule, LEASE_S)
        assert world.service().acknowledged[ENGINE_UID + "chat-a"] == (1, world.clock())

    @pytest.mark.failure(
        "Engines",
        "one does not answer",
        k="the others follow",
        conditions=["ScheduleApplied False EngineRefused"],
        alerts=["OutriderScheduleNotApplied"],
        ends="next pass",
        guard="reconcile/delivery.py:_put",
    )
    async def test_one_that_does_not_answer_holds_nobody_up(self) -> None:
        world = await started()
        world.engines.faults[A] = UNREACHABLE
        await bring(world)
        assert set(world.engines.engines) == {B, C}
        assert world.service().refusals == {ENGINE_UID + "chat-a": f"engine {A}: no answer"}
        assert due(world) == ["chat-a"]

    async def test_its_refusal_is_forgotten_when_it_agrees(self) -> None:
        world = await started()
        world.engines.faults[A] = UNREACHABLE
        await bring(world)
        del world.engines.faults[A]
        await bring(world)
        assert world.service().refusals == {}
        assert due(world) == []

    async def test_an_engine_that_failed_a_renewal_counts_as_not_told(self) -> None:
        world = await started()
        await bring(world)
        world.clock.advance(LEASE_S / 2)
        world.engines.faults[A] = UNREACHABLE
        await bring(world)
        assert ENGINE_UID + "chat-a" not in world.service().acknowledged

    @pytest.mark.failure(
        "Engines",
        "holds a later generation",
        k="ours goes on above it, remembered first",
        ends="same pass",
        guard="reconcile/delivery.py:bring_up_to_date",
    )
    async def test_where_an_engine_is_ahead_of_us_we_go_on_above_it_and_remember_that_first(self) -> None:
        """The memory was lost, or another operator was here."""
        world = await started()
        world.engines.engines[B] = FakeEngine(17)
        await bring(world)
        state = world.service().state
        assert state is not None
        assert state.generation == 18
        assert {engine.generation for engine in world.engines.engines.values()} == {18}
        saved = world.journal.index("apply ConfigMap/chat-memory")
        assert all(saved < world.journal.index(f"put {address} generation 18") for address in (A, B, C))
        assert '"generation":18,' in world.kube.live("ConfigMap", "chat-memory")["data"]["memory.json"]
        assert world.service().refusals == {}

    async def test_several_engines_ahead_of_us_are_overtaken_at_once(self) -> None:
        world = await started()
        world.engines.engines |= {A: FakeEngine(9), B: FakeEngine(17)}
        await bring(world)
        assert {engine.generation for engine in world.engines.engines.values()} == {18}

    async def test_a_jump_that_cannot_be_remembered_is_not_delivered(self) -> None:
        world = await started()
        world.engines.engines[B] = FakeEngine(17)
        world.kube.fail(unavailable, "apply", "ConfigMap/chat-memory")
        assert await world.reconcile() is not None
        assert await world.reconcile() is not None
        assert world.engines.engines[B].generation == 17
        assert 18 not in [generation for _, generation in world.engines.asked]

    @pytest.mark.failure(
        "Engines",
        "takes another admin key",
        k="the Secret is read again",
        ends="next pass",
        guard="reconcile/delivery.py:_refused",
    )
    async def test_a_refused_key_is_read_again_by_the_next_objects_pass(self) -> None:
        world = await started()
        await bring(world)
        at_generation(world.service(), 2)
        world.engines.key = world.service().admin_key
        world.service().admin_key = "one that was rotated away"
        await bring(world)
        assert world.service().admin_key is None
        await world.reconcile()
        assert due(world) == []
        assert world.service().refusals == {}

    async def test_an_engine_that_wants_another_key_keeps_no_other_from_being_told(self) -> None:
        """More pods than are told at once: the key is given up while some of them still wait for their turn."""
        world = await started()
        world.see(*(pod(f"chat-{number:02}", address=f"10.0.1.{number}") for number in range(40)))
        world.engines.faults[A] = KeyRefused("AdminKeyRefused", "unknown key")
        await bring(world)
        assert len(world.engines.engines) == 42
        assert due(world) == ["chat-a"]

    @pytest.mark.failure(
        "Engines",
        "refuses the schedule",
        k="the others follow; it is asked at the next generation or renewal",
        conditions=["ScheduleApplied False EngineRefused"],
        alerts=["OutriderScheduleNotApplied"],
        guard="reconcile/delivery.py:_refused",
    )
    @pytest.mark.parametrize(
        "fault",
        [
            pytest.param(
                ScheduleRefused("ScheduleRefused", "K 5 has no graphs", ["K 5 has no graphs"]),
                id="a schedule that it cannot run",
            ),
            pytest.param(NotControllable("NotControllable", "one K for its whole life"), id="no schedule at all"),
        ],
    )
    async def test_an_engine_that_will_never_agree_is_not_asked_in_every_pass(self, fault: EngineError) -> None:
        """`outrider.errors`: do not send it again; leave it alone until its pod is replaced."""
        world = await started()
        world.engines.faults[A] = fault
        for _ in range(4):
            await bring(world)
            world.clock.advance(15)
        assert world.engines.calls(A) == [1]

    async def test_another_schedule_may_suit_an_engine_that_refused_one(self) -> None:
        world = await started()
        world.engines.faults[A] = ScheduleRefused("ScheduleRefused", "K 5 has no graphs", ["K 5 has no graphs"])
        await bring(world)
        at_generation(world.service(), 2)
        await bring(world)
        assert world.engines.calls(A) == [1, 2]

    @pytest.mark.failure(
        "Engines",
        "starts again in its pod",
        k="told anew",
        alerts=["OutriderEngineRestarts"],
        ends="next pass",
        guard="reconcile/registry.py:Registry._pod_event",
    )
    @pytest.mark.parametrize("fault", [NotControllable("NotControllable", "one K for its whole life"), UNREACHABLE])
    async def test_an_engine_that_started_again_in_its_pod_is_asked_again(self, fault: EngineError) -> None:
        """Perhaps with another image or another vLLM: what the one before it said does not hold."""
        world = await started()
        world.engines.faults[A] = fault
        await bring(world)
        del world.engines.faults[A]
        world.see(pod("chat-a", address=A, restarts=1))
        await bring(world)
        assert world.engines.calls(A) == [1, 1]
        assert world.service().refusals == {}


class TestRollout:
    @pytest.mark.failure(
        "Engines",
        "two generations during a rollout",
        k="all are brought to the present one; none goes back",
        conditions=["ScheduleApplied True Acknowledged"],
        ends="as each becomes ready, at the next pass",
        guard="reconcile/delivery.py:due",
    )
    async def test_pods_that_begin_with_an_older_schedule_are_brought_to_the_present_one(
        self, failure: Failure
    ) -> None:
        """The document that they mount is up to a minute behind."""
        world = await started()
        at_generation(world.service(), 5)
        await bring(world)
        present = world.engines.engines[A]
        world.engines.engines |= {"10.0.0.4": FakeEngine(4), "10.0.0.5": replace(present)}
        world.see(
            *(pod(f"chat-{name}", address=f"10.0.0.{last}", revision="r2") for name, last in (("d", 4), ("e", 5)))
        )
        world.forget_writes()
        await bring(world)
        assert set(world.engines.asked) == {("10.0.0.4", 5), ("10.0.0.5", 5)}
        assert list(world.engines.engines.values()) == [present] * 5
        await world.reconcile()
        assert world.condition("ScheduleApplied") == (
            *failure.condition("ScheduleApplied"),
            "all 5 engines acknowledged schedule 5",
        )


class TestRotation:
    """A key put in front of the old one reaches the operator and each engine at moments of their own."""

    @pytest.mark.parametrize("accepted", ["newer", "older"])
    async def test_whichever_key_an_engine_has_yet_it_is_told(self, accepted: str) -> None:
        world = await started()
        world.service().admin_key, world.service().older_keys = "newer", ("older",)
        world.engines.key = accepted
        await bring(world)
        assert due(world) == []
        assert world.service().refusals == {}
        assert world.service().admin_key == "newer"

    @pytest.mark.failure(
        "Engines",
        "still takes the older admin key",
        k="told with that one",
        ends="same pass",
        guard="reconcile/delivery.py:_with_any",
    )
    async def test_a_rotation_leaves_no_moment_in_which_an_engine_cannot_be_told(self) -> None:
        """Every order in which the Secret, the operator's look at it and the mount in the pod may come."""
        world = await started()
        made = resource({"metadata.uid": world.service().body["metadata"]["uid"]})
        old = world.service().admin_key
        assert old is not None
        generation = 2
        for stored, mounted in (
            ((old,), old),
            (("newer", old), old),
            (("newer", old), "newer"),
            (("newer",), "newer"),
        ):
            world.kube.put(
                secret.admin_secret(made, *stored) | {"metadata": world.kube.live("Secret", "chat-admin")["metadata"]}
            )
            world.engines.key = mounted
            for wait_s in (0, 301):
                world.clock.advance(wait_s)
                await world.reconcile()
                at_generation(world.service(), generation := generation + 1)
                await bring(world)
                assert due(world) == [], (stored, mounted, wait_s)
        assert (world.service().admin_key, world.service().older_keys) == ("newer", ())

    async def test_no_key_shows_where_a_service_is_printed(self) -> None:
        world = await started()
        world.service().older_keys = ("an older key",)
        assert str(world.service().admin_key) not in repr(world.service())
        assert "an older key" not in repr(world.service())


class TestWords:
    async def test_what_an_engine_says_is_kept_short_in_one_line_and_without_secrets(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whoever took over a pod writes the answer; it shows in status, events and log."""
        world = await started()
        key = world.service().admin_key
        said = f"engine {A}: you sent {key}\n2026-11-28 ERROR all is lost; token=hf_abcdefghijkl " + "x" * 200_000
        world.engines.faults[A] = EngineUnreachable("EngineUnreachable", said)
        await world.reconcile()
        (kept,) = world.service().refusals.values()
        assert len(kept) == delivery.WORDS
        assert kept.startswith(f"engine {A}: you sent *** 2026-11-28 ERROR all is lost; token=*** xxx")
        everything = f"{caplog.text} {world.status()} {[one.manifest for one in world.kube.writes]}"
        assert str(key) not in everything
        assert "hf_abcdefghijkl" not in everything
        assert len(everything) < 50_000


class TestNothingToDo:
    async def test_before_the_memory_was_read_nobody_is_told(self) -> None:
        world = World()
        world.add()
        world.see(pod())
        await bring(world)
        assert world.engines.asked == []

    async def test_without_a_key_nobody_is_told(self) -> None:
        world = await started()
        world.service().admin_key = None
        await bring(world)
        assert world.engines.asked == []

    async def test_a_pod_that_goes_while_it_is_told_leaves_nothing_behind(self) -> None:
        world = await started()
        world.engines.meanwhile = lambda: world.kube.take_away("Pod", "chat-a")
        await bring(world)
        known = {one.uid for one in world.service().pods.values()}
        assert world.service().acknowledged.keys() <= known

    async def test_a_pod_that_goes_while_it_refuses_leaves_nothing_behind(self) -> None:
        world = await started()
        world.engines.faults[A] = UNREACHABLE
        world.engines.meanwhile = lambda: world.kube.take_away("Pod", "chat-a")
        await bring(world)
        assert world.service().refusals == {}


async def test_only_so_many_engines_of_a_service_are_called_at_once() -> None:
    world = await started()
    world.see(*(pod(f"chat-{number:02}", address=f"10.0.1.{number}") for number in range(100)))
    open_calls, most = 0, 0
    plain = world.engines.put_schedule

    class Slow:
        async def put_schedule(self, *arguments: object) -> object:
            nonlocal open_calls, most
            open_calls += 1
            most = max(most, open_calls)
            await asyncio.sleep(0)
            open_calls -= 1
            return await plain(*arguments)  # type: ignore[arg-type]

    await delivery.bring_up_to_date(world.service(), replace(world.neighbours, engines=Slow()))  # type: ignore[arg-type]
    assert most == delivery.MAX_PARALLEL
    assert len(world.engines.engines) == 103
