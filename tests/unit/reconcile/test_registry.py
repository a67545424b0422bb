"""What the registry makes of watch events, in any order in which they may come."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.reconcile.manifest_state import digest, shape
from outrider.reconcile.registry import Registry, Service

from .builders import KEY, body, pod
from .fakes import Manifest


def deployment(
    *, uid: str = "d-1", generation: int = 1, version: str = "10", status: Manifest | None = None
) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "chat",
            "namespace": "ml",
            "uid": uid,
            "generation": generation,
            "resourceVersion": version,
            "labels": {"serving.outrider.dev/service": "chat"},
        },
        "spec": {"replicas": 1},
        "status": status or {},
    }


def known(registry: Registry) -> Service:
    service = registry.get(KEY)
    assert service is not None
    return service


@pytest.fixture
def registry() -> Registry:
    """Knows the resource `chat`."""
    registry = Registry()
    registry.resource_event("ADDED", body())
    return registry


class TestResources:
    def test_a_listed_resource_is_known(self) -> None:
        registry = Registry()
        assert registry.resource_event(None, body()) == (KEY, True)
        assert [service.key for service in registry] == [KEY]

    def test_a_status_that_we_wrote_ourselves_is_no_reason_to_look(self, registry: Registry) -> None:
        assert registry.resource_event("MODIFIED", body()) == (KEY, False)

    def test_what_is_gone_is_forgotten_unless_it_was_made_anew(self, registry: Registry) -> None:
        uid = known(registry).body["metadata"]["uid"]
        registry.forget(KEY, "another life")
        assert registry.get(KEY) is not None
        registry.forget(KEY, uid)
        assert registry.get(KEY) is None

    def test_a_change_keeps_what_was_learnt_about_the_service(self, registry: Registry) -> None:
        service = known(registry)
        service.admin_key = "kept"
        registry.resource_event("MODIFIED", body(generation=4))
        assert known(registry) is service
        assert service.body["metadata"]["generation"] == 4
        assert service.admin_key == "kept"

    @pytest.mark.parametrize(
        ("event_type", "changes"),
        [
            pytest.param("DELETED", {}, id="it is gone"),
            pytest.param("MODIFIED", {"metadata.deletionTimestamp": "2027-01-15T08:00:00Z"}, id="it is going"),
        ],
    )
    def test_a_deleted_resource_is_forgotten(
        self, registry: Registry, event_type: str, changes: dict[str, Any]
    ) -> None:
        registry.resource_event(event_type, body(changes))
        assert registry.get(KEY) is None
        assert len(registry) == 0

    def test_a_resource_made_anew_under_the_same_name_inherits_nothing(self, registry: Registry) -> None:
        """Its deletion may have gone unseen while the watch was cut."""
        old = known(registry)
        old.admin_key, old.acknowledged["pod"] = "old", (17, 0.0)
        registry.resource_event(None, body({"metadata.uid": "another"}))
        new = known(registry)
        assert new is not old
        assert (new.admin_key, new.acknowledged, new.state, new.status) == (None, {}, None, None)

    def test_iterating_is_safe_while_services_come_and_go(self, registry: Registry) -> None:
        for _ in registry:
            registry.resource_event("ADDED", body(name="code"))


class TestChildren:
    def test_children_may_come_before_their_resource(self) -> None:
        registry = Registry()
        assert registry.child_event(None, deployment()) == (KEY, False)
        assert registry.child_event(None, pod()) == (KEY, False)
        registry.resource_event(None, body())
        assert set(known(registry).children) == {"Deployment/chat"}
        assert set(known(registry).pods) == {"chat-a"}

    def test_pods_that_end_after_their_resource_leave_nothing_behind(self, registry: Registry) -> None:
        """Found by chaos: a service that is made and deleted each hour left an entry each time, for ever."""
        ending = [pod("chat-a", terminating=True), pod("chat-b", terminating=True)]
        registry.resource_event("DELETED", body())
        for one in ending:
            registry.child_event("MODIFIED", one)
        registry.child_event("DELETED", ending[0])
        assert list(registry._orphans) == [("ml", "chat")]
        registry.child_event("DELETED", ending[1])
        assert not registry._orphans

    def test_a_child_that_is_gone_before_its_resource_comes_is_not_remembered(self) -> None:
        registry = Registry()
        registry.child_event("ADDED", pod())
        registry.child_event("DELETED", pod())
        registry.resource_event("ADDED", body())
        assert known(registry).pods == {}

    @pytest.mark.parametrize(
        ("after", "news"),
        [
            pytest.param(deployment(version="11"), False, id="the same, with another version"),
            pytest.param(deployment(version="11", generation=2), True, id="somebody changed its spec"),
            pytest.param(deployment(version="11", status={"readyReplicas": 1}), True, id="its status moved"),
            pytest.param(deployment(version="3", uid="d-2"), True, id="another object of the same name"),
            pytest.param(deployment(version="9", generation=2), False, id="an event older than what is known"),
            pytest.param(deployment(version="soon", generation=2), True, id="a version that is no number"),
        ],
    )
    def test_what_is_worth_a_look(self, registry: Registry, after: Manifest, news: bool) -> None:
        assert registry.child_event("ADDED", deployment()) == (KEY, True)
        assert registry.child_event("MODIFIED", after) == (KEY, news)

    def test_an_older_event_does_not_undo_what_our_own_write_showed(self, registry: Registry) -> None:
        known(registry).children["Deployment/chat"] = deployment(version="100", generation=5)
        registry.child_event("MODIFIED", deployment(version="99", generation=4))
        assert known(registry).children["Deployment/chat"]["metadata"]["generation"] == 5

    def test_a_deleted_child_has_to_be_applied_again(self, registry: Registry) -> None:
        registry.child_event("ADDED", deployment())
        known(registry).applied["Deployment/chat"] = ("sent", "shape")
        assert registry.child_event("DELETED", deployment()) == (KEY, True)
        assert (known(registry).children, known(registry).applied) == ({}, {})

    def test_a_late_goodbye_of_an_object_that_was_replaced_changes_nothing(self, registry: Registry) -> None:
        registry.child_event("ADDED", deployment(uid="d-2", version="20"))
        registry.child_event("DELETED", deployment(uid="d-1", version="19"))
        assert known(registry).children["Deployment/chat"]["metadata"]["uid"] == "d-2"


class TestPods:
    @pytest.mark.parametrize(
        ("one", "ready"),
        [
            pytest.param(pod(), True, id="ready"),
            pytest.param(pod(ready=False), False, id="not ready"),
            pytest.param(pod(terminating=True), False, id="ready, but on its way out"),
        ],
    )
    def test_pods_that_serve(self, registry: Registry, one: Manifest, ready: bool) -> None:
        registry.child_event("ADDED", one)
        assert [found.name for found in known(registry).ready_pods] == (["chat-a"] if ready else [])

    def test_pods_that_serve_come_in_order_of_name(self, registry: Registry) -> None:
        for name in ("chat-c", "chat-a", "chat-b"):
            registry.child_event("ADDED", pod(name))
        assert [found.name for found in known(registry).ready_pods] == ["chat-a", "chat-b", "chat-c"]

    def test_a_heartbeat_is_no_news_and_readiness_is(self, registry: Registry) -> None:
        assert registry.child_event("ADDED", pod(ready=False)) == (KEY, True)
        assert registry.child_event("MODIFIED", pod(ready=False)) == (KEY, False)
        assert registry.child_event("MODIFIED", pod()) == (KEY, True)

    def test_with_a_pod_goes_what_its_engine_said(self, registry: Registry) -> None:
        registry.child_event("ADDED", pod())
        service = known(registry)
        service.acknowledged["pod-uid-chat-a"], service.refusals["pod-uid-chat-a"] = (2, 0.0), "no"
        assert registry.child_event("DELETED", pod()) == (KEY, True)
        assert (service.pods, service.acknowledged, service.refusals) == ({}, {}, {})
        assert registry.child_event("DELETED", pod()) == (KEY, False)

    def test_an_engine_that_started_again_in_its_pod_has_acknowledged_nothing(self, registry: Registry) -> None:
        """The pod keeps its UID when its container restarts; the engine in it begins with its initial schedule."""
        registry.child_event("ADDED", pod())
        service = known(registry)
        service.acknowledged["pod-uid-chat-a"] = (2, 0.0)
        registry.child_event("MODIFIED", pod(ready=False, restarts=1))
        assert service.acknowledged == {}


def test_of_those_who_own_fields_only_who_has_the_number_of_replicas_is_kept(registry: Registry) -> None:
    body = deployment()
    number = {"manager": "hpa", "time": "2027-01-15T08:00:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    both = {**number, "fieldsV1": {"f:spec": {"f:replicas": {}, "f:paused": {}}}}
    body["metadata"]["managedFields"] = [{"manager": "outrider", "fieldsV1": {"f:spec": {"f:template": {}}}}, both]
    registry.child_event("ADDED", body)
    kept = known(registry).children["Deployment/chat"]
    assert kept["metadata"]["managedFields"] == [number]
    assert body["metadata"]["managedFields"] != [number], "what others still read was changed"


class TestFingerprints:
    def test_equal_content_has_one_digest_whatever_its_order(self) -> None:
        assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
        assert digest({"a": 1}) != digest({"a": 2})

    @pytest.mark.parametrize(
        ("changes", "same"),
        [
            pytest.param({"metadata": {"resourceVersion": "2"}}, True, id="a version"),
            pytest.param({"metadata": {"managedFields": []}}, True, id="who wrote it"),
            pytest.param({"status": {"loadBalancer": {}}}, True, id="its status"),
            pytest.param({"data": {"key": "other"}}, False, id="its content"),
            pytest.param({"metadata": {"labels": {"a": "b"}}}, False, id="its labels"),
            pytest.param({"metadata": {"uid": "2"}}, False, id="another object of the name"),
        ],
    )
    def test_shape_without_a_generation_is_the_content(self, changes: Manifest, same: bool) -> None:
        before: Manifest = {"kind": "ConfigMap", "metadata": {"name": "chat", "uid": "1"}, "data": {"key": "value"}}
        after = {**before, **changes, "metadata": {**before["metadata"], **changes.get("metadata", {})}}
        assert (shape(before) == shape(after)) is same

    def test_shape_with_a_generation_is_the_generation(self) -> None:
        assert shape(deployment()) == shape(deployment(version="11", status={"readyReplicas": 1}))
        assert shape(deployment()) != shape(deployment(generation=2))
        assert shape(deployment()) != shape(deployment(uid="d-2"))


@pytest.mark.parametrize(
    ("status", "answered"),
    [
        pytest.param({}, False, id="not taken up yet"),
        pytest.param({"health": {"s0": {"status": "Failing", "numberOfFailures": 4}}}, False, id="no answer so far"),
        pytest.param(
            {"health": {"s0": {"status": "Failing"}, "s1": {"status": "Happy"}}}, True, id="one query has an answer"
        ),
        pytest.param({"lastActiveTime": "2027-01-15T08:00:00Z"}, True, id="load was seen some time"),
    ],
)
def test_an_answer_to_keda_is_remembered(registry: Registry, status: Manifest, answered: bool) -> None:
    scaled: Manifest = {**deployment(status=status), "kind": "ScaledObject", "apiVersion": "keda.sh/v1alpha1"}
    registry.child_event("ADDED", scaled)
    assert known(registry).keda_answered is answered
    lost: Manifest = {**scaled, "status": {"health": {"s0": {"status": "Failing"}}}}
    lost["metadata"] = {**scaled["metadata"], "resourceVersion": "11"}
    registry.child_event("MODIFIED", lost)
    assert known(registry).keda_answered is answered


def test_an_hpa_is_a_reason_to_look_when_its_verdict_changes_and_not_at_each_of_its_looks() -> None:
    registry = Registry()
    registry.resource_event("ADDED", body())

    def told(active: str, value: str, desired: int = 2) -> bool:
        hpa = {
            "kind": "HorizontalPodAutoscaler",
            "metadata": {
                "name": "keda-hpa-chat",
                "namespace": "ml",
                "uid": "h",
                "labels": {"serving.outrider.dev/service": "chat"},
            },
            "spec": {},
            "status": {
                "desiredReplicas": desired,
                "currentMetrics": [{"external": {"current": {"averageValue": value}}}],
                "conditions": [{"type": "ScalingActive", "status": active, "message": f"metric {value}"}],
            },
        }
        return registry.child_event("MODIFIED", hpa)[1]

    assert told("True", "3")
    assert not told("True", "4")
    assert told("False", "4")
    assert told("False", "4", desired=3)
