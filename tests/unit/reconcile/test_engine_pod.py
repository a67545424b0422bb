"""What is read of an engine's pod, and what of its past outlives its status."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.reconcile.engine_pod import WORDS, EnginePod
from outrider.reconcile.registry import Registry

from .builders import KEY, body, pod
from .fakes import Manifest


def ended(ran_s: int = 60, exit_code: int = 1, message: str = "", reason: str = "Error") -> Manifest:
    """How a container ended that began at midnight."""
    finished = f"2027-01-15T{ran_s // 3600:02}:{ran_s // 60 % 60:02}:{ran_s % 60:02}Z"
    return {
        "exitCode": exit_code,
        "reason": reason,
        "message": message,
        "startedAt": "2027-01-15T00:00:00Z",
        "finishedAt": finished,
    }


def running_again(**last: Any) -> Manifest:
    return {"state": {"running": {}}, "lastState": {"terminated": ended(**last)}}


def waiting(reason: str, message: str = "") -> Manifest:
    return {"state": {"waiting": {"reason": reason, "message": message}}}


@pytest.mark.parametrize(
    ("one", "reason", "message"),
    [
        pytest.param(pod(), "", "", id="it runs"),
        pytest.param(
            pod(ready=False, container=waiting("ImagePullBackOff", "no such image")), "ImagePullBackOff",
            "no such image", id="its image cannot be pulled",
        ),
    ],
)  # fmt: skip
def test_why_a_container_waits(one: Manifest, reason: str, message: str) -> None:
    found = EnginePod.of(one)
    assert (found.waiting_reason, found.waiting_message) == (reason, message)


@pytest.mark.parametrize(
    ("container", "restarts", "words", "life"),
    [
        pytest.param({"state": {"terminated": ended(message="boom")}}, 0, "boom", 0, id="it has just ended"),
        pytest.param(running_again(message="boom"), 1, "boom", 0, id="it runs again"),
        pytest.param(
            waiting("CrashLoopBackOff") | {"lastState": {"terminated": ended(message="boom")}}, 1, "boom", 1,
            id="it is held back: the next life does not count yet",
        ),
        pytest.param(
            {"state": {"terminated": ended(message="new")}, "lastState": {"terminated": ended(message="old")}},
            1, "new", 1, id="it has ended again",
        ),
    ],
)  # fmt: skip
def test_how_a_container_ended_last(container: Manifest, restarts: int, words: str, life: int) -> None:
    found = EnginePod.of(pod(ready=False, restarts=restarts, container=container)).ending
    assert found is not None
    assert (found.words, found.life, found.exit_code, found.ran_s) == (words, life, 1, 60.0)


def test_a_container_that_never_ended_has_no_ending() -> None:
    assert EnginePod.of(pod()).ending is None
    assert EnginePod.of(pod(container=waiting("ContainerCreating"))).ending is None


def test_last_words_are_masked_and_short() -> None:
    log = "\n".join(f"line {number}: HF_TOKEN=hf_abcdefghijklmnop" for number in range(20))
    found = EnginePod.of(pod(container={"state": {"terminated": ended(message=log)}})).ending
    assert found is not None
    assert "abcdefghijklmnop" not in found.words
    assert len(found.words) <= WORDS
    assert found.words.endswith("line 19: HF_TOKEN=***")


@pytest.mark.parametrize("more", [pytest.param(0, id="as long as the kubelet cuts"), pytest.param(900, id="longer")])
def test_the_line_that_the_kubelet_has_cut_into_is_left_out_since_it_may_begin_within_a_token(more: int) -> None:
    cut = "ijklmnop is no good\n"
    log = cut + "x" * (2048 - len(cut) - 5 + more) + "\nend"
    found = EnginePod.of(pod(container={"state": {"terminated": ended(message=log)}})).ending
    assert found is not None
    assert "ijklmnop" not in found.words


def test_why_no_node_takes_a_pod_and_since_when() -> None:
    refusal = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        "lastTransitionTime": "2027-01-15T08:00:00Z",
    }
    found = EnginePod.of(pod(ready=False, address=None, conditions=[refusal], container={"state": {}}))
    assert found.unscheduled == refusal["message"]
    assert found.pending_since_s == 1_800_000_000.0
    placed = EnginePod.of(pod(conditions=[{"type": "PodScheduled", "status": "True"}]))
    assert (placed.unscheduled, placed.pending_since_s) == ("", None)


def test_a_pod_that_ended_for_good() -> None:
    found = EnginePod.of(pod(ready=False, phase="Failed", reason="Evicted", message="The node was low on memory."))
    assert found.failed == "Evicted: The node was low on memory."
    assert EnginePod.of(pod(phase="Running")).failed == ""


@pytest.mark.parametrize(
    ("container", "late"),
    [
        pytest.param(running_again(ran_s=1800, exit_code=137), True, id="killed at once"),
        pytest.param(running_again(ran_s=1890, exit_code=0), True, id="it took its grace period, and ended in peace"),
        pytest.param(running_again(ran_s=1799, exit_code=137), False, id="it ended before"),
        pytest.param(running_again(ran_s=1921, exit_code=137), False, id="it lived longer than a kill can take"),
        pytest.param({"state": {"running": {}}}, False, id="it has not ended"),
    ],
)
def test_c11_a_container_that_ran_for_its_start_up_budget_was_killed_by_its_probe(
    container: Manifest, late: bool
) -> None:
    one = EnginePod.of(pod(ready=False, restarts=1, container=container, startup_s=1800, grace_s=90))
    assert one.outlived_its_budget == late


def test_an_engine_that_served_and_ended_after_just_that_time_was_not() -> None:
    registry = Registry()
    registry.resource_event("ADDED", body())

    def seen(**container: Any) -> EnginePod:
        restarts = container.pop("restarts", 0)
        registry.child_event("MODIFIED", pod(ready=False, restarts=restarts, container=container))
        service = registry.get(KEY)
        assert service is not None
        return service.pods["chat-a"]

    assert not seen(state={"running": {}}, started=True).outlived_its_budget
    assert not seen(state={"terminated": ended(ran_s=1800)}, started=False).outlived_its_budget
    assert not seen(restarts=1, **running_again(ran_s=1800)).outlived_its_budget
    assert seen(restarts=2, **running_again(ran_s=1800)).outlived_its_budget, "the life after it did not serve"


@pytest.mark.parametrize(
    ("container", "named", "reason"),
    [
        pytest.param(waiting("CreateContainerConfigError"), "download", "CreateContainerConfigError", id="refused"),
        pytest.param(waiting("CrashLoopBackOff") | {"lastState": {"terminated": ended()}}, "download",
                     "CrashLoopBackOff", id="held back"),
        pytest.param({"state": {"terminated": ended(exit_code=2)}}, "download", "", id="it has just failed"),
        pytest.param(running_again(exit_code=2), "download", "", id="it tries again"),
        pytest.param({"state": {"running": {}}}, "engine", "PodInitializing", id="it copies"),
        pytest.param(waiting("PodInitializing"), "engine", "PodInitializing", id="its turn has not come"),
        pytest.param({"state": {"terminated": ended(exit_code=0, reason="Completed")}, "ready": True,
                      "lastState": {"terminated": ended(exit_code=2)}}, "engine", "PodInitializing", id="it is done"),
        pytest.param(running_again(exit_code=2) | {"started": True}, "engine", "PodInitializing", id="a sidecar"),
    ],
)  # fmt: skip
def test_an_init_container_that_keeps_the_engine_from_starting(container: Manifest, named: str, reason: str) -> None:
    one = pod(
        ready=False, container=waiting("PodInitializing"), initContainerStatuses=[{"name": "download", **container}]
    )
    found = EnginePod.of(one)
    assert (found.container, found.waiting_reason) == (named, reason)


@pytest.mark.parametrize(
    ("engine", "guard", "named"),
    [
        pytest.param({"ready": True}, waiting("CrashLoopBackOff"), "guard", id="it ends again and again"),
        pytest.param({"ready": True}, waiting("ImagePullBackOff"), "guard", id="its image is not there"),
        pytest.param({"ready": True}, {"state": {"terminated": ended()}}, "guard", id="it has just ended"),
        pytest.param({"ready": True}, waiting("ContainerCreating"), "engine", id="it is being made"),
        pytest.param({"ready": True}, {"state": {"running": {}}}, "engine", id="it runs, and is not ready yet"),
        pytest.param({"ready": True}, {"state": {"running": {}}, "ready": True}, "engine", id="it is ready"),
        pytest.param({"ready": False}, waiting("CrashLoopBackOff"), "engine", id="the engine comes first"),
    ],
)
def test_a_container_beside_a_ready_engine(engine: Manifest, guard: Manifest, named: str) -> None:
    statuses = [{"name": "engine", "state": {"running": {}}, **engine}, {"name": "guard", **guard}]
    one = pod(ready=False)
    one["status"]["containerStatuses"] = statuses
    found = EnginePod.of(one)
    assert (found.container, found.beside) == (named, named == "guard")


CREATED = "2027-01-15T08:00:00Z"


@pytest.mark.parametrize(
    ("one", "took_s"),
    [
        pytest.param(pod(created=CREATED, ready_since="2027-01-15T08:04:10Z"), 250.0, id="it is ready"),
        pytest.param(pod(created=CREATED, ready=False), None, id="it is not"),
        pytest.param(
            pod(created=CREATED, ready_since="2027-01-15T09:00:00Z", restarts=1), None, id="its engine started again"
        ),
    ],
)
def test_how_long_a_pod_took_to_start(one: Manifest, took_s: float | None) -> None:
    assert EnginePod.of(one).cold_start_s == took_s


def test_a_pod_that_was_unready_for_a_while_started_no_later() -> None:
    registry = Registry()
    registry.resource_event("ADDED", body())
    registry.child_event("ADDED", pod(created=CREATED, ready_since="2027-01-15T08:04:10Z"))
    registry.child_event("MODIFIED", pod(created=CREATED, ready=False))
    registry.child_event("MODIFIED", pod(created=CREATED, ready_since="2027-01-15T11:00:00Z"))
    service = registry.get(KEY)
    assert service is not None
    assert service.cold_start_s == 250.0


def test_a_service_starts_as_the_median_of_its_pods() -> None:
    registry = Registry()
    registry.resource_event("ADDED", body())
    service = registry.get(KEY)
    assert service is not None
    assert service.cold_start_s is None
    for name, minute in (("chat-a", 1), ("chat-b", 4), ("chat-c", 30)):
        registry.child_event("ADDED", pod(name, created=CREATED, ready_since=f"2027-01-15T08:{minute:02}:00Z"))
    assert service.cold_start_s == 240.0
