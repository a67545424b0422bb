"""The autoscaler's arithmetic and memory."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.simulator.autoscaler import Autoscaler, AutoscalerConfig, Plan


def autoscaler(**changes: Any) -> Autoscaler:
    chosen: dict[str, Any] = {"target": 10, "max_replicas": 8, "scale_up_window_s": 0, "scale_down_window_s": 0}
    return Autoscaler(AutoscalerConfig(**(chosen | changes)))


@pytest.mark.parametrize(
    ("total", "replicas", "desired"),
    [
        pytest.param(10, 1, 1, id="at the target nothing moves"),
        pytest.param(11, 1, 1, id="ten percent above is within the tolerance"),
        pytest.param(11.5, 1, 2, id="above the tolerance the ceiling is taken"),
        pytest.param(38, 4, 4, id="five percent below is within the tolerance"),
        pytest.param(35, 4, 4, id="below the tolerance the ceiling may be the same number"),
        pytest.param(25, 4, 3, id="a lower load needs fewer"),
        pytest.param(500, 4, 8, id="never above the maximum"),
        pytest.param(0, 1, 1, id="never below the minimum"),
        pytest.param(None, 5, 5, id="without a metric the number stays"),
    ],
)
def test_one_step(total: float | None, replicas: int, desired: int) -> None:
    assert autoscaler().desired(0.0, {"in-flight": total}, replicas) == desired


def test_scaling_down_follows_the_highest_wish_of_its_window() -> None:
    scaler = autoscaler(scale_down_window_s=300, scale_down_pods=10)
    assert scaler.desired(0, {"in-flight": 60}, 6) == 6
    assert scaler.desired(100, {"in-flight": 30}, 6) == 6
    assert scaler.desired(290, {"in-flight": 10}, 6) == 6
    assert scaler.desired(310, {"in-flight": 10}, 6) == 3  # the wish for 6 is forgotten, the one for 3 is not
    assert scaler.desired(500, {"in-flight": 10}, 3) == 1


def test_scaling_up_waits_for_the_lowest_wish_of_its_window() -> None:
    scaler = autoscaler(scale_up_window_s=60)
    assert scaler.desired(0, {"in-flight": 10}, 1) == 1
    assert scaler.desired(30, {"in-flight": 50}, 1) == 1
    assert scaler.desired(61, {"in-flight": 40}, 1) == 4


def test_pods_go_one_at_a_time_within_a_period() -> None:
    scaler = autoscaler(scale_down_pods=1, scale_down_period_s=60)
    assert scaler.desired(0, {"in-flight": 10}, 6) == 5
    assert scaler.desired(15, {"in-flight": 10}, 5) == 5
    assert scaler.desired(60, {"in-flight": 10}, 5) == 4


def test_a_patched_target_keeps_the_memory() -> None:
    scaler = autoscaler(scale_down_window_s=300)
    assert scaler.desired(0, {"in-flight": 60}, 6) == 6
    scaler.target = 20
    assert scaler.desired(15, {"in-flight": 60}, 6) == 6
    assert scaler.desired(400, {"in-flight": 60}, 6) == 5


def test_pods_come_four_at_a_time_or_as_many_again_within_a_period() -> None:
    scaler = autoscaler(max_replicas=40)
    assert scaler.desired(0, {"in-flight": 400}, 1) == 5
    assert scaler.desired(15, {"in-flight": 400}, 5) == 5
    assert scaler.desired(60, {"in-flight": 400}, 5) == 10
    assert scaler.wanted == 40


def several(**changes: Any) -> Autoscaler:
    return autoscaler(waiting_target=lambda target: target // 5, kv_cache_target=80.0, **changes)


@pytest.mark.parametrize(
    ("totals", "desired"),
    [
        pytest.param({"in-flight": 20, "waiting": 0, "kv-cache": 20}, 2, id="nothing presses"),
        pytest.param({"in-flight": 20, "waiting": 9, "kv-cache": 20}, 5, id="waiting requests by their own target"),
        pytest.param({"in-flight": 20, "waiting": 0, "kv-cache": 300}, 4, id="percent of the cache"),
        pytest.param({"in-flight": 50, "waiting": None, "kv-cache": 20}, 5, id="a missing one does not hold a rise"),
        pytest.param({"in-flight": 10, "waiting": None, "kv-cache": 20}, 2, id="but a fall"),
    ],
)
def test_the_trigger_that_asks_for_most_wins(totals: dict[Any, float | None], desired: int) -> None:
    assert several().desired(0.0, totals, 2) == desired


def test_the_target_for_waiting_requests_moves_with_the_first_one() -> None:
    scaler = several()
    scaler.target = 50
    assert scaler.desired(0.0, {"in-flight": 20, "waiting": 20, "kv-cache": 0}, 2) == 2
    scaler.target = 25
    assert scaler.desired(15.0, {"in-flight": 20, "waiting": 20, "kv-cache": 0}, 2) == 4


def test_a_plan_is_kept_to_whatever_the_metrics_say() -> None:
    planned = Plan([(0.0, 3), (60.0, 5)]).scaler()
    assert [planned.desired(now_s, {"in-flight": 900}, 1) for now_s in (0.0, 59.0, 60.0, 900.0)] == [3, 3, 5, 5]


@pytest.mark.parametrize(
    ("total", "replicas", "desired"),
    [
        pytest.param(12, 4, 3, id="three of four stay"),
        pytest.param(38, 3, 4, id="a rise by the load"),
        pytest.param(0, 4, 1, id="without any load nothing stays"),
        pytest.param(None, 4, 4, id="without a metric the number stays"),
    ],
)
def test_held_requests_keep_replicas_while_there_are_any(total: float | None, replicas: int, desired: int) -> None:
    scaler = autoscaler(scale_down_pods=10)
    scaler.held = 21
    assert scaler.desired(0.0, {"in-flight": total}, replicas) == desired


def test_a_bound_that_is_patched_below_what_runs_takes_the_others_at_once() -> None:
    scaler = autoscaler(scale_down_window_s=300)
    assert scaler.desired(0, {"in-flight": 60}, 6) == 6
    scaler.most = 3
    assert scaler.desired(15, {"in-flight": 60}, 6) == 3
    assert scaler.wanted == 6


def test_a_bound_that_is_patched_up_is_used_at_the_next_look() -> None:
    scaler = autoscaler(max_replicas=2)
    assert scaler.desired(0, {"in-flight": 60}, 2) == 2
    scaler.most = 5
    assert scaler.desired(15, {"in-flight": 60}, 2) == 5
