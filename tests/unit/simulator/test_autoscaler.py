"""The autoscaler's arithmetic and memory."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.simulator.autoscaler import Autoscaler, AutoscalerConfig


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
    assert autoscaler().desired(0.0, total, replicas) == desired


def test_scaling_down_follows_the_highest_wish_of_its_window() -> None:
    scaler = autoscaler(scale_down_window_s=300, scale_down_pods=10)
    assert scaler.desired(0, 60, 6) == 6
    assert scaler.desired(100, 30, 6) == 6
    assert scaler.desired(290, 10, 6) == 6
    assert scaler.desired(310, 10, 6) == 3  # the wish for 6 is forgotten, the one for 3 is not
    assert scaler.desired(500, 10, 3) == 1


def test_scaling_up_waits_for_the_lowest_wish_of_its_window() -> None:
    scaler = autoscaler(scale_up_window_s=60)
    assert scaler.desired(0, 10, 1) == 1
    assert scaler.desired(30, 50, 1) == 1
    assert scaler.desired(61, 40, 1) == 4


def test_pods_go_one_at_a_time_within_a_period() -> None:
    scaler = autoscaler(scale_down_pods=1, scale_down_period_s=60)
    assert scaler.desired(0, 10, 6) == 5
    assert scaler.desired(15, 10, 5) == 5
    assert scaler.desired(60, 10, 5) == 4


def test_a_patched_target_keeps_the_memory() -> None:
    scaler = autoscaler(scale_down_window_s=300)
    assert scaler.desired(0, 60, 6) == 6
    scaler.target = 20
    assert scaler.desired(15, 60, 6) == 6
    assert scaler.desired(400, 60, 6) == 5
