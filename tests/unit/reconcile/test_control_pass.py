"""The control pass: one look at the fleet, a decision for each service, and the order in which others hear of it."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from outrider.core import engine_metrics as names
from outrider.core.acceptance import AcceptanceState
from outrider.core.decision import Change
from outrider.core.schedule import constant
from outrider.core.series import Missing, Series
from outrider.errors import EngineUnreachable, Malformed, Unreachable
from outrider.reconcile import control, demands, events
from outrider.reconcile.control import SAVE_EVERY_S, every
from tests.failures import Failure

from .builders import EAGER, KEY, World, busy_series, pod, settings, unavailable
from .fakes import NOW_S
from .virtual_time import in_virtual_time

GONE = Unreachable("PrometheusUnreachable", "Prometheus does not answer")
A, B = "10.0.0.1", "10.0.0.2"


async def serving(changes: dict[str, Any] | None = None, pods: int = 1) -> World:
    """`chat` with ready engines that run the initial schedule (K 3, generation 1), and a busy minute behind them."""
    world = World()
    world.add(EAGER if changes is None else changes)
    world.see(*(pod(f"chat-{'abc'[number]}", address=f"10.0.0.{number + 1}") for number in range(pods)))
    await world.settle()
    world.measure()
    return world


async def at_rest() -> World:
    """The same after the control pass has found nothing to change, and saved what it learnt."""
    world = await serving()
    world.measure(rate=0.7)  # between the thresholds: K stays
    await world.control.run()
    await world.settle()
    world.forget_writes()
    return world


async def next_pass(world: World, *, after_s: float = 15.0, rate: float = 0.7) -> None:
    world.clock.advance(after_s)
    world.measure(rate=rate)
    await world.control.run()


def schedule_of(world: World, name: str = "chat") -> str:
    state = world.service(name).state
    assert state is not None
    return f"{state.generation}: {state.schedule}"


class TestMetrics:
    @pytest.mark.parametrize("services", [1, 3, 30])
    async def test_one_fetch_serves_the_whole_fleet(self, services: int) -> None:
        world = World()
        for number in range(services):
            world.add(name=f"chat-{number}")
            await world.reconcile(f"chat-{number}")
        await world.control.run()
        assert len(world.metrics.asked) == 1

    @pytest.mark.parametrize(
        ("changes", "span_s"),
        [
            pytest.param({}, 40.0, id="two periods and two scrapes"),
            pytest.param({"control_period_s": 5.0}, 30.0, id="four scrapes and two"),
            pytest.param({"scrape_interval_s": 15.0}, 90.0, id="slow scrapes"),
        ],
    )
    async def test_the_fetch_reaches_back_to_the_sample_before_the_window(
        self, changes: dict[str, Any], span_s: float
    ) -> None:
        world = World(settings=settings(**changes))
        await world.control.run()
        assert world.metrics.asked == [(span_s, NOW_S)]

    @pytest.mark.failure("Prometheus", "answers one of three questions with nonsense")
    @pytest.mark.parametrize("error", [GONE, Malformed("PrometheusMalformed", "not a range vector")])
    async def test_without_metrics_everything_is_held_and_every_status_says_why(
        self, error: Unreachable | Malformed
    ) -> None:
        world = await at_rest()
        world.add(name="code")
        await world.reconcile("code")
        world.metrics.error = error
        world.clock.advance(15)
        await world.control.run()
        for name in ("chat", "code"):
            before = schedule_of(world, name)
            assert world.service(name).metrics == Missing(error.reason, error.message)
            await world.reconcile(name)
            assert world.condition("MetricsAvailable", name) == (
                "False",
                error.reason,
                f"{error.message}; speculation and replicas are held as they are",
            )
            assert schedule_of(world, name) == before

    async def test_they_are_believed_again_as_soon_as_they_are_back(self) -> None:
        world = await at_rest()
        world.metrics.error = GONE
        await world.control.run()
        world.metrics.error = None
        await next_pass(world)
        await world.reconcile()
        assert world.condition("MetricsAvailable") == ("True", "Fresh", "engine metrics arrive")

    @pytest.mark.failure(
        "Prometheus",
        "flapping: gone in every other pass",
        k="held while it is gone, decided while it is there; it changes no oftener than without",
        conditions=["MetricsAvailable False PrometheusUnreachable"],
        status="comes and goes with it",
        ends="with the first answer that is followed by another",
        guard="reconcile/control.py:ControlPass._fetch",
    )
    async def test_a_store_that_comes_and_goes_moves_no_more_than_a_steady_one(self, failure: Failure) -> None:
        steady, flapping = await serving(), await serving()
        for number in range(12):
            rate = 0.9 if number < 6 else 0.5
            await next_pass(steady, rate=rate)
            flapping.metrics.error = GONE if number % 2 else None
            before = schedule_of(flapping)
            await next_pass(flapping, rate=rate)
            await flapping.reconcile()
            if flapping.metrics.error is None:
                assert flapping.condition("MetricsAvailable") == ("True", "Fresh", "engine metrics arrive")
            else:
                assert (flapping.condition("MetricsAvailable") or ())[:2] == failure.condition("MetricsAvailable")
                assert schedule_of(flapping) == before
        assert schedule_of(flapping) == schedule_of(steady)
        assert flapping.engines.engines == steady.engines.engines

    @pytest.mark.failure(
        "Prometheus",
        "no series of one service",
        k="held for it alone",
        conditions=["MetricsAvailable False NoSeries"],
        alerts=["OutriderMetricsMissing"],
        ends="next pass",
        guard="core/observation.py:_condense",
    )
    async def test_a_service_without_series_is_held_alone(self) -> None:
        world = await serving()
        world.metrics.series = {("ml", "other"): busy_series(NOW_S)}
        await world.control.run()
        assert world.service().metrics == Missing("NoSeries", "Prometheus has no series of this service's ready pods")

    async def test_series_of_pods_that_do_not_serve_are_not_looked_at(self) -> None:
        world = await serving()
        world.see(pod(ready=False))
        await world.control.run()
        assert world.service().metrics == Missing("NoReadyEngine", "no engine is ready")

    async def test_what_was_learnt_once_is_not_learnt_again(self) -> None:
        world = await at_rest()
        state = world.service().state
        assert state is not None
        await world.control.run()  # woken at once: no time has passed, no sample has come
        assert world.service().state == state


async def learnt(*ready_since: str) -> tuple[AcceptanceState, float | None]:
    """Acceptance after a pass over engines ready since then, and requests in flight. Nearly all drafts of the first are
    accepted, hardly any of the others; each runs 8 requests."""
    world = World()
    world.add(EAGER)
    pods = [pod(f"chat-{'abc'[i]}", ready_since=since) for i, since in enumerate(ready_since)]
    world.see(*pods)
    await world.settle()
    names = [one.name for one in world.service().ready_pods]
    slow = busy_series(world.clock(), names[1:], rate=0.1)
    world.metrics.series[KEY] = [*busy_series(world.clock(), names[:1]), *slow]
    await world.control.run()
    outcome, state = world.service().outcome, world.service().state
    assert outcome is not None
    assert state is not None
    return state.acceptance, outcome.in_flight


class TestC28WarmUp:
    OLD, JUST_NOW, SETTLED = "2027-01-15T07:00:00Z", "2027-01-15T07:59:55Z", "2027-01-15T07:59:30Z"

    async def test_c28_nothing_is_learnt_from_an_engine_that_just_became_ready_and_its_load_counts(self) -> None:
        alone, _ = await learnt(self.OLD)
        beside, in_flight = await learnt(self.OLD, self.JUST_NOW)
        assert beside == alone
        assert in_flight == 16.0

    async def test_c28_two_periods_later_it_is(self) -> None:
        alone, _ = await learnt(self.OLD)
        beside, _ = await learnt(self.OLD, self.SETTLED)
        assert beside != alone

    async def test_c28_where_all_just_became_ready_there_is_nothing_else_to_learn_from(self) -> None:
        settled, _ = await learnt(self.OLD, self.SETTLED)
        new, _ = await learnt(self.JUST_NOW, self.JUST_NOW)
        assert new == settled


class TestDecision:
    async def test_it_is_remembered_then_delivered_then_announced(self) -> None:
        world = await serving()
        world.forget_writes()
        await world.control.run()
        assert schedule_of(world) == "2: 1-256:5"
        assert [line.rsplit(".", 1)[0] if "Event" in line else line for line in world.journal] == [
            "apply ConfigMap/chat-memory",
            f"put {A} generation 2",
            "create Event/chat",
        ]

    async def test_the_event_says_what_changed_and_why(self) -> None:
        world = await serving()
        await world.control.run()
        (event,) = world.kube.created("Event")
        assert event["reason"] == "ScheduleChanged"
        assert event["type"] == "Normal"
        assert event["message"] == "K 3 → K 5 (K = speculative tokens a step); acceptance rate 90% moves K 3→5"
        assert event["involvedObject"]["uid"] == "5f0c"

    async def test_all_ready_engines_hear_of_it(self) -> None:
        world = await serving(pods=3)
        await world.control.run()
        assert {engine.generation for engine in world.engines.engines.values()} == {2}

    async def test_children_and_status_are_asked_to_follow(self) -> None:
        world = await serving()
        world.forget_writes()
        await world.control.run()
        assert world.queued == [KEY]

    @pytest.mark.failure(
        "API server",
        "does not take what was decided",
        k="told to no engine before it is on record",
        ends="next pass",
        guard="reconcile/delivery.py:bring_up_to_date",
    )
    async def test_what_cannot_be_remembered_is_neither_delivered_nor_lost(self) -> None:
        world = await serving()
        world.kube.fail(unavailable, "apply", "ConfigMap/chat-memory")
        await world.control.run()
        assert world.engines.calls(A) == [1]
        world.kube.heal()
        world.journal.clear()
        await next_pass(world)
        assert world.journal[:2] == ["apply ConfigMap/chat-memory", f"put {A} generation 2"]

    @pytest.mark.failure(
        "Ourselves",
        "killed between decision and delivery",
        k="the decision is completed",
        ends="start-up",
        guard="reconcile/persistence.py:load",
    )
    async def test_a_crash_after_the_decision_is_made_up_for_by_the_next_process(self) -> None:
        world = await serving()
        world.engines.faults[A] = EngineUnreachable("EngineUnreachable", "the operator died here")
        await world.control.run()
        del world.engines.faults[A]
        world.restart()
        await world.settle()
        assert world.engines.engines[A].generation == 2
        document = json.loads(world.kube.live("ConfigMap", "chat-schedule")["data"]["schedule.json"])
        assert document["generation"] == 2

    async def test_an_event_that_cannot_be_posted_undoes_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        world = await serving()
        world.kube.fail(unavailable, "create")
        await world.control.run()
        assert world.engines.engines[A].generation == 2
        assert "event not posted" in caplog.text

    async def test_bounds_that_changed_are_announced_like_any_other_change(self) -> None:
        world = await serving()
        world.add({"spec.speculation.tuning": {"mode": "Fixed", "initialSpeculativeTokens": 2}}, generation=4)
        await world.reconcile()
        await world.control.run()
        assert [event["reason"] for event in world.kube.created("Event")] == ["EnginesRolling", "ScheduleChanged"]

    @pytest.mark.parametrize(
        "changes",
        [
            pytest.param({**EAGER, "spec.paused": True}, id="paused"),
            pytest.param(
                {"spec.speculation.tuning": {"mode": "Observe", "policy": "AcceptanceThreshold"}}, id="only observing"
            ),
            pytest.param({"spec.speculation.tuning": {"mode": "Fixed", "initialSpeculativeTokens": 3}}, id="fixed"),
        ],
    )
    async def test_who_may_not_decide_does_not(self, changes: dict[str, Any]) -> None:
        world = await serving(changes)
        await world.control.run()
        assert schedule_of(world) == "1: 1-256:3"
        assert world.kube.created("Event") == []

    @pytest.mark.parametrize("last", [pytest.param(64, id="ends early"), pytest.param(256, id="ends with the batch")])
    async def test_a_fixed_schedule_is_not_decided_again(self, last: int) -> None:
        rows = [
            {"first": 1, "last": 16, "speculativeTokens": 3},
            {"first": 17, "last": last, "speculativeTokens": 1},
        ]
        world = await serving({"spec.speculation.tuning": {"mode": "Fixed", "schedule": rows}})
        for _ in range(2):
            await next_pass(world)
        assert schedule_of(world) == "1: 1-16:3 17-256:1"
        assert world.kube.created("Event") == []


class TestQuiet:
    async def test_a_pass_without_changes_writes_nothing(self) -> None:
        world = await at_rest()
        for _ in range(8):
            await next_pass(world)
        assert world.journal == []

    async def test_what_was_learnt_is_saved_every_five_minutes(self) -> None:
        world = await at_rest()
        for _ in range(int(3 * SAVE_EVERY_S / 15)):
            await next_pass(world)
        assert world.journal == ["apply ConfigMap/chat-memory"] * 3

    async def test_a_large_fleet_is_saved_at_a_steady_rate(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(control, "SAVES_PER_SECOND", 1.0 / (3 * SAVE_EVERY_S))
        world = await at_rest()
        for _ in range(int(3 * SAVE_EVERY_S / 15)):
            await next_pass(world)
        assert world.journal == ["apply ConfigMap/chat-memory"]

    async def test_leases_are_renewed_on_the_way(self) -> None:
        world = await at_rest()
        world.clock.advance(1201 - 15)
        await next_pass(world)
        assert f"put {A} generation 1" in world.journal

    async def test_a_service_that_was_not_read_yet_is_left_alone(self) -> None:
        world = World()
        world.add()
        await world.control.run()
        assert (world.journal, world.queued) == ([], [])


class TestIsolation:
    async def fleet(self) -> World:
        """`chat` and `code`, both about to raise K."""
        world = await serving()
        world.add(EAGER, name="code")
        world.see(pod("code-a", service="code", address=B))
        await world.settle("code")
        world.measure(name="code")
        return world

    async def test_one_whose_memory_cannot_be_written_stops_no_other(self) -> None:
        world = await self.fleet()
        world.kube.fail(unavailable, "apply", "ConfigMap/chat-memory")
        await world.control.run()
        assert world.engines.engines[B].generation == 2

    async def test_one_whose_engine_does_not_answer_stops_no_other(self) -> None:
        world = await self.fleet()
        world.engines.faults[A] = EngineUnreachable("EngineUnreachable", "no answer")
        await world.control.run()
        assert world.engines.engines[B].generation == 2

    async def test_one_at_which_we_stumble_stops_no_other(self, caplog: pytest.LogCaptureFixture) -> None:
        """A series without samples breaks the core's contract, as a mistake of our own would."""
        world = await self.fleet()
        world.metrics.series[KEY].append(Series(names.STEPS[0], {"pod": "chat-a", "engine": "0"}, ()))
        await world.control.run()
        assert world.engines.engines[B].generation == 2
        assert any(record.levelno == logging.ERROR and record.service == "chat" for record in caplog.records)  # type: ignore[attr-defined]

    async def test_events_are_heard_between_the_decisions_of_a_pass(self) -> None:
        """A thousand decisions are seconds of arithmetic, and a changed spec must not wait for all of them."""
        world = World()
        names_ = [f"chat-{number}" for number in range(20)]
        for name in names_:
            world.add(EAGER, name)
        await world.settle()
        decided = [0]

        def note() -> None:
            decided.append(sum(world.service(name).outcome is not None for name in names_))
            if decided[-1] < len(names_):
                asyncio.get_running_loop().call_soon(note)

        asyncio.get_running_loop().call_soon(note)
        await world.control.run()
        assert len(decided) > len(names_)

    async def test_a_deleted_service_leaves_no_metrics_of_ours_behind(self) -> None:
        world = World()
        world.add(name="gone")
        world.see(pod("gone-a", service="gone"))
        await world.settle("gone")
        await world.control.run()
        labels = {"namespace": "ml", "service": "gone"}
        assert REGISTRY.get_sample_value("outrider_speculative_tokens", labels) == 3
        world.kube.take_away("SpeculativeInferenceService", "gone")
        await world.control.run()
        assert REGISTRY.get_sample_value("outrider_speculative_tokens", labels) is None


class TestPace:
    """`every`, in virtual time."""

    @staticmethod
    async def run(takes_s: float, wakes: tuple[float, ...] = (), for_s: float = 100.0) -> list[float]:
        loop, wake, begun = asyncio.get_running_loop(), asyncio.Event(), []

        async def one() -> None:
            begun.append(round(loop.time(), 3))
            await asyncio.sleep(takes_s)

        for at_s in wakes:
            loop.call_at(at_s, wake.set)
        task = asyncio.create_task(every(15.0, one, wake))
        await asyncio.sleep(for_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return begun

    @in_virtual_time
    async def test_passes_begin_at_a_steady_pace(self) -> None:
        assert await self.run(takes_s=2.0, for_s=50) == [0, 15, 30, 45]

    @in_virtual_time
    async def test_a_late_pass_is_not_made_up_for_and_the_next_takes_a_breath(self) -> None:
        assert await self.run(takes_s=40.0) == [0, 41, 82]

    @in_virtual_time
    async def test_a_wake_up_brings_the_next_pass_forward(self) -> None:
        assert await self.run(takes_s=1.0, wakes=(5.0,), for_s=40) == [0, 5, 20, 35]

    @in_virtual_time
    async def test_a_wake_up_during_a_pass_is_not_lost(self) -> None:
        assert await self.run(takes_s=4.0, wakes=(2.0, 3.0), for_s=15) == [0, 5]


async def test_a_probe_reaches_the_engines_and_is_no_change_that_is_counted_or_announced() -> None:
    """At K 0 without drafts the core looks again; how a look is decided is the core's."""
    world = await at_rest()
    state = world.service().state
    assert state is not None
    world.service().state = replace(state, schedule=constant(0, 256), drafts_seen_s=None)
    world.clock.advance(15)
    world.measure()
    drafting = (names.NUM_DRAFTS[0], names.NUM_DRAFT_TOKENS[0], names.NUM_ACCEPTED_TOKENS_PER_POS[0])
    world.metrics.series[KEY] = [one for one in world.metrics.series[KEY] if one.name not in drafting]
    labels = {"namespace": "ml", "service": "chat"}
    counted = REGISTRY.get_sample_value("outrider_schedule_changes_total", labels)
    await world.control.run()
    outcome = world.service().outcome
    assert outcome is not None
    assert [change.kind for change in outcome.changes] == ["Probe"]
    assert world.engines.engines[A].generation == 2
    assert world.kube.created("Event") == []
    assert REGISTRY.get_sample_value("outrider_schedule_changes_total", labels) == counted
    await world.reconcile()
    tuning = world.status()["tuning"]
    assert tuning["reason"].startswith("probe: acceptance never seen")
    assert world.status()["history"] == []


async def test_engines_that_a_decision_went_without_are_named() -> None:
    world = await serving(pods=2)
    late = [one for one in world.metrics.series[KEY] if one.labels["pod"] == "chat-b"]
    fresh = [one for one in world.metrics.series[KEY] if one.labels["pod"] == "chat-a"]
    world.metrics.series[KEY] = fresh + [replace(one, samples=one.samples[:1]) for one in late]
    await world.control.run()
    await world.reconcile()
    found = world.condition("MetricsAvailable")
    assert found is not None
    assert found[:2] == ("True", "Fresh")
    assert "without 1 engine" in found[2]
    assert "chat-b" in found[2]


async def test_a_target_that_moves_is_remembered_and_announced() -> None:
    """Through the same path as a schedule; the decision itself is the core's."""
    world = await at_rest()
    state = world.service().state
    assert state is not None
    world.service().state = replace(state, target=40)
    await events.post(world.service(), Change(NOW_S, "Target", "32", "40", "TPOT: 40 fit"), world.neighbours)
    await world.reconcile()
    (event,) = world.kube.created("Event")
    assert (event["reason"], event["message"]) == (
        "TargetChanged",
        "32 → 40 requests in flight a replica; TPOT: 40 fit",
    )
    thresholds = [one["metadata"]["threshold"] for one in world.kube.live("ScaledObject", "chat")["spec"]["triggers"]]
    assert thresholds == ["40", "5", "80"]


SCALED: dict[str, Any] = {"spec.autoscaling": {"minReplicas": 1, "maxReplicas": 6}}


def desired() -> float | None:
    return REGISTRY.get_sample_value("outrider_desired_replicas", {"namespace": "ml", "service": "chat"})


async def under_load(changes: dict[str, Any], running: float, pods: int = 2) -> World:
    """`chat` after a control pass with so many requests in flight on each of its engines."""
    world = await serving(changes, pods=pods)
    world.kube.edit("Deployment", "chat", {"spec": {"replicas": pods}}, manager=None)
    names = [one.name for one in world.service().ready_pods]
    world.metrics.series["ml", "chat"] = busy_series(world.clock(), names, running=running)
    await world.control.run()
    return world


@pytest.mark.parametrize(
    ("changes", "running", "replicas"),
    [
        pytest.param(SCALED, 40.0, 3.0, id="80 requests at 32 a replica"),
        pytest.param({"spec.autoscaling": {"minReplicas": 4, "maxReplicas": 6}}, 40.0, 4.0, id="at least the minimum"),
        pytest.param({"spec.autoscaling": {"minReplicas": 1, "maxReplicas": 2}}, 40.0, 2.0, id="at most the maximum"),
        pytest.param({"spec.autoscaling": {"mode": "External"}}, 160.0, 10.0, id="external, without a bound"),
        pytest.param(
            {"spec.autoscaling": {"mode": "External", "maxReplicas": 5}}, 160.0, 5.0, id="external, with a bound"
        ),
        pytest.param({"spec.autoscaling": None}, 40.0, None, id="nobody scales"),
    ],
)
async def test_autoscalers_can_read_how_many_replicas_are_wanted(
    changes: dict[str, Any], running: float, replicas: float | None
) -> None:
    await under_load(changes, running)
    assert desired() == replicas


async def test_a_number_of_replicas_that_nobody_knows_any_more_is_not_exported() -> None:
    world = await under_load(SCALED, 40.0)
    world.metrics.error = GONE
    await world.control.run()
    assert desired() is None
    world.metrics.error = None
    await world.control.run()
    assert desired() == 3.0
    world.add({"spec.model.id": ""})  # cannot work as it stands
    await world.reconcile()
    await world.control.run()
    assert desired() is None


def held() -> float | None:
    return REGISTRY.get_sample_value("outrider_held_requests", {"namespace": "ml", "service": "chat"})


@pytest.mark.parametrize(
    ("changes", "least", "requests"),
    [
        pytest.param(SCALED, 9, 33.0, id="both that run, of a target of 32"),
        pytest.param(SCALED, 1, None, id="the first one goes or stays by its load"),
        pytest.param({"spec.autoscaling": {"maxReplicas": 6, "scaleBy": "DesiredReplicas"}}, 9, None, id="by number"),
        pytest.param({"spec.autoscaling": {"mode": "External"}}, 9, None, id="external"),
        pytest.param({"spec.autoscaling": None}, 9, None, id="nobody scales"),
    ],
)
async def test_keda_can_read_how_many_requests_keep_the_replicas_that_bear_the_load(
    changes: dict[str, Any], least: int, requests: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demands, "_least", lambda _: least)
    world = await under_load(changes, 10.0)
    assert held() == requests
    world.metrics.error = GONE
    await world.control.run()
    assert held() is None, "what nobody knows any more holds nothing"


@pytest.mark.failure(
    "Prometheus",
    "an engine is scraped no more, and load falls",
    replicas="it counts as full",
    ends="with the scrape",
    guard="reconcile/demands.py:observe",
)
async def test_a_replica_that_prometheus_lost_sends_no_other_away() -> None:
    world = await under_load(SCALED, 40.0)
    world.metrics.series["ml", "chat"] = busy_series(world.clock(), ["chat-a"], running=20.0)
    await world.control.run()
    assert desired() == 2.0


async def test_bounds_that_wait_while_the_service_is_paused_change_nothing() -> None:
    world = await under_load(SCALED, 40.0)
    world.add({"spec.autoscaling": {"minReplicas": 6, "maxReplicas": 6}, "spec.paused": True})
    await world.reconcile()
    await world.control.run()
    assert desired() == 3.0


@pytest.mark.failure(
    "Ourselves",
    "its clock is set back",
    k="decided again two periods later; leases are renewed",
    ends="two control periods, however far it was set back",
    guard="core/past.py:nothing_ahead",
)
@pytest.mark.parametrize("ahead_s", [60.0, 3600.0, 31_536_000.0], ids=["a minute", "an hour", "a year"])
async def test_a_clock_that_was_ahead_costs_two_periods_and_not_all_that_it_was_ahead(ahead_s: float) -> None:
    world = await serving()
    await next_pass(world, after_s=ahead_s, rate=0.9)
    assert schedule_of(world) == "2: 1-256:5"
    world.restart()  # what was noted ahead of time is in the memory document
    await world.settle()
    world.clock.advance(-ahead_s)
    for _ in range(2):
        await next_pass(world, rate=0.5)
    assert schedule_of(world) == "3: 1-256:3"
    assert world.engines.calls(A)[-1] == 3


@pytest.mark.failure(
    "Engines",
    "acknowledges a schedule and goes on as before",
    k="the others follow; it is asked at the next generation or renewal",
    conditions=["ScheduleApplied False EngineRefused"],
    status="with what its metrics say instead",
    alerts=["OutriderScheduleNotApplied"],
    ends="when its steps show the schedule; until then it is asked at the renewal, a third of the lease later",
    guard="reconcile/delivery.py:check",
)
async def test_an_engine_that_agrees_and_goes_on_as_before_is_found_out(failure: Failure) -> None:
    world = await with_one_that_goes_on()
    *found, message = world.condition("ScheduleApplied") or ()
    assert tuple(found) == failure.condition("ScheduleApplied")
    assert message.startswith(
        "1 of 2 engines acknowledged schedule 2; engine 10.0.0.1 acknowledged schedule 2, and its"
    )
    assert world.engines.calls(A) == [1, 2], "it is not asked in every pass"
    await next_pass(world, rate=0.5)
    assert world.engines.calls(A) == [1, 2, 3]


@pytest.mark.failure("Engines", "acknowledges a schedule and goes on as before")
@pytest.mark.parametrize(
    ("generation", "k", "believed"),
    [
        pytest.param(2, 5, True, id="it follows: its samples were wrong before"),
        pytest.param(2, 3, False, id="it holds the schedule and runs another"),
        pytest.param(1, 5, False, id="another schedule with this K"),
    ],
)
async def test_one_that_is_seen_to_follow_after_all_is_believed_without_being_asked(
    generation: int, k: int, believed: bool
) -> None:
    world = await with_one_that_goes_on()
    world.clock.advance(30.0)
    world.measure(rate=0.7, k=5)
    world.metrics.series[KEY] += [holds(world, "chat-a", generation), steps(world, "chat-a", k)]
    await world.control.run()
    await world.reconcile()
    assert (world.condition("ScheduleApplied") or ())[0] == str(believed)
    assert world.engines.calls(A) == [1, 2]


async def with_one_that_goes_on() -> World:
    """`chat` with two engines a minute after both acknowledged the second schedule, of which one holds the first."""
    world = await serving(pods=2)
    await world.control.run()
    for _ in range(4):
        world.clock.advance(15.0)
        world.measure(rate=0.7)
        world.metrics.series[KEY] += [holds(world, "chat-a", 1), holds(world, "chat-b", 2)]
        await world.control.run()
    await world.reconcile()
    return world


def holds(world: World, pod: str, generation: int) -> Series:
    """The generation that the metrics of an engine tell."""
    samples = tuple((world.clock() - 5.0 * step, float(generation)) for step in range(12, -1, -1))
    return Series(names.SCHEDULE_GENERATION[0], {"pod": pod, "engine": "0"}, samples)


def steps(world: World, pod: str, k: int) -> Series:
    """Decode steps that the metrics of an engine tell."""
    samples = tuple((world.clock() - 5.0 * step, 1_000.0 - 100.0 * step) for step in range(9, -1, -1))
    labels = {"batch": "8", "speculative_tokens": str(k), "kind": "decode"}
    return Series(names.STEPS[0], {"pod": pod, "engine": "0", **labels}, samples)
