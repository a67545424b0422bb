"""What Kopf is given: handlers that hand on and write nothing, and a probe that tells when control has stopped."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf
import pytest

from outrider import handlers
from outrider.handlers import CHILDREN, CONTROL_LATE, Operator
from outrider.reconcile.resync import Resync
from tests.unit.reconcile.builders import KEY, body, pod, settings
from tests.unit.reconcile.fakes import FakeKube, Manifest


class Alone:
    """Knows of no other operator."""

    def leads(self) -> bool:
        return True

    def sentence(self) -> str:
        return "active: alone"


class Queue:
    """Notes what it is given instead of working on it."""

    def __init__(self) -> None:
        self.added: list[object] = []
        self.forgotten: list[object] = []

    def add(self, key: object) -> None:
        self.added.append(key)

    def forget(self, key: object) -> None:
        self.forgotten.append(key)


@pytest.fixture
def operator() -> Operator:
    """Not started, with a queue that notes what it is given."""
    operator = Operator(settings(), Alone())
    operator._queue = Queue()  # type: ignore[assignment]
    return operator


def queue(operator: Operator) -> Queue:
    found = operator._queue
    assert isinstance(found, Queue)
    return found


def watching(operator: Operator) -> dict[str, Any]:
    """Event handlers by plural."""
    return {
        one.selector.any_name: one
        for one in handlers.register(operator)._watching.get_all_handlers()
        if one.selector is not None and isinstance(one.selector.any_name, str)
    }


def activities(operator: Operator) -> dict[str, Any]:
    """Other handlers by what they are for."""
    found = handlers.register(operator)._activities.get_all_handlers()
    return {one.activity.value: one for one in found if one.activity is not None and one.id not in ("watch", "leader")}


def watch_probe(operator: Operator) -> Any:
    """The other probe."""
    (found,) = (one for one in handlers.register(operator)._activities.get_all_handlers() if one.id == "watch")
    return found


async def tell(operator: Operator, plural: str, event_type: str | None, one: Manifest) -> object:
    """An event as Kopf delivers it, and what the handler returns."""
    event = {"type": event_type, "object": one}
    answer: object = await watching(operator)[plural].fn(
        event=event, body=one, name=one["metadata"]["name"], logger=None
    )
    return answer


class TestRegistry:
    def test_only_kinds_of_handlers_that_write_nothing_are_registered(self, operator: Operator) -> None:
        """Change, timer and daemon handlers put annotations or finalizers on an object, and results into status."""
        registry = handlers.register(operator)
        for kind in (registry._changing, registry._spawning, registry._indexing, registry._webhooks):
            assert list(kind.get_all_handlers()) == []

    def test_the_resource_and_its_children_are_watched(self, operator: Operator) -> None:
        assert set(watching(operator)) == {"speculativeinferenceservices", *(plural for _, _, plural in CHILDREN)}

    def test_children_are_those_with_our_label_and_nothing_else_of_the_cluster(self, operator: Operator) -> None:
        for plural, handler in watching(operator).items():
            if plural != "speculativeinferenceservices":
                assert handler.labels == {"serving.outrider.dev/service": kopf.PRESENT}, plural

    def test_secrets_are_not_watched_so_that_no_right_to_list_them_is_needed(self, operator: Operator) -> None:
        assert "secrets" not in watching(operator)

    def test_there_are_a_login_a_start_an_end_and_a_probe(self, operator: Operator) -> None:
        assert set(activities(operator)) == {"authentication", "startup", "cleanup", "probe"}

    def test_two_operators_of_one_process_share_nothing(self, operator: Operator) -> None:
        other = Operator(settings(), Alone())
        assert handlers.register(operator) is not handlers.register(other)
        assert other.registry is not operator.registry


def test_a_start_that_fails_ends_the_process_which_gives_its_lease_back(operator: Operator) -> None:
    assert activities(operator)["startup"].errors is kopf.ErrorsMode.PERMANENT


async def test_probes_are_told_who_is_active(operator: Operator) -> None:
    handlers_of_probes = handlers.register(operator)._activities.get_all_handlers()
    (probe,) = (one for one in handlers_of_probes if one.id == "leader")
    assert await probe.fn() == "active: alone"


class TestEvents:
    @pytest.mark.parametrize("event_type", [None, "ADDED", "MODIFIED"])
    async def test_a_resource_is_handed_on_and_nothing_is_returned_for_kopf_to_write(
        self, operator: Operator, event_type: str | None
    ) -> None:
        assert await tell(operator, "speculativeinferenceservices", event_type, body()) is None
        assert operator.registry.get(KEY) is not None
        assert queue(operator).added == [KEY]

    async def test_a_deleted_resource_is_forgotten_with_its_retries(self, operator: Operator) -> None:
        await tell(operator, "speculativeinferenceservices", "ADDED", body())
        assert await tell(operator, "speculativeinferenceservices", "DELETED", body()) is None
        assert operator.registry.get(KEY) is None
        assert queue(operator).forgotten == [KEY]
        assert queue(operator).added == [KEY]

    async def test_a_child_wakes_its_service_when_it_brings_news(self, operator: Operator) -> None:
        await tell(operator, "speculativeinferenceservices", "ADDED", body())
        for one in (pod(ready=False), pod(ready=False), pod()):
            assert await tell(operator, "pods", "MODIFIED", one) is None
        assert queue(operator).added == [KEY] * 3  # the resource, the pod, its readiness; not its heartbeat

    async def test_a_child_without_a_resource_wakes_nobody(self, operator: Operator) -> None:
        assert await tell(operator, "pods", "ADDED", pod()) is None
        assert queue(operator).added == []

    async def test_events_before_the_start_are_kept_for_it(self) -> None:
        operator = Operator(settings(), Alone())
        await tell(operator, "speculativeinferenceservices", None, body())
        assert operator.registry.get(KEY) is not None


class TestProbe:
    async def test_a_process_that_just_began_is_alive(self, operator: Operator) -> None:
        assert await activities(operator)["probe"].fn() < 1.0

    @pytest.mark.failure(
        "Ourselves",
        "control has stopped",
        alerts=["OutriderNotDeciding"],
        status="the probe ends the process",
        ends="start-up",
        guard="handlers.py:Operator.control_age_s",
    )
    @pytest.mark.parametrize(
        ("period_s", "late_s"),
        [
            pytest.param(15.0, 60.0, id="four periods"),
            pytest.param(60.0, 240.0, id="four long periods"),
            pytest.param(1.0, 60.0, id="a minute at least, however short the periods"),
        ],
    )
    async def test_a_process_whose_control_has_stopped_is_not(self, period_s: float, late_s: float) -> None:
        operator = Operator(settings(control_period_s=period_s), Alone())
        began_s = operator._control_s
        operator._control_s = began_s - late_s + 1.0
        assert await activities(operator)["probe"].fn() >= late_s - 1.0
        operator._control_s = began_s - late_s - 1.0
        with pytest.raises(RuntimeError, match=f"control passes have not got on for {late_s + 1:.0f} s"):
            await activities(operator)["probe"].fn()
        assert CONTROL_LATE == 4

    def test_the_kubelet_gets_its_answer_at_once(self, operator: Operator) -> None:
        """Kopf tries a failed probe again in a minute by default, and answers nothing until then."""
        assert activities(operator)["probe"].errors is kopf.ErrorsMode.PERMANENT

    @pytest.mark.failure(
        "API server",
        "a watch is silent and says nothing of it",
        status="the probe ends the process",
        ends="start-up",
        guard="handlers.py:Operator.watch",
    )
    async def test_a_watch_that_keeps_changes_from_us_ends_the_process(self, operator: Operator) -> None:
        probe = watch_probe(operator)
        assert probe.errors is kopf.ErrorsMode.PERMANENT
        assert await probe.fn() == "tells"
        operator._resync = Resync(operator.registry, FakeKube(), (), lambda key: None)
        assert await probe.fn() == "tells"
        operator._resync.silent = KEY
        with pytest.raises(RuntimeError, match="the watch of services has not told of a change of ml/chat for 300 s"):
            await probe.fn()


class TestKopfSettings:
    @pytest.fixture
    def configured(self) -> kopf.OperatorSettings:
        found = kopf.OperatorSettings()
        handlers._configure(found)
        return found

    def test_kopf_posts_no_events_of_its_own(self, configured: kopf.OperatorSettings) -> None:
        assert not configured.posting.enabled

    def test_kopf_needs_no_peering_resource(self, configured: kopf.OperatorSettings) -> None:
        assert configured.peering.standalone

    def test_a_watch_that_was_cut_without_a_word_is_noticed(self, configured: kopf.OperatorSettings) -> None:
        assert configured.watching.server_timeout is not None
        assert configured.watching.client_timeout is not None
        assert configured.watching.server_timeout < configured.watching.client_timeout <= 600
        assert (configured.networking.request_timeout or 3600) <= 60

    def test_it_ends_within_a_pods_grace_period(self, configured: kopf.OperatorSettings) -> None:
        assert configured.process.ultimate_exiting_timeout is not None
        assert configured.process.ultimate_exiting_timeout < 30


class TestFlows:
    async def test_a_flow_that_ends_by_itself_ends_the_process(self) -> None:
        """A process that looks alive and decides nothing is worse than none: it is started again."""

        async def broken() -> None:
            raise ValueError("a fault of ours")

        task = asyncio.create_task(broken(), name="control")
        await asyncio.wait([task])
        with pytest.raises(SystemExit) as caught:
            handlers._end_with(task)
        assert caught.value.code == 1

    async def test_stopping_before_the_start_is_no_fault(self) -> None:
        await Operator(settings(), Alone()).stop()
