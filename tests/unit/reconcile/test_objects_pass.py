"""The objects pass: from a resource to its children and its status, whatever happens on the way."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from prometheus_client import REGISTRY

from outrider.errors import EngineUnreachable, KubeError, Unavailable
from outrider.reconcile.queue import FIRST_DELAY_S
from tests.failures import Failure

from .builders import EAGER, FIXED_REPLICAS, KEY, World, body, forbidden, pod, settings, unavailable

CHILDREN = [
    "ServiceAccount/chat-engine",
    "ConfigMap/chat-schedule",
    "Service/chat",
    "PodDisruptionBudget/chat",
    "Deployment/chat",
    "ScaledObject/chat",
    "PodMonitor/chat",
]
STATUS = "SpeculativeInferenceService/chat/status"
PAUSED: dict[str, Any] = {"spec.paused": True}
IMPOSSIBLE: dict[str, Any] = {"spec.engine": {"extraArgs": ["--mod", "other"]}}
"""The schema lets it through, admission does not."""


@pytest.fixture
def world() -> World:
    """Knows `chat`, and nothing was done for it yet."""
    world = World()
    world.add()
    return world


def failures(reason: str) -> float:
    """How often objects passes failed for a reason, as our own metrics tell."""
    return REGISTRY.get_sample_value("outrider_reconcile_failures_total", {"reason": reason}) or 0.0


class TestChildren:
    async def test_a_resource_becomes_its_children_in_an_order_that_lets_each_find_what_it_needs(
        self, world: World
    ) -> None:
        assert await world.reconcile() is None
        assert world.journal == [
            "create Secret/chat-admin",
            *(f"apply {one}" for one in CHILDREN),
            f"apply {STATUS}",
        ]

    async def test_every_child_bears_our_labels_and_goes_with_the_resource(self, world: World) -> None:
        await world.reconcile()
        for (kind, _, _), one in world.kube.objects.items():
            if kind != "SpeculativeInferenceService":
                assert one["metadata"]["labels"]["serving.outrider.dev/service"] == "chat", kind
                assert one["metadata"]["ownerReferences"][0]["uid"] == "5f0c", kind

    async def test_another_pass_writes_nothing(self, world: World) -> None:
        await world.settle()
        world.forget_writes()
        await world.settle()
        assert world.journal == []

    async def test_a_restarted_operator_changes_no_object(self, world: World) -> None:
        await world.settle()
        versions = {key: one["metadata"]["resourceVersion"] for key, one in world.kube.objects.items()}
        world.clock.advance(3600)
        world.restart()
        await world.settle()
        assert {key: one["metadata"]["resourceVersion"] for key, one in world.kube.objects.items()} == versions

    async def test_the_resource_itself_is_never_written_but_for_its_status(self, world: World) -> None:
        before = world.kube.live("SpeculativeInferenceService", "chat")
        await world.settle()
        after = world.kube.live("SpeculativeInferenceService", "chat")
        assert after["spec"] == before["spec"]
        assert {"labels", "annotations", "finalizers"}.isdisjoint(after["metadata"])

    @pytest.mark.parametrize(
        ("changes", "served", "left_out"),
        [
            pytest.param({}, ["ScaledObject", "PodMonitor"], set(), id="everything"),
            pytest.param({}, ["PodMonitor"], {"ScaledObject/chat"}, id="no KEDA in the cluster"),
            pytest.param({}, ["ScaledObject"], {"PodMonitor/chat"}, id="no Prometheus operator in the cluster"),
            pytest.param({}, [], {"ScaledObject/chat", "PodMonitor/chat"}, id="neither"),
            pytest.param(
                {"spec.monitoring": {"podMonitor": False}},
                ["ScaledObject", "PodMonitor"],
                {"PodMonitor/chat"},
                id="no PodMonitor wanted",
            ),
            pytest.param(
                FIXED_REPLICAS, ["ScaledObject", "PodMonitor"], {"ScaledObject/chat"}, id="a fixed number of replicas"
            ),
        ],
    )
    async def test_optional_children(self, changes: dict[str, Any], served: list[str], left_out: set[str]) -> None:
        world = World()
        world.kube.served = {one for one in world.kube.served if one[1] in served}
        world.add(changes)
        assert await world.reconcile() is None
        assert [one for one in world.kube.applied() if one != STATUS] == [
            one for one in CHILDREN if one not in left_out
        ]

    async def test_a_pod_monitor_that_is_no_longer_wanted_goes(self, world: World) -> None:
        """Otherwise engines are scraped twice when the user brings another one."""
        await world.settle()
        world.add({"spec.monitoring": {"podMonitor": False}}, generation=4)
        await world.settle()
        assert ("PodMonitor", "ml", "chat") not in world.kube.objects

    async def test_keda_may_be_installed_later(self, world: World) -> None:
        world.kube.served = set()
        await world.reconcile()
        assert world.condition("AutoscalingReady") == (
            "False",
            "KEDAMissing",
            "KEDA is not installed in this cluster; install it, or turn autoscaling off. Replicas stay as they are",
        )
        world.kube.served = {("keda.sh/v1alpha1", "ScaledObject")}
        await world.reconcile()
        assert "ScaledObject/chat" in world.kube.applied()
        assert world.condition("AutoscalingReady") == (
            "Unknown",
            "WaitingForKEDA",
            "KEDA has not taken up the ScaledObject yet",
        )

    async def test_the_resource_makes_the_rounds_through_the_registry_only(self, world: World) -> None:
        world.kube.take_away("SpeculativeInferenceService", "chat")
        assert await world.reconcile() is None
        assert world.journal == []

    async def test_children_of_a_deleted_namesake_are_waited_for(self, world: World) -> None:
        await world.settle()
        world.kube.take_away("SpeculativeInferenceService", "chat")
        world.add({"metadata.uid": "another"}, generation=1)
        assert await world.reconcile() == 10.0
        assert (world.condition("Ready") or ("", ""))[1] == "NameTaken"
        for kind, _, name in [key for key in world.kube.objects if key[0] != "SpeculativeInferenceService"]:
            world.kube.take_away(kind, name)
        assert await world.reconcile() is None


class TestRolling:
    async def test_a_change_that_replaces_engines_is_announced_with_what_changed(self, world: World) -> None:
        await world.settle()
        world.add({"spec.engine": {"maxNumSeqs": 128}, "spec.resources.memory": "64Gi"}, generation=4)
        await world.settle()
        (event,) = world.kube.created("Event")
        assert (event["type"], event["reason"]) == ("Normal", "EnginesRolling")
        assert event["message"].startswith("the engines are replaced one at a time, for a change of ")
        assert "--max-num-seqs" in event["message"]
        assert ", resources; an update interrupts the service" in event["message"]

    async def test_of_several_engines_none_is_missed_long(self, world: World) -> None:
        world.add({"spec.autoscaling": {"mode": "Off", "minReplicas": 2}})
        await world.settle()
        world.add(
            {"spec.autoscaling": {"mode": "Off", "minReplicas": 2}, "spec.engine": {"maxNumSeqs": 128}}, generation=4
        )
        await world.settle()
        (event,) = world.kube.created("Event")
        assert "interrupts" not in event["message"]

    async def test_a_change_that_replaces_none_is_not(self, world: World) -> None:
        await world.settle()
        world.add({"spec.objectives.tpotMilliseconds": 50, "spec.autoscaling.maxReplicas": 9}, generation=4)
        await world.settle()
        assert world.kube.created("Event") == []


class TestInvalid:
    async def test_what_cannot_work_is_said_and_nothing_is_touched(self, world: World) -> None:
        world.add(IMPOSSIBLE, generation=4)
        assert await world.reconcile() is None
        assert world.kube.applied() == [STATUS]
        (event,) = world.kube.created("Event")
        assert (event["type"], event["reason"]) == ("Warning", "ArgumentRefused")
        status, reason, message = world.condition("Stalled") or ("", "", "")
        assert (status, reason) == ("True", "ArgumentRefused")
        assert "spec.engine.extraArgs[0]" in message
        assert world.condition("Ready") == ("False", reason, message)
        assert world.status()["observedGeneration"] == 4

    async def test_a_body_that_an_older_crd_let_through_is_no_internal_error(self, world: World) -> None:
        world.add({"spec.model": {"name": "not a field"}})
        assert await world.reconcile() is None
        assert (world.condition("Stalled") or ("", ""))[:2] == ("True", "InvalidSpec")

    async def test_engines_go_on_as_they_are_and_the_mended_resource_recovers(self, world: World) -> None:
        await world.settle()
        world.forget_writes()
        world.add(IMPOSSIBLE, generation=4)
        await world.settle()
        assert set(world.kube.applied()) == {STATUS}
        world.add(generation=5)
        assert await world.reconcile() is None
        assert world.condition("Stalled") is None
        assert world.status()["observedGeneration"] == 5

    @pytest.mark.failure(
        "The cluster and its people",
        "a resource is spoilt",
        k="engines go on, leases are renewed",
        conditions=["Stalled True"],
        alerts=["OutriderServiceNotReady"],
        ends="when it is mended",
        guard="reconcile/objects.py:ObjectsPass._keep_leases",
    )
    async def test_leases_of_running_engines_are_renewed_meanwhile(self, world: World) -> None:
        """The resource may stay wrong for days; engines must not fall back to their initial schedule for that."""
        world.see(pod())
        await world.settle()
        world.add(IMPOSSIBLE, generation=4)
        for _ in range(3):
            world.clock.advance(1201)
            await world.reconcile()
            await world.control.run()
        assert world.engines.calls("10.0.0.1") == [1, 1, 1, 1]

    async def test_it_is_reported_once(self, world: World) -> None:
        world.add(IMPOSSIBLE)
        for _ in range(3):
            await world.reconcile()
            world.clock.advance(60)
        assert world.kube.applied() == [STATUS]

    async def test_the_control_pass_leaves_it_alone(self, world: World) -> None:
        await world.settle()
        world.add(IMPOSSIBLE)
        await world.reconcile()
        world.forget_writes()
        await world.control.run()
        assert (world.journal, world.queued) == ([], [])


class TestPaused:
    @pytest.mark.parametrize(
        ("changes", "fleet"),
        [pytest.param(PAUSED, False, id="one service"), pytest.param({}, True, id="the fleet")],
    )
    async def test_nothing_is_applied_and_status_goes_on(self, changes: dict[str, Any], fleet: bool) -> None:
        world = World(settings=settings(paused=fleet))
        world.add({**changes, "spec.engine": {"maxNumSeqs": 128}})
        world.see(pod())
        assert await world.reconcile() is None
        assert world.journal == [f"apply {STATUS}"]
        assert (world.condition("Ready") or ("",))[0] == "True"

    async def test_what_somebody_changed_in_a_child_stays(self, world: World) -> None:
        await world.settle()
        world.add(PAUSED, generation=4)
        world.kube.edit("Deployment", "chat", {"spec": {"revisionHistoryLimit": 7}})
        await world.settle()
        assert world.kube.live("Deployment", "chat")["spec"]["revisionHistoryLimit"] == 7
        world.add(generation=5)
        await world.settle()
        assert world.kube.live("Deployment", "chat")["spec"]["revisionHistoryLimit"] == 3

    async def test_status_shows_what_runs_and_not_what_the_spec_now_says(self, world: World) -> None:
        await world.settle()
        applied = world.status()["effective"]
        new = {"spec.engine": {"maxNumSeqs": 128}, "spec.speculation.tuning": {"policy": "AcceptanceThreshold"}}
        world.add({**PAUSED, **new, "spec.autoscaling": {"mode": "Off", "minReplicas": 3}}, generation=4)
        await world.settle()
        world.restart()
        await world.settle()
        assert world.status()["observedGeneration"] == 4
        assert world.status()["effective"] == applied
        tuning = world.status()["tuning"]
        assert (tuning["mode"], tuning["policy"], tuning["reason"]) == ("Paused", "Goodput", "paused")
        status, reason, message = world.condition("Paused") or ("", "", "")
        assert (status, reason) == ("True", "PausedBySpec")
        assert "the last target (32) and bounds 1-6" in message
        assert (world.condition("AutoscalingReady") or ("", ""))[1] == "WaitingForKEDA"
        world.add(new, generation=5)
        await world.settle()
        assert world.status()["effective"]["maxNumSeqs"] == 128
        assert world.status()["tuning"]["mode"] == "Adaptive"

    async def test_of_a_service_that_was_made_paused_nothing_is_in_force(self) -> None:
        world = World()
        world.add(PAUSED)
        await world.settle()
        assert "effective" not in world.status()
        assert (world.condition("AutoscalingReady") or ("", ""))[:2] == ("Unknown", "WaitingForKEDA")

    async def test_engines_that_come_are_told_and_leases_are_renewed(self, world: World) -> None:
        await world.settle()
        world.add(PAUSED, generation=4)
        world.see(pod())
        await world.settle()
        assert world.engines.calls("10.0.0.1") == [1]
        world.clock.advance(1201)
        await world.settle()
        assert world.engines.calls("10.0.0.1") == [1, 1]

    async def test_leases_are_renewed_by_a_restarted_operator_too(self, world: World) -> None:
        """Otherwise pausing would let every engine fall back to its initial schedule within an hour of a restart."""
        world.see(pod())
        await world.settle()
        world.add(PAUSED, generation=4)
        world.restart()
        world.forget_writes()
        await world.settle()
        assert world.engines.calls("10.0.0.1") == [1]
        assert world.kube.created("Secret") == []

    async def test_no_key_is_made_for_a_paused_service_that_has_none(self, world: World) -> None:
        world.add(PAUSED)
        world.see(pod())
        await world.settle()
        assert world.kube.created("Secret") == []


class TestFaults:
    @pytest.mark.failure(
        "API server",
        "403",
        conditions=["Ready False Forbidden"],
        alerts=["OutriderServiceNotReady"],
        ends="asked again each minute",
        guard="reconcile/objects.py:ObjectsPass._failed",
    )
    async def test_a_missing_right_is_reported_and_tried_again_slowly(self, world: World) -> None:
        world.kube.fail(forbidden, "apply", "Deployment/chat")
        assert await world.reconcile() == 60.0
        assert world.condition("Ready") == ("False", "Forbidden", "cannot patch deployments")

    @pytest.mark.failure(
        "API server",
        "does not answer",
        k="the decision waits for its record",
        conditions=["Ready Unknown APIServerUnreachable"],
        status="once it answers",
        ends="by the back-off",
        guard="reconcile/conditions.py:ready",
    )
    async def test_an_api_server_that_does_not_answer_makes_readiness_unknown(self, world: World) -> None:
        world.kube.fail(unavailable, "apply", "Service/chat")
        assert await world.reconcile() == FIRST_DELAY_S
        assert world.condition("Ready") == ("Unknown", "APIServerUnreachable", "no answer from the API server")
        world.kube.heal()
        assert await world.reconcile() is None
        assert (world.condition("Ready") or ("",))[0] == "False"  # no engine is up yet

    @pytest.mark.failure(
        "API server",
        "429 with a time to wait",
        ends="after that time",
        guard="reconcile/objects.py:ObjectsPass._failed",
    )
    async def test_what_the_api_server_asks_for_is_waited_for(self, world: World) -> None:
        def overloaded() -> Unavailable:
            return Unavailable("APIServerUnavailable", "too many requests", 429, 17.0)

        world.kube.fail(overloaded, "apply", "Service/chat")
        assert await world.reconcile() == 17.0

    @pytest.mark.failure(
        "API server",
        "500",
        conditions=["Ready Unknown APIServerUnavailable"],
        alerts=["OutriderServiceNotReady"],
        ends="by the back-off",
        guard="reconcile/conditions.py:ready",
    )
    async def test_an_api_server_that_fails_by_itself_makes_readiness_unknown(
        self, world: World, failure: Failure
    ) -> None:
        def broken() -> Unavailable:
            return Unavailable("APIServerUnavailable", "etcdserver: request timed out", 500)

        world.kube.fail(broken, "apply", "Deployment/chat")
        assert await world.reconcile() == FIRST_DELAY_S
        assert world.condition("Ready") == (*failure.condition("Ready"), "etcdserver: request timed out")
        world.kube.heal()
        assert await world.reconcile() is None

    @pytest.mark.failure(
        "API server",
        "409: somebody else wrote at the same moment",
        replicas="the other's number stands",
        conditions=["Ready False Conflict"],
        ends="a second later",
        guard="reconcile/replicas.py:hold",
    )
    async def test_a_number_that_was_written_meanwhile_is_not_overwritten(self, failure: Failure) -> None:
        world = World()
        world.add({"spec.autoscaling": {"minReplicas": 2, "maxReplicas": 20}})
        changed = {"spec": {"replicas": 7}}
        world.kube.meanwhile(
            "apply", "Deployment/chat", lambda: world.kube.edit("Deployment", "chat", changed, manager=None)
        )
        assert await world.reconcile() == FIRST_DELAY_S
        assert (world.condition("Ready") or ())[:2] == failure.condition("Ready")
        assert world.kube.replicas() == 7
        await world.settle()
        assert world.kube.replicas() == 7

    @pytest.mark.failure(
        "API server",
        "422",
        conditions=["Ready False ApplyRefused"],
        status="in its words",
        alerts=["OutriderServiceNotReady"],
        ends="when it is mended",
        guard="reconcile/conditions.py:ready",
    )
    async def test_an_object_that_the_api_server_refuses_is_reported_in_its_words(self, world: World) -> None:
        def refused() -> KubeError:
            return KubeError("ApplyRefused", "Deployment is invalid: spec.template: Invalid value", 422)

        world.kube.fail(refused, "apply", "Deployment/chat")
        assert await world.reconcile() == FIRST_DELAY_S
        assert world.condition("Ready") == (
            "False",
            "ApplyRefused",
            "Deployment is invalid: spec.template: Invalid value",
        )

    @pytest.mark.failure("The cluster and its people", "the namespace is deleted")
    async def test_a_service_in_a_namespace_that_ends_is_told_so_and_then_forgotten(self, world: World) -> None:
        def ending() -> KubeError:
            return KubeError("NamespaceTerminating", "namespace ml is being terminated", 403)

        await world.settle()
        world.kube.take_away("Deployment", "chat")
        world.kube.fail(ending, "apply", "Deployment/chat")
        assert await world.reconcile() == FIRST_DELAY_S
        assert (world.condition("Ready") or ())[:2] == ("False", "NamespaceTerminating")
        world.kube.edit("SpeculativeInferenceService", "chat", {"metadata": {"deletionTimestamp": "now"}})
        world.forget_writes()
        assert await world.reconcile() is None
        assert world.kube.writes == []

    @pytest.mark.failure(
        "The cluster and its people",
        "a node's disk is full",
        replicas="another pod takes the place of one that was evicted",
        conditions=["EngineReady False PodFailed"],
        status="in the kubelet's words, with the field that mends it",
        alerts=["OutriderServiceNotReady"],
        ends="with the next pod",
        guard="reconcile/remedies.py:for_eviction",
    )
    @pytest.mark.parametrize(
        ("words", "field"),
        [
            pytest.param(
                "The node was low on resource: ephemeral-storage. Container engine was using 41Gi, request is 0.",
                "give the weights a claim in spec.storage.modelCache",
                id="the node's",
            ),
            pytest.param(
                'Usage of EmptyDir volume "model-cache" exceeds the limit "40Gi".',
                "raise spec.storage.modelCache.sizeLimit",
                id="the cache's own bound",
            ),
        ],
    )
    async def test_a_pod_that_was_evicted_from_a_full_disk_is_told_with_the_field(
        self, world: World, words: str, field: str, failure: Failure
    ) -> None:
        world.see(pod(ready=False, address=None, phase="Failed", reason="Evicted", message=words))
        await world.reconcile()
        *found, message = world.condition("EngineReady") or ()
        assert tuple(found) == failure.condition("EngineReady")
        assert words in message
        assert message.endswith(field)

    async def test_a_status_that_cannot_be_written_is_tried_again(self, world: World) -> None:
        world.kube.fail(unavailable, "apply", STATUS, times=1)
        assert await world.reconcile() == FIRST_DELAY_S
        assert await world.reconcile() is None
        assert world.status()["observedGeneration"] == 3

    @pytest.mark.failure(
        "Ourselves",
        "its memory cannot be read",
        k="the pass ends before it does anything",
        ends="by the back-off",
        guard="reconcile/objects.py:ObjectsPass._remember",
    )
    async def test_a_memory_that_cannot_be_read_stops_the_pass_before_it_does_anything(self, world: World) -> None:
        """Starting from the initial state instead would undo what was decided."""
        world.kube.fail(unavailable, "get", "ConfigMap/chat-memory")
        assert await world.reconcile() == FIRST_DELAY_S
        assert world.journal == []
        assert world.service().state is None

    @pytest.mark.failure(
        "Ourselves",
        "a fault in our code, with one service",
        k="held for it",
        conditions=["Ready Unknown InternalError"],
        alerts=["OutriderServiceNotReady"],
        ends="tried again",
        guard="reconcile/edge.py:attempt",
    )
    async def test_a_fault_of_ours_is_logged_counted_retried_and_shown(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        await world.settle()
        world.add({"spec.engine": {"maxNumSeqs": 128}}, generation=4)
        world.kube.fail(lambda: ZeroDivisionError("by zero"), "apply", "Deployment/chat")
        before = failures("InternalError")
        assert await world.reconcile() == FIRST_DELAY_S
        assert failures("InternalError") == before + 1
        assert "ZeroDivisionError: by zero" in caplog.text
        assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR]
        assert world.condition("Ready") == ("Unknown", "InternalError", "ZeroDivisionError: by zero")

    @pytest.mark.failure("Ourselves", "a fault in our code, with one service")
    async def test_a_fault_with_one_service_is_none_with_another(self, world: World) -> None:
        world.add(name="code")
        world.kube.fail(lambda: ZeroDivisionError("by zero"), "apply", "Deployment/chat")
        await world.reconcile("chat")
        assert await world.reconcile("code") is None
        assert world.kube.live("Deployment", "code")

    async def test_engines_that_do_not_answer_fail_no_pass(self, world: World) -> None:
        world.see(pod())
        world.engines.faults["10.0.0.1"] = EngineUnreachable("EngineUnreachable", "engine 10.0.0.1: no answer")
        assert await world.reconcile() is None
        assert world.condition("ScheduleApplied") == (
            "False",
            "EngineRefused",
            "0 of 1 engine acknowledged schedule 1; engine 10.0.0.1: no answer",
        )


class TestStateAndStatus:
    async def test_a_service_that_was_just_learnt_of_asks_for_a_decision_once(self, world: World) -> None:
        await world.settle()
        assert world.woken == 1

    async def test_the_schedule_document_follows_a_decision(self, world: World) -> None:
        world.add(EAGER)
        world.see(pod())
        await world.settle()
        world.measure()
        await world.control.run()
        await world.reconcile()
        document = json.loads(world.kube.live("ConfigMap", "chat-schedule")["data"]["schedule.json"])
        assert document == {"generation": 2, "schedule": [[1, 256, 5]], "leaseSeconds": 3600}

    async def test_a_decision_restarts_no_engine(self, world: World) -> None:
        world.add(EAGER)
        world.see(pod())
        await world.settle()
        before = world.kube.live("Deployment", "chat")["metadata"]["generation"]
        world.measure()
        await world.control.run()
        await world.settle()
        assert world.kube.live("Deployment", "chat")["metadata"]["generation"] == before

    async def test_status_speaks_of_the_spec_that_was_applied_and_not_of_one_that_came_meanwhile(
        self, world: World
    ) -> None:
        await world.settle()
        world.add({"spec.engine": {"maxNumSeqs": 128}}, generation=4)
        later = body({"spec.engine": {"maxNumSeqs": 64}}, generation=5)
        world.kube.meanwhile("apply", "Deployment/chat", lambda: world.kube.put(later))
        await world.reconcile()
        assert world.status()["observedGeneration"] == 4
        await world.reconcile()
        assert world.status()["observedGeneration"] == 5

    async def test_a_decision_that_could_not_be_remembered_reaches_no_engine(self, world: World) -> None:
        """Not by PUT, and not by the mounted document: another process would know nothing of it."""
        world.add(EAGER)
        world.see(pod())
        await world.settle()
        world.measure()
        world.kube.fail(unavailable, "apply", "ConfigMap/chat-memory")
        await world.control.run()
        state = world.service().state
        assert state is not None
        assert state.generation == 2
        await world.reconcile()
        assert world.engines.calls("10.0.0.1") == [1]
        assert '"generation":1,' in world.kube.live("ConfigMap", "chat-schedule")["data"]["schedule.json"]
        world.kube.heal()
        world.journal.clear()
        await world.reconcile()
        assert world.journal[0] == "apply ConfigMap/chat-memory"
        assert world.engines.calls("10.0.0.1") == [1, 2]

    async def test_bounds_that_changed_are_remembered_before_an_engine_hears_of_them(self, world: World) -> None:
        world.add(EAGER)
        world.see(pod())
        await world.settle()
        world.measure()
        await world.control.run()
        await world.settle()
        world.add({"spec.speculation.tuning": {"mode": "Fixed", "initialSpeculativeTokens": 2}}, generation=4)
        await world.reconcile()
        world.forget_writes()
        await world.control.run()
        assert world.journal[:2] == ["apply ConfigMap/chat-memory", "put 10.0.0.1 generation 3"]

    async def test_passes_over_one_service_take_turns(self, world: World) -> None:
        await world.service().lock.acquire()
        waiting = asyncio.create_task(world.reconcile())
        await asyncio.sleep(0)
        assert world.journal == []
        world.service().lock.release()
        await waiting
        assert world.registry.get(KEY) is not None
        assert world.journal
