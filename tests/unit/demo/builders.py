"""Small objects as the API server returns them, and finished values, with only what a test cares about."""

from __future__ import annotations

from typing import Any

from demo.arms import Arm, Arms
from demo.changes import ScheduleChange
from demo.facts import Pod, ServiceFacts
from demo.scenario import SECOND_SERVICE, SERVICE, Scenario
from demo.summary import Live
from outrider.core.schedule import constant


def pod(name: str = "chat-1", **changes: Any) -> Pod:
    chosen: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "address": "127.16.0.2",
        "template": "t1",
        "ready": True,
        "leaving": False,
        "restarts": 0,
    }
    return Pod(**(chosen | changes))


def scaled_object(target: int, uid: str = "so-1") -> dict[str, Any]:
    return {"metadata": {"uid": uid}, "spec": {"triggers": [{"metadata": {"threshold": str(target)}}]}}


def resource(generation: int = 1, history: list[dict[str, str]] | None = None) -> dict[str, Any]:
    return {
        "metadata": {"generation": generation, "uid": "uid-chat"},
        "spec": {"objectives": {"tpotMilliseconds": 40}},
        "status": {"history": history or []},
    }


def facts(
    name: str = SERVICE, replicas: tuple[int, ...] = (1, 3, 2), targets: tuple[int, ...] = (32, 20)
) -> ServiceFacts:
    """A service that went through these numbers, ten seconds apart, pods coming and going as asked."""
    found = ServiceFacts(name)
    for step, number in enumerate(replicas):
        found.see_replicas(number, 10.0 * step)
        found.see_pods([pod(f"{name}-{index}") for index in range(number)], 10.0 * step)
    for step, target in enumerate(targets):
        found.see_target(scaled_object(target), 10.0 * step)
    found.see_resource(resource(), 0.0)
    found.hpa_uids.add("hpa-1")
    return found


def change(recorded_s: float, **changes: Any) -> ScheduleChange:
    chosen: dict[str, Any] = {
        "service": SERVICE,
        "generation": 2,
        "before": constant(3, 256),
        "after": constant(1, 256),
        "recorded_s": recorded_s,
        "pods": ("chat-0",),
        "ack_s": 0.03,
        "counters_show_k": True,
        "k_drafted": {"chat-0": "3 → 1"},
    }
    return ScheduleChange(**(chosen | changes))


def live(**changes: Any) -> Live:
    """A live part that shows all that the demo promises."""
    story = Scenario(seconds=300.0)
    chosen: dict[str, Any] = {
        "story": story,
        "facts": {SERVICE: facts(), SECOND_SERVICE: facts(SECOND_SERVICE, (1,), (32,))},
        "changes": [change(20.0), change(story.drop_s + 12.0)],
        "tokens": 300_000.0,
        "tpot_buckets": [(0.02, 50.0), (0.04, 90.0), (0.08, 100.0), (float("inf"), 100.0)],
        "pod_seconds": 600.0,
        "loads": {SERVICE: {"sent": 100, "answered": 100}},
    }
    return Live(**(chosen | changes))


def arms() -> Arms:
    return Arms(
        outrider=Arm(1000.0, 95.0, 700.0),
        changes=[],
        fixed={
            0: Arm(1000.0, 80.0, 900.0, 0, 6),
            2: Arm(1000.0, 95.0, 800.0, 2, 20),
            5: Arm(1000.0, 70.0, 800.0, 5, 20),
        },
    )
