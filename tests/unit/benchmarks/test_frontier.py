"""Reading misses and replica-hours off between settings."""

from __future__ import annotations

import pytest

from benchmarks.frontier import Frontier, floored

THREE = Frontier.of([(4.0, 0.01), (1.0, 0.4), (2.0, 0.1)])


@pytest.mark.parametrize(
    ("hours", "misses"),
    [
        pytest.param(1.0, 0.4, id="at a setting"),
        pytest.param(1.5, 0.2, id="between two the logarithm is read off"),
        pytest.param(0.5, 0.4, id="before the first its share stands"),
        pytest.param(9.0, 0.01, id="after the last its share stands"),
    ],
)
def test_misses_at_so_many_hours(hours: float, misses: float) -> None:
    assert THREE.misses_at(hours) == pytest.approx(misses)


@pytest.mark.parametrize(
    ("misses", "hours"),
    [
        pytest.param(0.2, 1.5, id="between two settings"),
        pytest.param(0.5, 1.0, id="as every setting does, the cheapest"),
        pytest.param(0.001, 4.0, id="as no setting does, the dearest"),
    ],
)
def test_hours_for_so_few_misses(misses: float, hours: float) -> None:
    assert THREE.hours_at(misses) == pytest.approx(hours)


def test_a_setting_that_costs_more_and_misses_more_is_not_kept() -> None:
    found = Frontier.of([(1.0, 0.1), (2.0, 0.4), (3.0, 0.1)])
    assert found.misses_at(2.0) == pytest.approx(0.1)
    assert found.hours_at(0.1) == pytest.approx(1.0)


def test_whether_settings_lie_on_both_sides() -> None:
    assert THREE.spans(3.0)
    assert not THREE.spans(0.9)
    assert not THREE.spans(4.1)


def test_no_share_is_less_than_one_request() -> None:
    assert floored(0.0, 200) == pytest.approx(0.005)
    assert floored(0.3, 200) == pytest.approx(0.3)
