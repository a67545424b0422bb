"""The kubelet's part, against an API server that keeps pods in memory; the engines' ports are real."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import re
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import aiohttp
import pytest

from outrider.simulator.kubelet import Kubelet
from outrider.simulator.pod_api import ApiError, Manifest
from outrider.simulator.pods import Probe
from outrider.simulator.probing import ProbeCounts
from tests.unit.simulator.builders import profile
from tests.unit.simulator.fake_api import LONGEST_WAIT_S, FakeApi, pod

KEY = {"Authorization": "Bearer k1"}


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """A cluster with a running kubelet and the documents of the service."""
    cluster = FakeApi()
    schedule = {"generation": 2, "schedule": [[1, 256, 1]], "leaseSeconds": 60}
    cluster.objects["ConfigMap", "chat-schedule"] = {"data": {"schedule.json": json.dumps(schedule)}}
    cluster.objects["Secret", "chat-admin"] = {"data": {"key": base64.b64encode(b"k1\n").decode()}}
    task = asyncio.create_task(Kubelet(cluster, profile().slowed(2)).run())
    yield cluster
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def get(pod: Manifest, path: str, port: int = 8001) -> tuple[int, Any]:
    url = f"http://{pod['status']['podIP']}:{port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url, headers=KEY) as response:
        return response.status, await response.json()


async def test_a_pod_becomes_ready_and_serves_on_its_own_address(api: FakeApi) -> None:
    await api.create(pod())
    await api.until(lambda: api.engine().get("ready"))
    status = api.pods["chat-1"]["status"]
    assert status["phase"] == "Running"
    assert {one["type"]: one["status"] for one in status["conditions"]} == {
        "Initialized": "True",
        "PodReadyToStartContainers": "True",
        "ContainersReady": "True",
        "Ready": "True",
    }
    engine = api.engine()
    assert (engine["started"], engine["restartCount"], "running" in engine["state"]) == (True, 0, True)
    code, state = await get(api.pods["chat-1"], "/schedule")
    assert (code, state["generation"], state["schedule"]) == (200, 2, [[1, 256, 1]])
    shown = [one["containerStatuses"][0] for _, one in api.history]
    assert [(one["started"], one["ready"]) for one in shown] == [(False, False), (True, False), (True, True)]


async def test_a_missing_secret_is_waited_for_and_taken_when_it_comes(api: FakeApi) -> None:
    one = pod()
    token = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    one["spec"]["containers"][0]["env"].append(token)
    await api.create(one)
    await api.until(lambda: api.waits().get("reason") == "CreateContainerConfigError")
    assert api.waits()["message"] == 'secret "hub" not found'
    assert api.pods["chat-1"]["status"]["phase"] == "Pending"
    api.objects["Secret", "hub"] = {"data": {"token": base64.b64encode(b"t").decode()}}
    await api.until(lambda: api.engine().get("ready"))


async def test_a_missing_mount_keeps_the_container_in_creation(api: FakeApi) -> None:
    del api.objects["ConfigMap", "chat-schedule"]
    await api.create(pod())
    await api.until(lambda: "chat-schedule" in api.waits().get("message", ""))
    assert api.waits()["reason"] == "ContainerCreating"


@pytest.mark.parametrize(
    ("manifest", "exit_code", "words"),
    [
        pytest.param(pod(crash="exit 3: out of memory"), 3, "out of memory", id="by annotation"),
        pytest.param(pod(args=["--nonsense"]), 2, "unrecognized arguments", id="a flag that vLLM does not know"),
        pytest.param(pod(args=["--max-model-len", "10M"]), 1, "larger than", id="found after loading"),
    ],
)
async def test_how_a_container_ended_is_told(api: FakeApi, manifest: Manifest, exit_code: int, words: str) -> None:
    await api.create(copy.deepcopy(manifest))
    await api.until(api.ends)
    ended = api.ends()[0]
    assert (ended["exitCode"], ended["reason"]) == (exit_code, "Error")
    assert words in ended["message"]


def with_probe_port(port: object) -> Manifest:
    one = pod()
    one["spec"]["containers"][0]["readinessProbe"]["httpGet"]["port"] = port
    return one


def with_variable(name: str, value: str) -> Manifest:
    one = pod()
    one["spec"]["containers"][0]["env"].append({"name": name, "value": value})
    return one


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        pytest.param(pod(load_seconds="soon"), "must be a number of seconds", id="an annotation in words"),
        pytest.param(with_probe_port("nobody"), "asks for port 'nobody'", id="a probe of an unknown port"),
        pytest.param(with_variable("OUTRIDER_ADMIN_PORT", "abc"), "must be a port", id="a port in words"),
        pytest.param(
            with_variable("OUTRIDER_ADMIN_PORT", "8000"), "cannot listen", id="two listeners that want one port"
        ),
        pytest.param(pod(args=["-sc.a.b", "1", "-sc.a", "2"]), "Unexpected keyword", id="keys over each other"),
    ],
)
async def test_whatever_is_wrong_with_a_pod_ends_its_container_and_never_hangs_it(
    api: FakeApi, manifest: Manifest, words: str
) -> None:
    await api.create(copy.deepcopy(manifest))
    await api.until(api.ends)
    assert words in api.ends()[0]["message"]
    await api.mark_deleted("chat-1", grace_s=30)
    await api.until(lambda: not api.pods)


async def test_a_fault_of_the_simulator_itself_looks_like_a_crash_and_heals(api: FakeApi) -> None:
    api.services.append({"spec": {"clusterIP": "10.0.0.7", "ports": [{"port": 80}]}})  # nameless: no API server has it
    one = pod()
    del one["spec"]["enableServiceLinks"]
    await api.create(one)
    await api.until(api.ends)
    assert api.ends()[0]["message"] == "the simulated engine failed: KeyError: 'metadata'"
    api.services.clear()
    await api.until(lambda: api.engine().get("ready"))


async def test_a_pod_whose_worker_fell_over_gets_another(api: FakeApi, caplog: pytest.LogCaptureFixture) -> None:
    api.failures += [RuntimeError("and the story of it"), RuntimeError("the first status")]
    await api.create(pod())
    await api.until(lambda: api.engine().get("ready"))
    assert "worker of pod ml/chat-1 failed" in caplog.text


async def test_a_container_that_ends_is_started_again_with_growing_pauses(api: FakeApi) -> None:
    await api.create(pod(crash="exit 1"))
    await api.until(lambda: api.waits().get("reason") == "CrashLoopBackOff" and api.engine()["restartCount"] == 2)
    engine = api.engine()
    assert engine["lastState"]["terminated"]["exitCode"] == 1
    assert "back-off 2s" in engine["state"]["waiting"]["message"]
    assert not engine["ready"]
    assert api.pods["chat-1"]["status"]["phase"] == "Running"


async def test_a_start_up_budget_that_is_too_short_kills_the_container(api: FakeApi) -> None:
    one = pod(load_seconds="60")
    one["spec"]["containers"][0]["startupProbe"].update(periodSeconds=0.05, failureThreshold=2)
    await api.create(one)
    await api.until(api.ends)
    assert api.ends()[0]["exitCode"] == 137


async def test_time_that_runs_faster_is_written_as_it_would_have_been(api: FakeApi) -> None:
    one = pod(load_seconds="600", speed="1000")
    one["spec"]["containers"][0]["startupProbe"].update(periodSeconds=5, failureThreshold=60)
    await api.create(one)
    await api.until(api.ends)
    ended = api.ends()[0]
    began, finished = (datetime.fromisoformat(ended[name]) for name in ("startedAt", "finishedAt"))
    assert (finished - began).total_seconds() >= 299
    assert "50%" in ended["message"]


async def test_what_fits_the_budget_is_not_killed_however_fast_time_runs(api: FakeApi) -> None:
    one = pod(load_seconds="299", speed="1000")
    one["spec"]["containers"][0]["startupProbe"].update(periodSeconds=5, failureThreshold=60)
    await api.create(one)
    await api.until(lambda: api.engine().get("ready"))
    assert api.engine()["restartCount"] == 0


async def test_an_image_of_no_registry_is_asked_for_again_and_again(api: FakeApi) -> None:
    one = pod()
    one["spec"]["containers"][0]["image"] = "registry.invalid/engine:1"
    await api.create(one)
    await api.until(lambda: api.waits().get("reason") == "ErrImagePull")
    assert "lookup registry.invalid: no such host" in api.waits()["message"]
    await api.until(lambda: api.waits().get("reason") == "ImagePullBackOff")
    await api.mark_deleted("chat-1", grace_s=30)
    await api.until(lambda: not api.pods)


async def test_a_service_called_vllm_stops_an_engine_with_service_links(api: FakeApi) -> None:
    api.services.append({"metadata": {"name": "vllm"}, "spec": {"clusterIP": "10.0.0.7", "ports": [{"port": 80}]}})
    one = pod()
    del one["spec"]["enableServiceLinks"]
    await api.create(one)
    await api.until(api.ends)
    assert "appears to be a URI" in api.ends()[0]["message"]


async def test_a_crash_in_service_comes_back_and_counts(api: FakeApi) -> None:
    await api.create(pod(crash_after_seconds="0.2"))
    await api.until(lambda: api.engine().get("restartCount") == 1 and api.engine().get("ready"))
    assert "crash asked for" in api.engine()["lastState"]["terminated"]["message"]


async def test_a_hung_engine_answers_health_and_runs_no_step(api: FakeApi) -> None:
    await api.create(pod(hang_after_seconds="0"))
    await api.until(lambda: api.engine().get("ready"))
    one = api.pods["chat-1"]
    async with aiohttp.ClientSession(f"http://{one['status']['podIP']}:8000") as session:
        request = session.post("/v1/completions", json={"prompt": "a"}, timeout=aiohttp.ClientTimeout(total=0.3))
        with pytest.raises(TimeoutError):
            await request
        async with session.get("/health") as response:
            assert response.status == 200


async def test_an_idle_pod_that_is_deleted_goes_at_once(api: FakeApi) -> None:
    await api.create(pod())
    await api.until(lambda: api.engine().get("ready"))
    await api.mark_deleted("chat-1", grace_s=90)
    await api.until(lambda: "chat-1" not in api.pods)
    assert api.history[-1][1]["containerStatuses"][0]["ready"] is False


async def test_a_removal_that_fails_is_tried_again(api: FakeApi) -> None:
    await api.create(pod())
    await api.until(lambda: api.engine().get("ready"))
    api.removal_failures += [ApiError(500, "later"), ApiError(0, "no answer")]
    await api.mark_deleted("chat-1", grace_s=90)
    await api.until(lambda: not api.pods)
    assert not api.removal_failures


async def test_a_removal_that_is_refused_starts_over_with_another_worker(api: FakeApi) -> None:
    await api.create(pod(load_seconds="100"))
    await api.until(lambda: api.history)
    api.removal_failures += [ApiError(403, "not yet")]
    await api.mark_deleted("chat-1", grace_s=90)
    await api.until(lambda: not api.pods)


async def in_flight(session: aiohttp.ClientSession) -> bool:
    """Whether the engine works at a request."""
    async with session.get("/metrics") as response:
        return re.search(r"^vllm:num_requests_running\{.*\} [1-9]", await response.text(), re.M) is not None


async def test_a_deleted_pod_lets_its_requests_finish(api: FakeApi) -> None:
    await api.create(pod())
    await api.until(lambda: api.engine().get("ready"))
    address = api.pods["chat-1"]["status"]["podIP"]
    async with aiohttp.ClientSession(f"http://{address}:8000") as session:

        async def complete() -> Any:
            async with session.post("/v1/completions", json={"prompt": "a", "max_tokens": 60}) as response:
                return await response.json()

        running = asyncio.create_task(complete())
        async with asyncio.timeout(LONGEST_WAIT_S):  # the request is on its way through the socket
            while not running.done() and not await in_flight(session):
                pass
        await api.mark_deleted("chat-1", grace_s=90)
        answer = await running
    assert answer["usage"]["completion_tokens"] == 60
    await api.until(lambda: "chat-1" not in api.pods)


async def test_a_pod_that_is_deleted_while_it_loads_or_waits_goes_too(api: FakeApi) -> None:
    await api.create(pod("loads", load_seconds="100"))
    waits = pod("waits")
    waits["spec"]["volumes"][0]["configMap"]["name"] = "absent"
    await api.create(waits)
    await api.create(pod("crashes", crash="exit 1"))
    await api.until(lambda: {name for name, _ in api.history} == {"loads", "waits", "crashes"})
    for name in ("loads", "waits", "crashes"):
        await api.mark_deleted(name, grace_s=30)
    await api.until(lambda: not api.pods)


async def test_a_pod_without_an_address_that_is_deleted_is_removed(api: FakeApi) -> None:
    one = pod()
    del one["status"]["podIP"]
    await api.create(one)
    await api.mark_deleted("chat-1", grace_s=30)
    await api.until(lambda: not api.pods)


async def test_mounted_documents_follow_their_objects(api: FakeApi) -> None:
    await api.create(pod())
    await api.until(lambda: api.engine().get("ready"))
    later = {"generation": 3, "schedule": [[1, 256, 5]], "leaseSeconds": 60}
    api.objects["ConfigMap", "chat-schedule"] = {"data": {"schedule.json": json.dumps(later)}}
    async with asyncio.timeout(LONGEST_WAIT_S):  # the kubelet looks every two seconds
        while (await get(api.pods["chat-1"], "/schedule"))[1]["generation"] != 3:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_a_status_that_meets_a_conflict_is_written_again(api: FakeApi) -> None:
    api.failures += [ApiError(409, "conflict"), ApiError(0, "connection lost")]
    await api.create(pod())
    await api.until(lambda: api.engine().get("ready"))
    assert not api.failures


async def test_pods_that_ran_under_an_earlier_simulator_start_anew(api: FakeApi) -> None:
    one = pod()
    running = {"name": "engine", "restartCount": 2, "state": {"running": {}}, "ready": True}
    one["status"]["containerStatuses"] = [running]
    await api.create(one)
    await api.until(lambda: api.engine().get("restartCount") == 3 and api.engine()["ready"])


def test_a_probe_counts_by_its_thresholds() -> None:
    counts = ProbeCounts(Probe("/", 1, failure_threshold=3, success_threshold=2))
    passed = [True, False, True, True, False, False, True, False, False, False]
    verdicts = [counts.after(one) for one in passed]
    assert verdicts == [False, False, False, True, True, True, True, True, True, False]
