"""What may be concluded from looks at a service's objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from demo.facts import Pod, ServiceFacts, read_pod
from tests.unit.demo.builders import pod, resource, scaled_object

Look = tuple[int, Sequence[Pod]]


def seen(*looks: Look) -> ServiceFacts:
    """Looks a second apart: the Deployment's replicas, and the pods."""
    found = ServiceFacts("chat")
    for second, (replicas, pods) in enumerate(looks):
        found.see_replicas(replicas, float(second))
        found.see_pods(pods, float(second))
    return found


ONE, TWO, LEAVING = pod("chat-1"), pod("chat-2"), pod("chat-2", leaving=True)


@pytest.mark.parametrize(
    ("looks", "replaced"),
    [
        pytest.param([(1, [ONE]), (1, [ONE])], 0, id="nothing happened"),
        pytest.param([(1, [ONE]), (2, [ONE, TWO])], 0, id="scaled up"),
        pytest.param([(2, [ONE, TWO]), (1, [ONE, LEAVING]), (1, [ONE])], 0, id="scaled down, drained"),
        pytest.param([(2, [ONE, TWO]), (2, [ONE, LEAVING])], 1, id="deleted though nobody asked for fewer"),
        pytest.param([(2, [ONE, TWO]), (1, [])], 1, id="one more gone than asked for"),
        pytest.param([(1, [ONE]), (1, [pod("chat-9")])], 1, id="replaced between two looks"),
        pytest.param([(1, [ONE]), (1, [pod("chat-1", restarts=1)])], 1, id="container restarted"),
        pytest.param([(1, [ONE]), (2, [ONE, pod("chat-2", template="t2")])], 1, id="another template"),
        pytest.param(
            [(2, [ONE, TWO]), (1, [ONE]), (2, [ONE, pod("chat-3")]), (1, [ONE])], 0, id="down, up and down again"
        ),
    ],
)
def test_pods_replaced(looks: list[Look], replaced: int) -> None:
    assert seen(*looks).replaced_pods() == replaced


def test_pod_seconds_count_every_pod_that_exists() -> None:
    assert seen((1, [ONE]), (2, [ONE, TWO]), (1, [ONE, LEAVING]), (1, [ONE])).pod_seconds == 1 + 2 + 2


def test_requests_go_to_ready_pods_that_stay() -> None:
    starting = pod("chat-3", ready=False)
    assert [one.name for one in seen((3, [TWO, ONE, starting])).serving] == ["chat-1", "chat-2"]
    assert [one.name for one in seen((1, [ONE, LEAVING])).serving] == ["chat-1"]


def test_targets_are_counted_when_they_move() -> None:
    found = ServiceFacts("chat")
    for second, target in enumerate([32, 32, 20, 20, 32]):
        found.see_target(scaled_object(target), float(second))
    assert found.target_patches == 2
    assert found.targets == [(0.0, 32), (2.0, 20), (4.0, 32)]
    assert found.scaled_object_uids == {"so-1"}


def test_another_scaled_object_of_the_same_name_is_noticed() -> None:
    found = ServiceFacts("chat")
    found.see_target(scaled_object(32, uid="so-1"), 0.0)
    found.see_target(scaled_object(32, uid="so-2"), 1.0)
    assert len(found.scaled_object_uids) == 2


def test_decisions_are_kept_in_order_though_status_forgets_them() -> None:
    def entry(second: int, to: str) -> dict[str, str]:
        return {"time": f"2026-01-01T00:00:{second:02}Z", "kind": "Target", "from": "32", "to": to, "reason": "because"}

    found, start_s = ServiceFacts("chat"), 1767225600.0
    found.see_resource(resource(history=[entry(20, "10"), entry(10, "20")]), start_s)
    found.see_resource(resource(history=[entry(30, "5"), entry(20, "10")]), start_s)
    assert [(one.time_s, one.after) for one in found.decisions] == [(10.0, "20"), (20.0, "10"), (30.0, "5")]
    assert found.objective_s == 0.04


def test_a_pod_object_is_read() -> None:
    manifest: dict[str, Any] = {
        "metadata": {"name": "chat-1", "uid": "u", "labels": {"pod-template-hash": "t1"}},
        "status": {
            "podIP": "127.16.0.2",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"restartCount": 2}],
        },
    }
    assert read_pod(manifest) == Pod("chat-1", "u", "127.16.0.2", "t1", ready=True, leaving=False, restarts=2)
    manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert read_pod(manifest).leaving
    assert not read_pod({"metadata": {"name": "a", "uid": "b", "labels": {}}}).serving
