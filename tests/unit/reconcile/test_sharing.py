"""A GPU quota and the services under it: who may have how many replicas, where that is written, and what is told."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from outrider.reconcile.quotas import LOOKS, QuotaLook
from outrider.reconcile.sharing import Sharing

from .builders import World, busy_series, forbidden, pod, unavailable
from .fakes import FakeKube, Manifest

GPU = "requests.nvidia.com/gpu"
SHARED = {"spec.autoscaling": {"minReplicas": 1, "maxReplicas": 8}}


def quota(gpus: int, used: int = 0, name: str = "team", **spec: Any) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"hard": {GPU: str(gpus), "requests.memory": "1Ti"}, **spec},
        "status": {"used": {GPU: str(used)}},
    }


def engines(service: str, number: int, priority: int = 0) -> list[Manifest]:
    """Ready pods of a service, of one GPU each."""
    found = [pod(f"{service}-{one}", service=service, address=f"10.0.0.{one}") for one in range(number)]
    for one in found:
        one["spec"] |= {"priority": priority}
        one["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    return found


class Town(World):
    """A world whose autoscalers obey: a Deployment never has more replicas than its ScaledObject allows."""

    async def look(self, looks: int = 1) -> None:
        for _ in range(looks):
            await QuotaLook(self.registry, self.kube, ()).run()

    async def serve(self, name: str, replicas: int, changes: dict[str, Any] | None = None, priority: int = 0) -> None:
        self.add(SHARED if changes is None else changes, name)
        self.see(*engines(name, replicas, priority))
        await self.settle(name)
        self.kube.edit("Deployment", name, {"spec": {"replicas": replicas}}, manager=None)

    def load(self, name: str, replicas: float) -> None:
        """So much load that it needs so many replicas."""
        service = self.service(name)
        assert service.state is not None
        pods = [one.name for one in service.ready_pods]
        running = replicas * service.state.target / len(pods)
        self.metrics.series["ml", name] = busy_series(self.clock(), pods, running=running)

    async def run(self, loads: dict[str, float], minutes: float = 0.25) -> None:
        """Control passes, and the objects passes that they ask for, under steady loads."""
        for _ in range(round(minutes * 4)):
            self.clock.advance(15)
            for name, replicas in loads.items():
                self.load(name, replicas)
            await self.control.run()
            for key in dict.fromkeys(self.queued):
                assert await self.reconcile(key[1]) is None
            self.queued.clear()
            self.obey()

    def obey(self) -> None:
        for (kind, _, name), body in list(self.kube.objects.items()):
            if kind == "ScaledObject" and self.kube.replicas(name) > body["spec"]["maxReplicaCount"]:
                most = body["spec"]["maxReplicaCount"]
                self.kube.edit("Deployment", name, {"spec": {"replicas": most}}, manager=None)
                for gone in range(most, 20):
                    if ("Pod", "ml", f"{name}-{gone}") in self.kube.objects:
                        self.kube.take_away("Pod", f"{name}-{gone}")

    def most(self, name: str) -> int:
        found: int = self.kube.live("ScaledObject", name)["spec"]["maxReplicaCount"]
        return found

    def patches(self, name: str) -> int:
        return self.kube.applied().count(f"ScaledObject/{name}")


async def two(gpus: int, chat: int, code: int, **changes: Any) -> Town:
    """Two services under one quota, whose loads need what they have."""
    town = Town()
    town.kube.put(quota(gpus, used=chat + code))
    await town.serve("chat", chat, **changes)
    await town.serve("code", code)
    await town.look()
    await town.run({"chat": chat, "code": code})
    town.forget_writes()
    return town


async def test_services_under_one_quota_never_may_have_more_than_it_together() -> None:
    town = await two(6, chat=2, code=2)
    assert (town.most("chat"), town.most("code")) == (3, 3)
    assert town.status("chat")["capacity"]["maxReplicasBy"] == "ResourceQuota"
    await town.run({"chat": 6, "code": 1.5}, minutes=4)
    assert (town.most("chat"), town.most("code")) == (4, 2)
    assert town.kube.replicas("code") == 2, "what runs stays for now"


async def test_a_share_is_patched_in_place_and_seldom() -> None:
    town = await two(8, chat=2, code=2)
    uid = town.kube.live("ScaledObject", "chat")["metadata"]["uid"]
    for minute in range(120):
        await town.run({"chat": 2 if minute % 3 else 3, "code": 3 if minute % 2 else 2}, minutes=1)
    assert town.patches("chat") + town.patches("code") <= 2
    assert town.kube.live("ScaledObject", "chat")["metadata"]["uid"] == uid


async def test_a_running_replica_moves_after_ten_minutes_and_nobody_is_starved() -> None:
    town = await two(6, chat=5, code=1)
    loads = {"chat": 8.0, "code": 8.0}
    await town.run(loads, minutes=9)
    assert town.kube.replicas("chat") == 5
    await town.run(loads, minutes=4)
    assert (town.most("chat"), town.most("code")) == (4, 2)
    assert town.kube.replicas("chat") == 4
    await town.run(loads, minutes=120)
    assert (town.most("chat"), town.most("code")) == (3, 3)


async def test_an_operator_that_starts_again_keeps_the_shares() -> None:
    town = await two(6, chat=4, code=1)
    await town.run({"chat": 8, "code": 1}, minutes=3)
    before = town.most("chat"), town.most("code")
    assert before == (5, 1)
    generations = [town.kube.live("ScaledObject", name)["metadata"]["generation"] for name in ("chat", "code")]
    town.restart()
    for name in ("chat", "code"):
        await town.settle(name)
    assert (town.most("chat"), town.most("code")) == before
    await town.run({"chat": 8, "code": 1})
    await town.look()
    await town.run({"chat": 8, "code": 1}, minutes=10)
    after = [town.kube.live("ScaledObject", name)["metadata"]["generation"] for name in ("chat", "code")]
    assert after == generations


async def test_the_memory_is_written_before_the_share_is_applied() -> None:
    town = await two(6, chat=2, code=2)
    await town.run({"chat": 6, "code": 2}, minutes=2)
    applied = town.kube.applied()
    assert applied.index("ConfigMap/chat-memory") < applied.index("ScaledObject/chat")
    memory = json.loads(town.kube.live("ConfigMap", "chat-memory")["data"]["memory.json"])
    assert memory["share"]["most"] == town.most("chat") == 4


@pytest.mark.parametrize("document", [None, 7, {"most": "many"}, {"most": 3, "disputedSince": None}])
async def test_a_damaged_share_is_worked_out_anew(document: Any) -> None:
    town = await two(6, chat=2, code=2)
    body = town.kube.live("ConfigMap", "chat-memory")
    memory = json.loads(body["data"]["memory.json"]) | {"share": document}
    town.kube.put(body | {"data": {"memory.json": json.dumps(memory)}})
    town.restart()
    await town.settle("chat")
    assert town.service("chat").share is None
    assert town.service("chat").state is not None


async def test_a_quota_that_goes_leaves_the_services_their_own_bounds() -> None:
    town = await two(6, chat=2, code=2)
    town.kube.take_away("ResourceQuota", "team")
    await town.look()
    await town.run({"chat": 2, "code": 2}, minutes=1)
    assert (town.most("chat"), town.most("code")) == (8, 8)


async def test_a_lowered_quota_takes_one_running_replica_a_minute() -> None:
    town = await two(8, chat=4, code=4)
    town.kube.put(quota(5, used=8))
    await town.look()
    seen = []
    for _ in range(8):
        await town.run({"chat": 4, "code": 4}, minutes=0.5)
        seen.append(town.kube.replicas("chat") + town.kube.replicas("code"))
    assert seen[0] == 8
    assert seen[-1] == 5
    assert all(before - after in (0, 1) for before, after in pairwise(seen))


async def test_pods_of_others_count_once_they_have_been_there_for_some_looks() -> None:
    town = await two(8, chat=2, code=2)
    look = QuotaLook(town.registry, town.kube, ())
    town.kube.put(quota(8, used=4))
    await look.run()
    town.kube.put(quota(8, used=7))
    for number in range(LOOKS):
        assert town.registry.quotas is not None
        assert town.registry.quotas["ml", "nvidia.com/gpu"].others == 0, number
        await look.run()
    assert town.registry.quotas["ml", "nvidia.com/gpu"].gpus == 5
    await town.run({"chat": 8, "code": 2}, minutes=3)
    assert (town.most("chat"), town.most("code")) == (3, 2)
    assert "of which pods that are no replicas hold 3" in town.condition("CapacityLimited", "chat")[2]  # type: ignore[index]


async def test_an_operator_that_does_not_know_all_pods_yet_takes_none_for_somebody_elses() -> None:
    town = Town()
    town.kube.put(quota(6, used=6))
    look = QuotaLook(town.registry, town.kube, ())
    for _ in range(LOOKS - 1):
        await look.run()
        assert town.registry.quotas is not None
        assert town.registry.quotas["ml", "nvidia.com/gpu"].gpus == 6
    await look.run()
    assert town.registry.quotas["ml", "nvidia.com/gpu"].gpus == 0


@pytest.mark.parametrize(
    ("found", "gpus"),
    [
        pytest.param([quota(8), quota(4, name="small")], 4, id="the one that leaves least"),
        pytest.param([quota(4, scopes=["NotTerminating"])], 4, id="a scope that all engines are in"),
        pytest.param([quota(4, scopes=["BestEffort"])], None, id="another scope"),
        pytest.param([quota(4, scopeSelector={"matchExpressions": []})], None, id="a selector of scopes"),
        pytest.param([], None, id="none"),
    ],
)
async def test_which_quotas_count(found: list[Manifest], gpus: int | None) -> None:
    town = Town()
    for one in found:
        town.kube.put(one)
    await town.look()
    assert town.registry.quotas is not None
    read = town.registry.quotas.get(("ml", "nvidia.com/gpu"))
    assert (None if read is None else read.gpus) == gpus
    assert ("ml", "memory") not in town.registry.quotas


async def test_an_api_server_that_does_not_answer_proves_nothing() -> None:
    town = await two(6, chat=2, code=2)
    town.kube.fail(unavailable, "list", "ResourceQuota")
    await town.look()
    assert town.registry.quotas
    town.kube.heal()
    town.kube.fail(forbidden, "list", "ResourceQuota")
    await town.look()
    assert town.registry.quotas == {}


async def test_a_higher_priority_comes_first_and_starves_nobody() -> None:
    town = Town()
    town.kube.put(quota(6, used=2))
    await town.serve("chat", 1, priority=1000)
    await town.serve("code", 1)
    await town.look()
    await town.run({"chat": 8, "code": 8}, minutes=1)
    assert (town.most("chat"), town.most("code")) == (4, 2)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"spec.paused": True}, id="paused"),
        pytest.param({"spec.autoscaling": {"mode": "Off", "minReplicas": 3}}, id="a fixed number"),
    ],
)
async def test_who_does_not_follow_keeps_what_it_has(changes: dict[str, Any]) -> None:
    town = Town()
    town.kube.put(quota(6, used=4))
    await town.serve("chat", 3)
    await town.serve("code", 1)
    await town.look()
    town.add(SHARED | changes, "chat", generation=4)
    await town.settle("chat")
    await town.run({"chat": 1, "code": 8}, minutes=30)
    assert (town.kube.replicas("chat"), town.most("code")) == (3, 3)


async def test_what_is_recommended_to_another_autoscaler_stays_within_the_share() -> None:
    town = Town()
    town.kube.put(quota(6, used=4))
    await town.serve("chat", 2, {"spec.autoscaling": {"mode": "External", "minReplicas": 1}})
    await town.serve("code", 2)
    await town.look()
    await town.run({"chat": 9, "code": 2}, minutes=3)
    assert town.service("chat").share is not None
    assert town.status("chat")["capacity"]["maxReplicas"] == 4


LIMITS = [
    ({"minReplicas": 1, "maxReplicas": 2}, 99, "MaxReplicas", "there may be 2, by spec.autoscaling.maxReplicas: raise"),
    (
        {"minReplicas": 1, "maxReplicas": 8, "gpuBudget": 2},
        99,
        "GPUBudget",
        "there may be 2 of 1 GPU each within spec.autoscaling.gpuBudget, 2: raise it",
    ),
    (
        {"minReplicas": 1, "maxReplicas": 8},
        2,
        "GPUQuota",
        "there may be 2 now: ResourceQuota team allows 2 nvidia.com/gpu; raise the quota",
    ),
]


@pytest.mark.parametrize(("scaling", "gpus", "reason", "words"), LIMITS, ids=[case[2] for case in LIMITS])
async def test_who_wants_more_than_it_may_have_is_told_so_after_a_minute(
    scaling: dict[str, Any], gpus: int, reason: str, words: str
) -> None:
    town = Town()
    town.kube.put(quota(gpus, used=2))
    await town.serve("chat", 2, {"spec.autoscaling": scaling})
    await town.look()
    await town.run({"chat": 5}, minutes=0.75)
    assert town.condition("CapacityLimited") is None
    await town.run({"chat": 5}, minutes=0.75)
    status, told, message = town.condition("CapacityLimited") or ("", "", "")
    assert (status, told) == ("True", reason)
    assert "the load needs 5 replicas" in message
    assert words in message
    ready = town.condition("Ready")
    assert ready is not None
    assert ready[0] == "True"
    await town.run({"chat": 1}, minutes=3)
    assert town.condition("CapacityLimited") is None


def test_before_the_first_look_nothing_is_shared() -> None:
    town = Town()
    town.add(SHARED)
    Sharing(town.registry, 600.0, town.queued.append).run(town.clock())
    assert town.registry.shared == {}
    assert isinstance(town.kube, FakeKube)
