"""Children: written when they have to be, never taken from somebody else, and a key that is made once."""

from __future__ import annotations

import logging
from base64 import b64decode
from typing import Any

import pytest

from outrider.core.schedule import parse_text
from outrider.errors import Conflict, NotReady
from outrider.manifests import config_maps, secret, service_account
from outrider.reconcile import children
from tests.unit.api.bodies import resource

from .builders import UID, World, pod

SCALED_OBJECT = ("keda.sh/v1alpha1", "ScaledObject", "chat")
ACCOUNT = "ServiceAccount/chat-engine"


@pytest.fixture
def world() -> World:
    """Knows `chat`, and has parsed it."""
    world = World()
    world.add().resource = resource({"metadata.uid": UID})
    return world


def account(**more: Any) -> dict[str, Any]:
    return {**service_account.service_account(resource({"metadata.uid": UID})), **more}


def foreign(kind: str, name: str, api_version: str = "v1", **more: Any) -> dict[str, Any]:
    """An object of the same name that somebody else made."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "ml"}, **more}


def stored_keys(world: World) -> list[str]:
    return b64decode(world.kube.live("Secret", "chat-admin")["data"]["key"]).decode().split()


class TestApply:
    async def test_what_is_not_there_is_applied(self, world: World) -> None:
        made = await children.apply(world.service(), account(), world.neighbours)
        assert made["metadata"]["uid"]
        assert world.kube.applied() == [ACCOUNT]

    async def test_what_is_as_wanted_is_left_alone(self, world: World) -> None:
        for _ in range(3):
            await children.apply(world.service(), account(), world.neighbours)
        assert world.kube.applied() == [ACCOUNT]
        assert world.kube.reads == [ACCOUNT]

    async def test_what_is_wanted_otherwise_is_applied_again(self, world: World) -> None:
        await children.apply(world.service(), account(), world.neighbours)
        await children.apply(world.service(), account(automountServiceAccountToken=True), world.neighbours)
        assert world.kube.applied() == [ACCOUNT, ACCOUNT]

    async def test_what_somebody_changed_is_put_right(self, world: World) -> None:
        await children.apply(world.service(), account(), world.neighbours)
        world.kube.edit("ServiceAccount", "chat-engine", {"automountServiceAccountToken": True})
        made = await children.apply(world.service(), account(), world.neighbours)
        assert made["automountServiceAccountToken"] is False

    async def test_what_somebody_deleted_is_made_again(self, world: World) -> None:
        await children.apply(world.service(), account(), world.neighbours)
        world.kube.take_away("ServiceAccount", "chat-engine")
        await children.apply(world.service(), account(), world.neighbours)
        assert world.kube.live("ServiceAccount", "chat-engine")

    async def test_after_a_restart_a_child_is_applied_once_to_be_sure(self, world: World) -> None:
        await children.apply(world.service(), account(), world.neighbours)
        version = world.kube.live("ServiceAccount", "chat-engine")["metadata"]["resourceVersion"]
        world.restart()
        for _ in range(2):
            await children.apply(world.service(), account(), world.neighbours)
        assert world.kube.applied() == [ACCOUNT, ACCOUNT]
        assert world.kube.live("ServiceAccount", "chat-engine")["metadata"]["resourceVersion"] == version
        assert world.kube.reads.count(ACCOUNT) == 1, "what a watch has shown is not asked for"

    async def test_one_of_our_label_that_a_watch_has_shown_is_not_taken_from_its_owner(self, world: World) -> None:
        one = foreign("ServiceAccount", "chat-engine")
        one["metadata"] |= {"labels": account()["metadata"]["labels"], "ownerReferences": [{"uid": "another"}]}
        before = world.kube.put(one)
        world.restart()
        with pytest.raises(NotReady, match=r"ServiceAccount/chat-engine exists and belongs to someone else"):
            await children.apply(world.service(), account(), world.neighbours)
        assert world.kube.live("ServiceAccount", "chat-engine") == before

    @pytest.mark.parametrize(
        "owners",
        [
            pytest.param([], id="nobody's"),
            pytest.param([{"uid": "another", "kind": "SpeculativeInferenceService"}], id="a deleted namesake's"),
        ],
    )
    async def test_what_belongs_to_someone_else_is_not_touched(self, world: World, owners: list[Any]) -> None:
        one = foreign("ServiceAccount", "chat-engine")
        one["metadata"]["ownerReferences"] = owners
        before = world.kube.put(one)
        with pytest.raises(NotReady, match=r"ServiceAccount/chat-engine exists and belongs to someone else") as caught:
            await children.apply(world.service(), account(), world.neighbours)
        assert (caught.value.reason, caught.value.retry_after_s) == ("NameTaken", 10.0)
        assert world.kube.live("ServiceAccount", "chat-engine") == before

    async def test_an_event_that_overtakes_our_answer_is_not_undone_by_it(self, world: World) -> None:
        """Somebody edits the child after our write, and the watch tells us before our own call returns."""

        def edit() -> None:
            world.kube.edit("ServiceAccount", "chat-engine", {"automountServiceAccountToken": True})

        world.kube.meanwhile("apply", ACCOUNT, edit)
        await children.apply(world.service(), account(), world.neighbours)
        assert world.service().children[ACCOUNT]["automountServiceAccountToken"] is True
        await children.apply(world.service(), account(), world.neighbours)
        assert world.kube.live("ServiceAccount", "chat-engine")["automountServiceAccountToken"] is False


class TestRemove:
    async def test_our_child_is_deleted_with_its_uid(self, world: World) -> None:
        manifest = foreign("ScaledObject", "chat", "keda.sh/v1alpha1", spec={})
        manifest["metadata"]["ownerReferences"] = [{"uid": UID}]
        await children.apply(world.service(), manifest, world.neighbours)
        await children.remove(world.service(), *SCALED_OBJECT, world.neighbours)
        assert ("ScaledObject", "ml", "chat") not in world.kube.objects
        assert world.service().applied == {}

    async def test_what_is_not_ours_stays(self, world: World) -> None:
        world.kube.put(foreign("ScaledObject", "chat", "keda.sh/v1alpha1", spec={}))
        await children.remove(world.service(), *SCALED_OBJECT, world.neighbours)
        assert world.kube.live("ScaledObject", "chat")

    async def test_what_is_not_there_needs_no_call(self, world: World) -> None:
        await children.remove(world.service(), *SCALED_OBJECT, world.neighbours)
        assert world.kube.writes == []


class TestAdminKey:
    async def test_a_key_is_made_for_a_service_that_has_none(self, world: World) -> None:
        await children.read_admin_key(world.service(), world.neighbours, make=True)
        assert stored_keys(world) == [world.service().admin_key]
        assert len(stored_keys(world)[0]) >= 40  # 256 bits, in base 64

    async def test_it_is_made_once(self, world: World) -> None:
        for _ in range(3):
            await children.read_admin_key(world.service(), world.neighbours, make=True)
        assert len(world.kube.created("Secret")) == 1
        assert world.kube.reads == ["Secret/chat-admin"]

    async def test_two_services_have_different_keys(self, world: World) -> None:
        world.add(name="code").resource = resource({"metadata.uid": "uid-code", "metadata.name": "code"})
        for name in ("chat", "code"):
            await children.read_admin_key(world.service(name), world.neighbours, make=True)
        assert world.service("chat").admin_key != world.service("code").admin_key

    async def test_a_restarted_operator_reads_it(self, world: World) -> None:
        await children.read_admin_key(world.service(), world.neighbours, make=True)
        key = world.service().admin_key
        world.restart()
        world.service().resource = resource({"metadata.uid": UID})
        await children.read_admin_key(world.service(), world.neighbours, make=True)
        assert world.service().admin_key == key
        assert len(world.kube.created("Secret")) == 1

    @pytest.mark.failure(
        "The cluster and its people",
        "the Secret of the admin key is deleted",
        k="engines go on",
        ends="made again with the same key, within five minutes, and with the next look while a pod starts",
        guard="reconcile/children.py:read_admin_key",
    )
    async def test_a_deleted_secret_is_made_again_with_the_key_that_engines_have(self, world: World) -> None:
        """Secrets are not watched. Without it no new pod can mount its key, and every scale-up hangs."""
        await world.settle()
        key = world.service().admin_key
        world.kube.take_away("Secret", "chat-admin")
        world.clock.advance(600)
        await world.settle()
        assert stored_keys(world) == [key]

    @pytest.mark.failure("The cluster and its people", "the Secret of the admin key is deleted")
    async def test_while_a_pod_starts_a_deleted_secret_is_missed_sooner(self, world: World) -> None:
        """Found by chaos: the only replica was replaced while the Secret was away, and nobody served for five
        minutes."""
        await world.settle()
        world.kube.take_away("Secret", "chat-admin")
        world.clock.advance(children.LOOK_FOR_MOUNT_S)
        world.see(pod(ready=False))
        await world.settle()
        assert stored_keys(world) == [world.service().admin_key]

    async def test_of_several_keys_the_first_is_used(self, world: World) -> None:
        world.kube.put(secret.admin_secret(resource({"metadata.uid": UID}), "newer", "older"))
        await children.read_admin_key(world.service(), world.neighbours, make=True)
        assert world.service().admin_key == "newer"

    async def test_a_secret_that_appears_meanwhile_is_read_in_the_next_pass(self, world: World) -> None:
        world.kube.fail(lambda: Conflict("Conflict", "exists", 409), "create", "Secret/chat-admin", times=1)
        with pytest.raises(NotReady) as caught:
            await children.read_admin_key(world.service(), world.neighbours, make=True)
        assert (caught.value.reason, caught.value.retry_after_s) == ("SecretAppeared", 1.0)
        assert world.service().admin_key is None

    async def test_a_secret_of_someone_else_is_not_used(self, world: World) -> None:
        world.kube.put(foreign("Secret", "chat-admin", data={"key": "c3RyYW5nZQ=="}))
        with pytest.raises(NotReady, match="belongs to someone else"):
            await children.read_admin_key(world.service(), world.neighbours, make=True)
        assert world.service().admin_key is None

    async def test_it_is_in_no_log_event_status_or_other_object(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        world.see(pod(), pod("chat-b", address="10.0.0.2"))
        world.engines.key = "another key than ours"
        for _ in range(2):
            await world.reconcile()
            world.measure()
            await world.control.run()
        (key,) = stored_keys(world)
        elsewhere = [one for (kind, _, _), one in world.kube.objects.items() if kind != "Secret"]
        assert "schedule not taken" in caplog.text
        assert key not in caplog.text
        assert key not in str(elsewhere)


async def test_the_schedule_document_is_a_child_like_any_other(world: World) -> None:
    wanted = resource({"metadata.uid": UID})
    await children.apply(
        world.service(), config_maps.schedule(wanted, 2, parse_text("1-256:5"), 3600), world.neighbours
    )
    assert world.kube.live("ConfigMap", "chat-schedule")["data"] == {
        "schedule.json": '{"generation":2,"schedule":[[1,256,5]],"leaseSeconds":3600}'
    }
