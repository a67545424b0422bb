"""What passes report as metrics: all that dashboards and alerts ask of the operator."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import REGISTRY

from outrider import telemetry
from outrider.core import engine_metrics as names
from outrider.core.series import Series
from outrider.errors import Unreachable

from .builders import KEY, World, busy_series, pod
from .fakes import NOW_S

SERVICE = {"namespace": "ml", "service": "chat"}


def told(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"outrider_{name}", SERVICE | labels)


def every(name: str) -> list[dict[str, str]]:
    """Labels of all series of a metric for the service, its own left out."""
    return [
        {label: value for label, value in sample.labels.items() if label not in SERVICE}
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == f"outrider_{name}" and sample.labels.items() >= SERVICE.items()
    ]


def timed(at_s: float, step_s: float = 0.02) -> list[Series]:
    """A busy minute whose steps were counted, and whose requests took 15 ms a token."""
    times = [at_s - 60.0 + 5.0 * step for step in range(13)]

    def counter(name: str, per_s: float, **labels: str) -> Series:
        samples = tuple((time_s, per_s * (time_s - NOW_S + 3600.0)) for time_s in times)
        return Series(name, {"pod": "chat-a", "engine": "0", **labels}, samples)

    cell = {"batch": "8", "speculative_tokens": "3", "kind": "decode"}
    steps = 1.0 / step_s
    tpot = names.TPOT[0]
    return [
        *busy_series(at_s),
        counter(names.STEPS[0], steps, **cell),
        counter(names.STEP_SECONDS[0], 1.0, **cell),
        counter(names.STEP_REQUESTS[0], 8 * steps, **cell),
        *(counter(names.DRAFT_TOKENS_PER_POS[0], 50.0, position=str(position)) for position in range(3)),
        counter(f"{tpot}_bucket", 0.0, le="0.01"),
        *(counter(f"{tpot}_bucket", 10.0, le=bound) for bound in ("0.02", "+Inf")),
        counter(f"{tpot}_count", 10.0),
        counter(f"{tpot}_sum", 0.15),
    ]


async def watched(changes: dict[str, Any] | None = None) -> World:
    """`chat` after two passes over steady traffic."""
    telemetry.keep({KEY})
    telemetry.keep(set())
    world = World()
    world.add(changes)
    world.see(pod())
    await world.settle()
    for _ in range(2):
        world.clock.advance(15.0)
        world.metrics.series[KEY] = timed(world.clock())
        await world.control.run()
    return world


async def test_the_resource_is_told_as_it_is_resolved() -> None:
    await watched({"spec.objectives": {"tpotMilliseconds": 12, "ttftMilliseconds": 800}, "spec.resources.gpus": 2})
    assert told("gpus_per_replica") == 2
    assert told("objective_seconds", objective="tpot") == 0.012
    assert told("objective_seconds", objective="ttft") == 0.8
    assert told("max_replicas") is not None


async def test_a_service_that_nobody_scales_has_no_most_replicas() -> None:
    await watched({"spec.autoscaling": {"mode": "Off", "minReplicas": 3}})
    assert told("max_replicas") is None


async def test_latency_stands_beside_its_objective() -> None:
    await watched()
    value = told("latency_seconds", objective="tpot")
    assert value is not None
    assert 0.01 < value <= 0.02
    assert told("latency_seconds", objective="ttft") is None, "no request has started in the window"


async def test_steps_stand_beside_their_prediction_and_the_engine_without_a_drafter() -> None:
    await watched()
    assert told("step_seconds") == pytest.approx(0.02)
    assert told("predicted_step_seconds") == pytest.approx(0.02, rel=0.02)
    speedup = told("speculation_speedup_ratio")
    assert speedup is not None
    assert speedup > 0


async def test_changes_are_counted_from_zero() -> None:
    telemetry.keep({KEY})
    telemetry.keep(set())
    world = World()
    world.add()
    await world.settle()
    await world.control.run()
    assert (told("schedule_changes_total"), told("target_changes_total")) == (0.0, 0.0)


async def test_capacity_is_told_with_its_one_limit() -> None:
    world = await watched()
    outcome = world.service().outcome
    assert outcome is not None
    assert every("capacity_requests") == [{"limited_by": outcome.capacity.limited_by}]
    assert told("capacity_requests", limited_by=outcome.capacity.limited_by) == outcome.capacity.requests_per_replica
    assert told("replicas_for_load") == 1


async def test_the_schedule_is_told_at_powers_of_two_up_to_its_largest_batch() -> None:
    await watched({"spec.engine": {"maxNumSeqs": 48}})
    assert {row["batch"] for row in every("schedule_speculative_tokens")} == {"1", "2", "4", "8", "16", "32"}
    assert told("schedule_speculative_tokens", batch="32") is not None


async def test_without_metrics_nothing_is_reported_as_it_last_was() -> None:
    world = await watched()
    world.metrics.error = Unreachable("PrometheusUnreachable", "Prometheus does not answer")
    world.clock.advance(15.0)
    await world.control.run()
    for name in ("latency_seconds", "step_seconds", "predicted_step_seconds", "capacity_requests", "replicas_for_load"):
        assert every(name) == [], name
    assert every("schedule_speculative_tokens"), "the schedule is in force all the same"


async def test_a_resource_that_was_spoilt_ends_what_passes_found_and_shows_why() -> None:
    world = await watched()
    world.add({"spec.speculation.maxSpeculativeTokens": 99}, generation=4)
    await world.reconcile()
    await world.control.run()
    assert every("schedule_speculative_tokens") == []
    assert {"type": "Stalled", "status": "True", "reason": "InvalidSpec"} in every("condition")


async def test_each_condition_is_told_once_as_it_stands() -> None:
    world = await watched()
    await world.reconcile()
    stands = [
        {"type": one["type"], "status": one["status"], "reason": one["reason"]} for one in world.status()["conditions"]
    ]
    assert sorted(every("condition"), key=str) == sorted(stands, key=str)
    world.see(pod(ready=False))
    await world.settle()
    assert [row["status"] for row in every("condition") if row["type"] == "Ready"] == ["False"]
