"""What users read of a service, and how rarely it is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.defaults import resolve
from outrider.api.status import EffectiveSettings, Status
from outrider.core.acceptance import Estimate
from outrider.core.capacity import UNKNOWN, Capacity
from outrider.core.controller import Outcome
from outrider.core.decision import Change, Hold, Proposal
from outrider.core.schedule import Row, Schedule, parse_text
from outrider.core.state import ControllerState, Probe, initial_state
from outrider.errors import InvalidSpec
from outrider.reconcile import status
from outrider.reconcile.registry import Service
from outrider.reconcile.status import SOFT_EVERY_S
from tests.unit.api.bodies import resource
from tests.unit.core.builders import config

from .builders import ENGINE_UID, UID, World, pod, unavailable
from .fakes import NOW_S

STATE = replace(initial_state(config()), schedule=parse_text("1-24:5 25-256:1"), generation=17, target=40)
OUTCOME = Outcome(
    state=STATE,
    proposal=Proposal(STATE.schedule, ("1-24:5 25-256:1 already yields most",)),
    capacity=Capacity(40, "TPOT", "at 41 requests a token takes 12.1 ms"),
    acceptance_length=Estimate(2.413, 0.01),
    acceptance_rate=0.471,
    num_speculative_tokens=5,
    in_flight=90.0,
)


def known(state: ControllerState | None = STATE, outcome: Outcome | None = OUTCOME) -> tuple[World, Service]:
    """A world in which `chat` is at generation 17 and has two ready engines, one of which has acknowledged."""
    world = World()
    service = world.add()
    service.resource = resource({"metadata.uid": UID})
    service.state, service.outcome = state, outcome
    world.see(pod("chat-a"), pod("chat-b", address="10.0.0.2"), pod("chat-c", ready=False))
    service.acknowledged = {ENGINE_UID + "chat-a": (17, NOW_S), ENGINE_UID + "chat-b": (16, NOW_S)}
    service.children["Deployment/chat"] = {
        "metadata": {"generation": 1},
        "spec": {"replicas": 3},
        "status": {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3},
    }
    return world, service


def build(service: Service, warnings: tuple[str, ...] = (), now_s: float = NOW_S) -> Status:
    resolved = resolve(resource().spec)
    return status.build(
        service, resolved, EffectiveSettings(), keda=True, fault=None, warnings=warnings, generation=3, now_s=now_s
    )


def shown(state: ControllerState | None = STATE, outcome: Outcome | None = OUTCOME) -> dict[str, Any]:
    return build(known(state, outcome)[1]).as_dict()


class TestContent:
    def test_replicas(self) -> None:
        assert shown()["replicas"] == {"desired": 3, "ready": 2, "updated": 3}

    def test_tuning(self) -> None:
        assert shown()["tuning"] == {
            "mode": "Adaptive",
            "policy": "Goodput",
            "schedule": "1-24:5 25-256:1",
            "generation": 17,
            "speculativeTokens": 5,
            "acceptanceLength": "2.41",
            "acceptanceRatePercent": 47,
            "acknowledged": "1/2",
            "reason": "1-24:5 25-256:1 already yields most",
        }

    def test_a_pause_shows_and_so_does_what_was_found_meanwhile(self) -> None:
        _, service = known()
        service.config = config(frozen=True)
        tuning = build(service).as_dict()["tuning"]
        assert tuning["mode"] == "Paused"
        assert tuning["reason"] == "paused, so nothing changes; found meanwhile: 1-24:5 25-256:1 already yields most"

    def test_a_hold_is_the_reason(self) -> None:
        held = replace(OUTCOME, proposal=replace(OUTCOME.proposal, held=Hold("Dwell", "wait 45 s more")))
        assert shown(outcome=held)["tuning"]["reason"] == "wait 45 s more"

    def test_capacity(self) -> None:
        assert shown()["capacity"] == {
            "requestsPerReplica": 40,
            "limitedBy": "TPOT",
            "replicasForLoad": 3,
            "reason": "at 41 requests a token takes 12.1 ms",
            "maxReplicas": 6,
            "maxReplicasBy": "maxReplicas",
        }

    @pytest.mark.parametrize(("in_flight", "replicas"), [(0.0, 1), (1.0, 1), (40.0, 1), (41.0, 2), (400.0, 10)])
    def test_replicas_for_the_load_are_one_at_least(self, in_flight: float, replicas: int) -> None:
        assert shown(outcome=replace(OUTCOME, in_flight=in_flight))["capacity"]["replicasForLoad"] == replicas

    def test_what_is_not_known_is_left_out_and_never_a_number(self) -> None:
        blind = Outcome(STATE, Proposal(STATE.schedule), UNKNOWN, num_speculative_tokens=5)
        found = shown(outcome=blind)
        assert found["tuning"].keys().isdisjoint({"acceptanceLength", "acceptanceRatePercent", "lastChange"})
        assert found["capacity"].keys().isdisjoint({"limitedBy", "replicasForLoad"})

    def test_before_the_memory_was_read_only_the_mode_is_known(self) -> None:
        found = shown(state=None, outcome=None)
        assert found["tuning"] == {"mode": "Adaptive", "policy": "Goodput"}
        assert "capacity" not in found
        assert found["history"] == []

    def test_before_the_first_control_pass_the_schedule_is_shown_as_it_stands(self) -> None:
        found = shown(outcome=None)
        assert found["tuning"]["schedule"] == "1-24:5 25-256:1"
        assert found["tuning"]["speculativeTokens"] == 5
        assert found["capacity"] == {
            "requestsPerReplica": 40,
            "maxReplicas": 6,
            "maxReplicasBy": "maxReplicas",
        }

    def test_history_is_newest_first_in_the_words_of_the_events(self) -> None:
        changes = (
            Change(NOW_S + 60, "Target", "32", "40", "TPOT: more fit"),
            Change(NOW_S, "Schedule", "1-256:3", "1-24:5 25-256:1", "at batch 8 K 3→5"),
        )
        assert shown(state=replace(STATE, history=changes, schedule_changed_s=NOW_S))["history"] == [
            {"time": "2027-01-15T08:01:00Z", "kind": "Target", "from": "32", "to": "40", "reason": "TPOT: more fit"},
            {
                "time": "2027-01-15T08:00:00Z",
                "kind": "Schedule",
                "from": "1-256:3",
                "to": "1-24:5 25-256:1",
                "reason": "at batch 8 K 3→5",
            },
        ]

    def test_the_time_of_the_last_change_is_the_schedules(self) -> None:
        changed = replace(STATE, schedule_changed_s=NOW_S, target_changed_s=NOW_S + 60)
        assert shown(state=changed)["tuning"]["lastChange"] == "2027-01-15T08:00:00Z"

    def test_conditions_come_in_one_order_and_only_those_that_apply(self) -> None:
        types = [one["type"] for one in shown()["conditions"]]
        assert types == [
            "Ready",
            "AutoscalingReady",
            "EngineReady",
            "MetricsAvailable",
            "ScheduleApplied",
            "SpeculationHealthy",
        ]

    def test_doubts_of_admission_are_a_condition_of_their_own(self) -> None:
        found = build(known()[1], warnings=("vLLM 0.6.0 is not in the table", "answers will be cut off")).as_dict()
        (admitted,) = [one for one in found["conditions"] if one["type"] == "Admitted"]
        assert (admitted["status"], admitted["reason"]) == ("True", "AdmittedWithWarnings")
        assert admitted["message"] == "vLLM 0.6.0 is not in the table; answers will be cut off"

    def test_only_engines_that_are_ready_count_as_refusing(self) -> None:
        _, service = known()
        service.refusals = {ENGINE_UID + "chat-c": "engine chat-c: still loading"}
        (applied,) = [one for one in build(service).conditions if one.type == "ScheduleApplied"]
        assert (applied.reason, applied.message) == ("Delivering", "1 of 2 engines acknowledged schedule 17")

    @pytest.mark.parametrize(("values", "reason"), [((3,), "NothingToChoose"), ((1, 3), "EngineRefused")])
    def test_a_refusal_is_none_where_engines_have_one_k(self, values: tuple[int, ...], reason: str) -> None:
        _, service = known()
        service.config = config(values=values)
        service.refusals = {pod.uid: "the engine started without a table" for pod in service.ready_pods}
        (applied,) = [one for one in build(service).conditions if one.type == "ScheduleApplied"]
        assert applied.reason == reason

    def test_a_refused_resource_is_stalled_and_shows_nothing_that_may_be_out_of_date(self) -> None:
        _, service = known()
        found = status.refused(service, InvalidSpec("GpusNotUsed", "set one of them only"), 3, NOW_S).as_dict()
        assert found.keys() == {"observedGeneration", "conditions", "history"}
        assert [(one["type"], one["status"], one["reason"]) for one in found["conditions"]] == [
            ("Ready", "False", "GpusNotUsed"),
            ("Stalled", "True", "GpusNotUsed"),
        ]

    def test_a_schedule_of_very_many_rows_is_cut_and_not_an_error(self) -> None:
        """The API allows 512 characters; a schedule may have a row for each batch size."""
        rows = tuple(Row(size, size, 5 if size % 2 else 3) for size in range(1, 257))
        found = shown(state=replace(STATE, schedule=Schedule(rows)))
        assert len(found["tuning"]["schedule"]) == 512
        assert found["tuning"]["schedule"].endswith("…")

    def test_sentences_that_are_too_long_are_cut_and_not_an_error(self) -> None:
        long = "wait " * 500
        change = Change(NOW_S, "Schedule", long, long, long)
        found = shown(
            state=replace(STATE, history=(change,)),
            outcome=replace(
                OUTCOME,
                proposal=Proposal(STATE.schedule, (long,)),
                capacity=replace(OUTCOME.capacity, reason=long),
            ),
        )
        assert [len(found[part]["reason"]) for part in ("tuning", "capacity")] == [1024, 1024]
        assert {name: len(found["history"][0][name]) for name in ("from", "to", "reason")} == {
            "from": 512,
            "to": 512,
            "reason": 1024,
        }

    @given(
        length=st.floats(1, 17),
        rate=st.floats(0, 1),
        in_flight=st.floats(0, 1e9),
        target=st.integers(1, 100_000),
        k=st.integers(0, 16),
    )
    def test_whatever_was_measured_makes_a_status_without_nan(
        self, length: float, rate: float, in_flight: float, target: int, k: int
    ) -> None:
        outcome = replace(
            OUTCOME,
            acceptance_length=Estimate(length, 0.01),
            acceptance_rate=rate,
            in_flight=in_flight,
            num_speculative_tokens=k,
        )
        found = shown(state=replace(STATE, target=target), outcome=outcome)
        assert "nan" not in str(found).lower()
        assert found["capacity"]["replicasForLoad"] >= 1


class TestTimes:
    async def test_a_condition_keeps_its_time_while_its_status_stays(self) -> None:
        world, service = known()
        await status.write(service, build(service), world.neighbours)
        later = build(service, now_s=NOW_S + 60)
        assert {one.last_transition_time for one in later.conditions} == {"2027-01-15T08:00:00Z"}

    async def test_a_restarted_operator_keeps_it_too(self) -> None:
        world, service = known()
        await status.write(service, build(service), world.neighbours)
        world.restart()
        again = world.service()
        again.resource, again.state, again.outcome = service.resource, STATE, OUTCOME
        found = build(again, now_s=NOW_S + 60)
        (ready,) = [one for one in found.conditions if one.type == "Ready"]
        assert ready.last_transition_time == "2027-01-15T08:00:00Z"

    async def test_a_status_that_changes_gets_a_new_time(self) -> None:
        world, service = known()
        await status.write(service, build(service), world.neighbours)
        world.see(pod("chat-a", ready=False), pod("chat-b", ready=False))
        (ready,) = [one for one in build(service, now_s=NOW_S + 60).conditions if one.type == "Ready"]
        assert (ready.status, ready.last_transition_time) == ("False", "2027-01-15T08:01:00Z")


class TestWriting:
    """``service.outcome`` moves, time passes, and the number of writes is counted."""

    @staticmethod
    async def write(world: World, service: Service, **outcome: Any) -> int:
        """Write the status under a changed outcome; returns the number of writes so far."""
        assert service.outcome is not None
        service.outcome = replace(service.outcome, **outcome)
        await status.write(service, build(service, now_s=world.clock()), world.neighbours)
        return len(world.kube.applied())

    async def written(self) -> tuple[World, Service]:
        world, service = known()
        assert await self.write(world, service) == 1
        return world, service

    async def test_an_equal_status_is_not_written(self) -> None:
        world, service = await self.written()
        world.clock.advance(3600)
        assert await self.write(world, service) == 1

    async def test_nor_by_a_restarted_operator(self) -> None:
        world, service = await self.written()
        world.restart()
        again = world.service()
        again.resource, again.state, again.outcome = service.resource, STATE, OUTCOME
        again.acknowledged, again.children["Deployment/chat"] = (
            service.acknowledged,
            service.children["Deployment/chat"],
        )
        assert await self.write(world, again) == 1

    @pytest.mark.parametrize(
        ("change", "written"),
        [
            pytest.param({"acceptance_length": Estimate(2.45, 0.01)}, 1, id="acceptance length within its band"),
            pytest.param({"acceptance_length": Estimate(2.50, 0.01)}, 2, id="acceptance length beyond it"),
            pytest.param({"acceptance_rate": 0.49}, 1, id="acceptance rate within its band"),
            pytest.param({"acceptance_rate": 0.50}, 2, id="acceptance rate beyond it"),
            pytest.param({"in_flight": 100.0}, 1, id="a load that needs as many replicas"),
            pytest.param({"in_flight": 130.0}, 2, id="a load that needs another one"),
            pytest.param({"num_speculative_tokens": 1}, 2, id="K at the median batch"),
            pytest.param({"proposal": Proposal(STATE.schedule, ("K 3→5",))}, 2, id="another reason"),
        ],
    )
    async def test_small_moves_are_not_shown(self, change: dict[str, Any], written: int) -> None:
        world, service = await self.written()
        world.clock.advance(SOFT_EVERY_S)
        assert await self.write(world, service, **change) == written

    async def test_a_band_is_measured_from_what_is_shown_so_that_a_slow_drift_shows_in_the_end(self) -> None:
        world, service = await self.written()
        for step in range(1, 5):
            world.clock.advance(SOFT_EVERY_S)
            await self.write(world, service, acceptance_length=Estimate(2.41 + 0.02 * step, 0.01))
        assert world.status()["tuning"]["acceptanceLength"] == "2.47"

    async def test_what_only_drifts_is_written_twice_a_minute_at_most(self) -> None:
        world, service = await self.written()
        for second in range(1, 121):
            world.clock.advance(1)
            await self.write(world, service, acceptance_length=Estimate(2.4 + second / 10, 0.01))
        assert len(world.kube.applied()) == 1 + 120 / SOFT_EVERY_S

    @pytest.mark.parametrize(
        "state",
        [
            pytest.param(replace(STATE, generation=18), id="another generation"),
            pytest.param(replace(STATE, schedule=parse_text("1-256:1")), id="another schedule"),
            pytest.param(replace(STATE, target=50), id="another target"),
            pytest.param(
                replace(STATE, history=(Change(NOW_S, "Target", "32", "40", "TPOT"),)),
                id="another change in the history",
            ),
        ],
    )
    async def test_decisions_are_written_at_once(self, state: ControllerState) -> None:
        world, service = await self.written()
        service.state = state
        assert await self.write(world, service) == 2

    async def test_a_look_at_another_k_is_not_written_and_neither_is_the_way_back(self) -> None:
        world, service = known()
        service.acknowledged = {ENGINE_UID + name: (17, NOW_S) for name in ("chat-a", "chat-b")}
        assert await self.write(world, service) == 1
        looks, back = (Change(NOW_S, "Probe", "1-256:3", "1-256:1", said) for said in ("probe: K 1", "probe ended"))
        for generation, probe, change in ((18, Probe(STATE.schedule, NOW_S), looks), (19, None, back)):
            schedule = STATE.schedule if probe is None else parse_text("1-256:1")
            service.state = replace(STATE, schedule=schedule, generation=generation, probe=probe)
            service.acknowledged = dict.fromkeys(service.acknowledged, (generation, NOW_S))
            world.clock.advance(SOFT_EVERY_S)
            said = Proposal(schedule, (change.reason,))
            assert await self.write(world, service, changes=(change,), proposal=said, num_speculative_tokens=1) == 1

    async def test_a_condition_that_turns_is_written_at_once(self) -> None:
        world, service = await self.written()
        world.see(pod("chat-a", ready=False), pod("chat-b", ready=False))
        assert await self.write(world, service) == 2

    async def test_a_condition_of_which_only_the_sentence_moved_waits_its_turn(self) -> None:
        world, service = await self.written()
        service.children["Deployment/chat"] = {
            **service.children["Deployment/chat"],
            "spec": {"replicas": 3, "paused": False},
        }
        service.refusals = {ENGINE_UID + "chat-b": "no answer"}
        assert await self.write(world, service) == 2  # Delivering became EngineRefused: a reason is news
        service.refusals = {ENGINE_UID + "chat-b": "still no answer"}
        assert await self.write(world, service) == 2
        world.clock.advance(SOFT_EVERY_S)
        assert await self.write(world, service) == 3

    async def test_a_write_that_failed_is_made_up_for(self) -> None:
        world, service = await self.written()
        service.state = replace(STATE, generation=18)
        world.kube.fail(unavailable, "apply", times=1)
        with pytest.raises(type(unavailable())):
            await self.write(world, service)
        assert await self.write(world, service) == 2
        assert world.status()["tuning"]["generation"] == 18

    async def test_only_the_status_is_written(self) -> None:
        world, _ = await self.written()
        (write,) = world.kube.writes
        assert write.target == "SpeculativeInferenceService/chat/status"
        assert write.manifest.keys() == {"apiVersion", "kind", "metadata", "status"}
        assert write.manifest["metadata"] == {"namespace": "ml", "name": "chat"}
