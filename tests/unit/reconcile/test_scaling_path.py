"""The way from load to replicas: what is broken on it, in one word and with what mends it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from outrider.errors import NotReady
from outrider.reconcile import scaling_path
from outrider.reconcile.scaling_look import ScalingLook
from outrider.reconcile.scaling_path import UNKNOWN, ScalingPath
from tests.testbed.keda import API_SERVICE

from .builders import FIXED_REPLICAS, KEY, World, forbidden, pod, unavailable
from .test_conditions import said, scaled_object

Manifest = dict[str, Any]
WAITING = ("Unknown", "WaitingForKEDA", "KEDA has not taken up the ScaledObject yet")
STARTS = (
    "Unknown",
    "Starting",
    "KEDA's query has not answered yet: it does once Prometheus has the first engine's metrics",
)
BEHAVIORS = ["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]


def definition(behaviors: list[str] | None = BEHAVIORS, **changes: Any) -> Manifest:
    """KEDA's definition of ScaledObjects; without ``behaviors`` one from before there were any."""
    fallback: Manifest = {"properties": {"replicas": {"type": "integer"}}}
    if behaviors is not None:
        fallback["properties"]["behavior"] = {"type": "string", "enum": behaviors}
    schema = {"properties": {"spec": {"properties": {"fallback": fallback}}}}
    version = {"name": "v1alpha1", "served": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "scaledobjects.keda.sh", "namespace": ""},
        "spec": {"versions": [version | changes]},
    }


def api_service(
    service: str = "keda-operator-metrics-apiserver", namespace: str = "keda", available: str = "True"
) -> Manifest:
    """Where the HPA's questions for external metrics go."""
    condition = {"type": "Available", "status": available, "reason": "MissingEndpoints", "message": "no endpoints."}
    return {
        "kind": "APIService",
        "metadata": {"name": API_SERVICE, "namespace": ""},
        "spec": {"service": {"name": service, "namespace": namespace}},
        "status": {"conditions": [condition]},
    }


def hpa(**states: str) -> Manifest:
    """An HPA whose conditions have these states; a reason may follow after a colon."""
    split = {type_: state.partition(":")[::2] for type_, state in states.items()}
    return {
        "status": {
            "conditions": [
                {"type": type_, "status": status, "reason": reason, "message": "the words of the HPA"}
                for type_, (status, reason) in split.items()
            ]
        }
    }


GOOD = hpa(AbleToScale="True:ReadyForNewScale", ScalingActive="True:ValidMetricFound")
BLIND = hpa(AbleToScale="True:ReadyForNewScale", ScalingActive="False:FailedGetExternalMetric")
RESTS = hpa(AbleToScale="True:ReadyForNewScale", ScalingActive="False:ScalingDisabled")
UNABLE = hpa(AbleToScale="False:FailedUpdateScale", ScalingActive="True:ValidMetricFound")
TAKEN = ScalingPath(True, None, scaling_path.adapter(api_service("prometheus-adapter", "monitoring")))
GONE = ScalingPath(True, None, scaling_path.adapter(None))
OLD = ScalingPath(True, scaling_path.too_old(definition(None)))


@pytest.mark.parametrize(
    ("found", "served", "old"),
    [
        pytest.param(None, False, None, id="none"),
        pytest.param(definition(), True, None, id="a present one"),
        pytest.param(definition(served=False), False, None, id="one that is not served"),
        pytest.param(definition(name="v2"), False, None, id="another version alone"),
        pytest.param(definition(None), True, "KEDATooOld", id="one from before there was a choice"),
        pytest.param(definition(["static", "currentReplicas"]), True, "KEDATooOld", id="one without our choice"),
    ],
)
def test_whether_keda_can_have_our_scaled_objects(found: Manifest | None, served: bool, old: str | None) -> None:
    assert scaling_path.can_serve(found) is served
    too_old = scaling_path.too_old(found)
    assert (None if too_old is None else too_old.reason) == old


def test_a_definition_that_is_being_deleted_takes_no_new_ones() -> None:
    going = definition()
    going["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    assert not scaling_path.can_serve(going)


@pytest.mark.parametrize(
    ("found", "reason", "words"),
    [
        pytest.param(api_service(), None, "", id="KEDA's own"),
        pytest.param(api_service("metrics", "openshift-keda"), None, "", id="KEDA's by its namespace"),
        pytest.param(api_service("keda-metrics", "kube-system"), None, "", id="KEDA's by its Service"),
        pytest.param(None, "ExternalMetricsUnavailable", "there is no APIService", id="nobody's"),
        pytest.param(
            api_service(available="False"), "ExternalMetricsUnavailable", "MissingEndpoints, no endpoints",
            id="not there",
        ),
        pytest.param(api_service(available="Unknown"), None, "", id="not known yet"),
        pytest.param(
            api_service("prometheus-adapter", "monitoring"), "ExternalMetricsTaken", "monitoring/prometheus-adapter",
            id="another adapter's",
        ),
    ],
)  # fmt: skip
def test_whether_questions_reach_kedas_adapter(found: Manifest | None, reason: str | None, words: str) -> None:
    fault = scaling_path.adapter(found)
    assert (None if fault is None else fault.reason) == reason
    assert fault is None or words in fault.message
    assert fault is None or fault.message.endswith("Replicas stay as they are")


@pytest.mark.parametrize(
    ("found", "one", "path", "answered", "expected"),
    [
        pytest.param(None, None, UNKNOWN, False, WAITING, id="just made"),
        pytest.param({"status": {}}, None, UNKNOWN, False, WAITING, id="not looked at yet"),
        pytest.param({"status": {}}, BLIND, TAKEN, False, WAITING, id="not looked at yet: the rest can wait"),
        pytest.param(scaled_object(Ready="True"), None, UNKNOWN, False, STARTS, id="it has asked nobody yet"),
        pytest.param(scaled_object(Ready="True", Fallback="True"), BLIND, UNKNOWN, False, STARTS, id="engines start"),
        pytest.param(
            scaled_object(Ready="True"), GOOD, UNKNOWN, True, ("True", "Scaling", "the ScaledObject is ready"),
            id="it scales",
        ),
        pytest.param(
            scaled_object(Ready="True"), None, UNKNOWN, True, ("True", "Scaling", "the ScaledObject is ready"),
            id="it scales, and the HPA has not been seen",
        ),
        pytest.param(
            scaled_object(Ready="False", _message="no scaler for trigger"), GOOD, UNKNOWN, False,
            ("False", "ScaledObjectNotReady", "no scaler for trigger"), id="KEDA cannot use it",
        ),
        pytest.param(
            scaled_object(Ready="True", Fallback="True"), GOOD, UNKNOWN, True,
            ("False", "Fallback", "KEDA has no metrics and keeps the replicas, or raises them to the minimum"),
            id="KEDA has lost its metrics",
        ),
        pytest.param(
            scaled_object(Ready="True", Fallback="False"), GOOD, UNKNOWN, True,
            ("True", "Scaling", "the ScaledObject is ready"), id="and found them again",
        ),
    ],
)  # fmt: skip
def test_autoscaling_ready(
    found: Manifest | None, one: Manifest | None, path: ScalingPath, answered: bool, expected: tuple[str, str, str]
) -> None:
    assert said(ready(found, one, path, answered=answered)) == expected


def ready(found: Manifest | None, one: Manifest | None, path: ScalingPath, *, answered: bool = True) -> Any:
    return scaling_path.autoscaling_ready(True, found, one, path, answered=answered, fault=None, generation=3)


@pytest.mark.parametrize("answered", [True, False], ids=["after an answer", "before the first answer"])
@pytest.mark.parametrize(
    ("one", "path", "reason"),
    [
        pytest.param(BLIND, TAKEN, "ExternalMetricsTaken", id="another adapter has the HPA's questions"),
        pytest.param(None, TAKEN, "ExternalMetricsTaken", id="and the HPA has not been seen"),
        pytest.param(BLIND, GONE, "ExternalMetricsUnavailable", id="nobody has them"),
        pytest.param(UNABLE, UNKNOWN, "HPAUnable", id="the HPA cannot write the number"),
        pytest.param(GOOD, OLD, "KEDATooOld", id="KEDA cannot keep replicas"),
    ],
)
def test_what_is_broken_for_good_is_told_at_any_time(
    one: Manifest | None, path: ScalingPath, reason: str, answered: bool
) -> None:
    status, found, message = said(ready(scaled_object(Ready="True"), one, path, answered=answered))
    assert (status, found) == ("False", reason)
    assert message.endswith("Replicas stay as they are")


@pytest.mark.parametrize(
    ("one", "path", "reason"),
    [
        pytest.param(GOOD, TAKEN, "Scaling", id="a KEDA under another name: the HPA has metrics"),
        pytest.param(RESTS, TAKEN, "Scaling", id="no replicas, so the HPA rests"),
        pytest.param(BLIND, UNKNOWN, "HPAInactive", id="KEDA's operator does not answer its adapter"),
        pytest.param(RESTS, UNKNOWN, "Scaling", id="a service without replicas"),
    ],
)
def test_the_verdict_of_the_hpa_counts(one: Manifest, path: ScalingPath, reason: str) -> None:
    assert ready(scaled_object(Ready="True"), one, path).reason == reason


def test_the_words_of_the_hpa_are_passed_on_and_cut() -> None:
    wordy = copy.deepcopy(BLIND)
    wordy["status"]["conditions"][1]["message"] = "unable to get external metric " + "x" * 5000
    message = ready(scaled_object(Ready="True"), wordy, UNKNOWN).message
    assert "FailedGetExternalMetric, unable to get external metric" in message
    assert len(message) < 500


def test_no_keda_is_told_before_all_else() -> None:
    found = scaling_path.autoscaling_ready(False, None, BLIND, TAKEN, answered=False, fault=None, generation=3)
    assert found.reason == "KEDAMissing"
    assert "install it, or turn autoscaling off" in found.message


def test_a_fault_that_kept_it_from_being_made_is_passed_on_until_it_is_there() -> None:
    fault = NotReady("NameTaken", "Service/chat belongs to someone else; delete it", 10.0)

    def told(found: Manifest | None) -> Any:
        return scaling_path.autoscaling_ready(True, found, None, UNKNOWN, answered=True, fault=fault, generation=3)

    assert said(told(None)) == ("Unknown", "NameTaken", f"no ScaledObject can be made: {fault.message}")
    assert told(scaled_object(Ready="True")).reason == "Scaling"


def looked(world: World, *found: Manifest) -> tuple[ScalingLook, list[object]]:
    for one in found:
        world.kube.put(one)
    told: list[object] = []
    return ScalingLook(world.registry, world.kube, told.append), told


class TestLook:
    async def test_every_service_is_looked_at_when_something_changed_and_at_no_other_time(self) -> None:
        world = World()
        world.add()
        look, told = looked(world, definition(), api_service())
        await look.run()
        assert world.registry.scaling_path == ScalingPath(served=True)
        assert told == [KEY]
        await look.run()
        assert told == [KEY]
        world.kube.put(api_service("prometheus-adapter", "monitoring"))
        await look.run()
        assert told == [KEY, KEY]
        assert world.registry.scaling_path == TAKEN

    async def test_it_takes_two_reads_and_a_list_whatever_the_number_of_services(self) -> None:
        world = World()
        for name in ("chat", "code", "search"):
            world.add(name=name)
        look, _ = looked(world, definition(), api_service())
        await look.run()
        assert len(world.kube.reads) == 2

    async def test_what_no_watch_has_told_of_a_scaled_object_is_taken_from_the_list(self) -> None:
        world = World()
        world.add()
        await world.settle()
        child = world.service().children["ScaledObject/chat"]
        version = int(child["metadata"].get("resourceVersion") or 0)
        listed = {"metadata": {"resourceVersion": str(version + 7)}, "status": {"conditions": [{"type": "Ready"}]}}
        world.kube.put({**child, "metadata": {**child["metadata"], **listed["metadata"]}, "status": listed["status"]})
        look, _ = looked(world, definition(), api_service())
        await look.run()
        assert world.service().children["ScaledObject/chat"]["status"] == listed["status"]

    async def test_an_api_server_that_does_not_answer_proves_nothing(self) -> None:
        world = World()
        look, told = looked(world, definition(), api_service())
        await look.run()
        world.add()
        world.kube.fail(unavailable, "get")
        await look.run()
        assert world.registry.scaling_path == ScalingPath(served=True)
        assert told == []

    async def test_without_the_rights_nothing_is_claimed(self) -> None:
        world = World()
        look, _ = looked(world, definition(None), api_service("prometheus-adapter", "monitoring"))
        world.kube.fail(forbidden, "get")
        await look.run()
        assert world.registry.scaling_path == UNKNOWN


class TestPass:
    """What an objects pass makes of it."""

    async def world(self, *found: Manifest, **changes: Any) -> tuple[World, ScalingLook]:
        world = World()
        world.add(changes or None)
        world.see(pod())
        look, _ = looked(world, *found)
        await look.run()
        await world.settle()
        return world, look

    async def test_a_keda_that_could_not_keep_replicas_gets_no_scaled_object(self) -> None:
        world, _ = await self.world(definition(None), api_service())
        assert "ScaledObject/chat" not in world.kube.applied()
        assert (world.condition("AutoscalingReady") or ("",))[:2] == ("False", "KEDATooOld")
        assert (world.condition("Ready") or ("",))[0] == "True"

    async def test_one_that_is_there_stays_when_keda_is_set_back(self) -> None:
        world, look = await self.world(definition(), api_service())
        world.kube.put(definition(None))
        await look.run()
        await world.settle()
        assert ("ScaledObject", "ml", "chat") in world.kube.objects
        assert (world.condition("AutoscalingReady") or ("",))[:2] == ("False", "KEDATooOld")

    async def test_definitions_that_go_and_come_back_bring_a_new_scaled_object(self) -> None:
        """They take every ScaledObject along, and the watch of a kind that is no more need not tell."""
        world, look = await self.world(definition(), api_service())
        replicas = world.kube.live("Deployment", "chat")["spec"]["replicas"]
        world.kube.vanish("ScaledObject", "chat")
        world.kube.vanish("CustomResourceDefinition", "scaledobjects.keda.sh", "")
        world.kube.served = set()
        await look.run()
        await world.settle()
        assert (world.condition("AutoscalingReady") or ("",))[:2] == ("False", "KEDAMissing")
        assert world.kube.live("Deployment", "chat")["spec"]["replicas"] == replicas
        world.kube.put(definition())
        world.kube.served = {("keda.sh/v1alpha1", "ScaledObject")}
        await look.run()
        await world.settle()
        assert ("ScaledObject", "ml", "chat") in world.kube.objects
        assert (world.condition("AutoscalingReady") or ("",))[:2] == ("Unknown", "WaitingForKEDA")

    async def test_definitions_that_went_since_the_last_look_keep_nothing_else_from_being_done(self) -> None:
        world, _ = await self.world(definition(), api_service())
        world.kube.take_away("ScaledObject", "chat")
        world.kube.served = set()
        assert await world.reconcile() is None
        assert (world.condition("Ready") or ("",))[0] == "True"

    async def test_a_fixed_number_of_replicas_needs_none_of_it(self) -> None:
        world, _ = await self.world(**FIXED_REPLICAS)
        assert (world.condition("AutoscalingReady") or ("",))[:2] == ("True", "FixedReplicas")
