"""K by roll-out, from what vLLM's own metrics tell to new engines, with an API server that keeps what it is told."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.core import engine_metrics as names
from outrider.core.series import Series
from outrider.errors import EngineUnreachable
from outrider.manifests.meta import REVISION_LABEL
from outrider.reconcile.by_rollout import UNPLACED_S
from outrider.simulator.profile import load_profile

from .builders import FIXED_REPLICAS, World, pod, settings
from .fakes import NOW_S

RANKS: dict[str, Any] = {"spec.parallelism": {"data": 2}, "spec.resources": {"gpus": 2}}
"""Data ranks that draft different numbers would wait for each other for ever, so such engines take no table."""
PLAIN: dict[str, Any] = {
    "spec.engine": {"image": "registry.example/vllm:plain", "version": "0.33.0"},
    "spec.speculation.tuning": {"initialSpeculativeTokens": 5},
}
OBSERVE: dict[str, Any] = {"spec.speculation.tuning": {"mode": "Observe"}}
CEILING, BUSY, CALM = 5, 128.0, 4.0
SURVIVAL = (0.5, 0.25, 0.13, 0.06, 0.03)
SETTLE_S = 30.0
MEASURED = load_profile()


def told(world: World, batch: float) -> list[Series]:
    """The last minute of all ready engines under a load, as a vLLM without our plugin tells it."""
    found, k = [], running(world)
    for one in world.service().ready_pods:
        length, took_s = 1.0 + sum(SURVIVAL[:k]), MEASURED.step_time_s(batch, k, 512, 600.0, drafter=k > 0)
        steps = batch / took_s
        ended = batch / (200.0 * took_s / length)
        rates: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {
            (names.GENERATION_TOKENS[0], ()): steps * length,
            (names.NUM_DRAFTS[0], ()): steps if k else 0.0,
            (names.NUM_DRAFT_TOKENS[0], ()): steps * k,
            (names.NUM_ACCEPTED_TOKENS[0], ()): steps * (length - 1.0),
            (names.TPOT[0] + "_count", ()): ended,
            (names.TPOT[0] + "_sum", ()): ended * took_s / length,
            (names.TPOT[0] + "_bucket", (("le", "+Inf"),)): ended,
        }
        for position in range(k):
            key = (names.NUM_ACCEPTED_TOKENS_PER_POS[0], (("position", str(position)),))
            rates[key] = steps * SURVIVAL[position]
        at_s = world.clock()
        times = [at_s - 60.0 + 5.0 * step for step in range(13)]
        engine = {"pod": one.name, "engine": "0"}
        found += [
            Series(name, engine | dict(labels), tuple((time_s, rate * (time_s - NOW_S + 36000.0)) for time_s in times))
            for (name, labels), rate in rates.items()
        ]
        found.append(Series(names.NUM_REQUESTS_RUNNING[0], engine, tuple((time_s, batch) for time_s in times)))
    return found


def arguments(world: World) -> str:
    return str(world.kube.live("Deployment", "chat")["spec"]["template"]["spec"]["containers"][0]["args"])


def running(world: World) -> int:
    """K of the template."""
    text = arguments(world)
    if "num_speculative_tokens" not in text:
        return 0
    table = '"num_speculative_tokens_per_batch_size":[[1,'
    if table in text:
        return int(text.split(table)[1].split(",")[1].split("]")[0])
    return int(text.split('"num_speculative_tokens":')[1].split("}")[0].split(",")[0])


def roll(world: World, *, unplaced: bool = False) -> None:
    """What the cluster does: pods of the present template serve; with ``unplaced`` no node takes the new one."""
    live = world.kube.live("Deployment", "chat")
    wanted, number = live["spec"]["template"]["metadata"]["labels"][REVISION_LABEL], live["spec"].get("replicas", 1)
    status = {"observedGeneration": live["metadata"]["generation"], "replicas": number, "updatedReplicas": number}
    if unplaced:
        waiting = {"type": "PodScheduled", "status": "False", "message": "1 Insufficient nvidia.com/gpu"}
        waiting["lastTransitionTime"] = "2020-01-01T00:00:00Z"
        world.see(pod(f"chat-{wanted}-new", revision=wanted, address=None, ready=False, conditions=(waiting,)))
        status |= {"replicas": number + 1, "updatedReplicas": 1}
    else:
        for name in [name for kind, _, name in list(world.kube.objects) if kind == "Pod"]:
            world.kube.take_away("Pod", name)
        for index in range(number):
            world.see(pod(f"chat-{wanted}-{index}", address=f"10.0.0.{index + 1}", revision=wanted))
    world.kube.put({**live, "status": status})


async def served(changes: dict[str, Any], replicas: int = 2) -> World:
    world = World(settings=settings(k_settle_s=SETTLE_S))
    for address in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
        world.engines.faults[address] = EngineUnreachable("EngineUnreachable", f"engine {address} does not answer")
    world.add({**FIXED_REPLICAS, "spec.autoscaling": {"mode": "Off", "minReplicas": replicas}, **changes})
    await world.settle()
    roll(world)
    await world.settle()
    return world


async def play(world: World, batch: float, minutes: float, *, follows: bool = True) -> None:
    """Control passes under a load; the cluster carries out what comes of them."""
    for _ in range(round(4 * minutes)):
        world.clock.advance(15.0)
        world.metrics.series["ml", "chat"] = told(world, batch)
        await world.control.run()
        await world.settle()
        if follows and not follows_now(world):
            roll(world)
            await world.settle()


async def until_rolled(world: World) -> None:
    """A load that another K suits, until the template has it; the cluster has done nothing yet."""
    for _ in range(20):
        await play(world, BUSY, 0.25, follows=False)
        if running(world) != CEILING:
            return
    raise AssertionError(world.status()["tuning"]["reason"])


def follows_now(world: World) -> bool:
    wanted = world.kube.live("Deployment", "chat")["spec"]["template"]["metadata"]["labels"][REVISION_LABEL]
    return all(one.revision == wanted for one in world.service().ready_pods)


def strategy(world: World) -> Any:
    return world.kube.live("Deployment", "chat")["spec"]["strategy"]


@pytest.mark.parametrize(
    "changes", [pytest.param(RANKS, id="data ranks"), pytest.param(PLAIN, id="without our plugin")]
)
async def test_engines_that_take_no_schedule_are_started_with_another_k(changes: dict[str, Any]) -> None:
    world = await served(changes)
    before, spec = running(world), world.service().body["spec"]
    await play(world, BUSY, 2.0)
    after = running(world)
    assert 0 < after < before
    assert '"num_speculative_tokens_per_batch_size"' not in arguments(world)
    tuning = world.status()["tuning"]
    assert tuning["delivery"] == "Rollout"
    assert tuning["rollouts"] == 1
    assert tuning["schedule"] == f"1-256:{after}"
    assert world.status()["history"][0]["reason"].startswith(f"K {before}→{after}: ")
    assert world.service().body["spec"] == spec


async def test_a_k_of_outriders_choice_is_no_change_of_the_spec_that_is_tried() -> None:
    world = await served({**RANKS, "spec.rollout": {"policy": "Canary"}})
    before = world.status()["revisions"]["stable"]
    await play(world, BUSY, 2.0)
    revisions = world.status()["revisions"]
    assert revisions["stable"] != before
    assert "candidate" not in revisions
    assert not revisions.get("history")
    assert ("Deployment", "ml", "chat-candidate") not in world.kube.objects


async def test_the_new_engine_serves_before_the_old_one_goes() -> None:
    world = await served(RANKS)
    await play(world, CALM, 1.0)
    assert strategy(world)["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    await until_rolled(world)
    assert strategy(world)["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    roll(world)
    await play(world, BUSY, 1.0)
    assert strategy(world)["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


async def test_an_operator_that_starts_again_restarts_no_engine() -> None:
    world = await served(RANKS)
    await play(world, BUSY, 2.0)
    before = arguments(world)
    world.restart()
    await world.settle()
    assert arguments(world) == before
    assert world.service().one_k.moves
    assert world.service().one_k.evidence.counts.drafts > 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({**RANKS, **OBSERVE}, "would roll K 5→", id="mode Observe"),
        pytest.param({**RANKS, "spec.paused": True}, "would roll K 5→", id="paused"),
        pytest.param({**RANKS, "spec.rollout": {"strategy": "Recreate"}}, "Recreate would interrupt", id="Recreate"),
    ],
)
async def test_where_k_may_not_be_rolled_out_it_is_only_said(changes: dict[str, Any], words: str) -> None:
    paused = changes.get("spec.paused", False)
    world = await served({**changes, "spec.paused": False} if paused else changes)
    if paused:
        world.add({**FIXED_REPLICAS, "spec.autoscaling": {"mode": "Off", "minReplicas": 2}, **changes}, generation=4)
        await world.settle()
    before = arguments(world)
    await play(world, BUSY, 2.0)
    assert arguments(world) == before
    assert words in world.status()["tuning"]["reason"]


async def test_without_a_gpu_to_spare_k_waits_while_the_load_needs_all_engines() -> None:
    budget = {"spec.autoscaling": {"minReplicas": 2, "maxReplicas": 2, "gpuBudget": 4}}
    world = await served({**RANKS, **budget})
    await play(world, BUSY, 2.0)
    assert running(world) == CEILING
    assert "may have no more than 2 replicas" in world.status()["tuning"]["reason"]


@pytest.mark.failure(
    "The cluster and its people",
    "no node takes an engine with another K",
    k="back to the one before; the other is barred for twelve hours",
    replicas="the old engines serve meanwhile",
    status="event `ScheduleRolledBack` with the scheduler's words",
    ends="two minutes",
    guard="reconcile/by_rollout.py:_stuck",
)
async def test_a_new_engine_that_no_node_takes_is_given_up_and_the_old_ones_serve_on() -> None:
    world = await served(RANKS)
    await until_rolled(world)
    roll(world, unplaced=True)
    world.clock.advance(UNPLACED_S)
    await play(world, BUSY, 0.5, follows=False)
    assert running(world) == CEILING
    assert len(world.service().ready_pods) == 2
    assert "do not come up: 1 Insufficient nvidia.com/gpu" in world.status()["history"][0]["reason"]
    assert "ScheduleRolledBack" in [one["reason"] for one in world.kube.created("Event")]
    assert world.service().one_k.bars


@pytest.mark.failure(
    "Engines",
    "one with another K crashes twice at start",
    k="back to the one before; the other is barred for twelve hours",
    replicas="the old engines serve meanwhile",
    status="event `ScheduleRolledBack` with its last words",
    ends="its second crash",
    guard="reconcile/by_rollout.py:_stuck",
)
async def test_a_new_engine_that_crashes_twice_is_given_up() -> None:
    world = await served(RANKS)
    await until_rolled(world)
    live = world.kube.live("Deployment", "chat")
    wanted = live["spec"]["template"]["metadata"]["labels"][REVISION_LABEL]
    ended = {"exitCode": 1, "reason": "Error", "message": "no kernel for this K"}
    container = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended}}
    for restarts in (0, 1):
        world.see(pod("chat-new", revision=wanted, ready=False, restarts=restarts, container=container))
        status = {"observedGeneration": live["metadata"]["generation"], "replicas": 3, "updatedReplicas": 1}
        world.kube.put({**live, "status": status})
        await play(world, BUSY, 0.25, follows=False)
        if restarts == 0:
            assert running(world) < CEILING
    assert running(world) == CEILING
    assert "the engine crashed: no kernel for this K" in world.status()["history"][0]["reason"]


@pytest.mark.parametrize(
    ("changes", "stays"),
    [
        pytest.param({"spec.speculation.draft": {"id": "lab/eagle-of-its-own"}}, True, id="another draft keeps the K"),
        pytest.param({"spec.speculation.maxSpeculativeTokens": 4}, False, id="another ceiling begins anew"),
    ],
)
async def test_what_was_learnt_of_other_drafts_is_forgotten(changes: dict[str, Any], stays: bool) -> None:
    world = await served(RANKS)
    await play(world, BUSY, 2.0)
    chosen = running(world)
    assert chosen < 4
    fixed = {"spec.autoscaling": {"mode": "Off", "minReplicas": 2}, "spec.rollout": {"policy": "Rolling"}}
    world.add({**FIXED_REPLICAS, **fixed, **RANKS, **changes}, generation=4)
    await world.settle()
    assert running(world) == (chosen if stays else 4)
    await world.control.run()
    assert not world.service().one_k.evidence.counts.drafts
    assert bool(world.service().one_k.moves) == stays


async def test_a_draft_on_trial_is_started_with_the_k_of_the_others_which_stays_meanwhile() -> None:
    world = await served({**RANKS, "spec.rollout": {"policy": "Canary"}})
    await play(world, BUSY, 2.0)
    fixed = {"spec.autoscaling": {"mode": "Off", "minReplicas": 2}, "spec.rollout": {"policy": "Canary"}}
    draft = {"spec.speculation.draft": {"id": "lab/eagle-of-its-own"}}
    world.add({**FIXED_REPLICAS, **fixed, **RANKS, **draft}, generation=4)
    await world.settle()
    tried = str(world.kube.live("Deployment", "chat-candidate")["spec"]["template"]["spec"]["containers"][0]["args"])
    assert "lab/eagle-of-its-own" in tried
    assert f'"num_speculative_tokens":{running(world)}' in tried
    await play(world, CALM, 3.0, follows=False)
    assert world.service().one_k.rolling is False
    assert len(world.service().one_k.moves) == 1


async def test_engines_that_take_schedules_are_told_live_and_keep_their_table() -> None:
    world = await served({})
    world.engines.faults.clear()
    await play(world, BUSY, 2.0)
    assert world.service().one_k.chosen is None
    assert not world.service().one_k.evidence.cells
    assert "delivery" not in world.status()["tuning"]
    assert '"num_speculative_tokens_per_batch_size"' in arguments(world)


async def test_an_image_that_got_the_plugin_gets_its_table_back() -> None:
    world = await served(PLAIN)
    await play(world, BUSY, 2.0)
    assert '"num_speculative_tokens_per_batch_size"' not in arguments(world)
    world.engines.faults.clear()
    world.clock.advance(3600.0)
    await play(world, BUSY, 0.5)
    assert '"num_speculative_tokens_per_batch_size"' in arguments(world)
    await play(world, BUSY, 0.5)
    assert not world.service().one_k.rolling
    assert "delivery" not in world.status()["tuning"]
