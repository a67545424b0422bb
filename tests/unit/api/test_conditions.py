"""Conditions: when their time moves, and their order."""

from __future__ import annotations

import pytest

from outrider.api.conditions import Condition, condition, conditions_of, set_conditions

THEN, NOW = "2026-11-28T10:00:00Z", "2026-11-28T10:05:00Z"


def ready(status: bool | None, reason: str = "Serving") -> Condition:
    return condition("Ready", status, reason, "", 3)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(None, True, NOW, id="first seen"),
        pytest.param(True, True, THEN, id="unchanged"),
        pytest.param(True, False, NOW, id="status changed"),
        pytest.param(None, None, NOW, id="unknown is a status as well"),
        pytest.param(False, None, NOW, id="known to unknown"),
    ],
)
def test_the_time_moves_with_the_status(before: bool | None, after: bool | None, expected: str) -> None:
    old = [] if before is None else set_conditions([], [ready(before)], THEN)
    assert set_conditions(old, [ready(after)], NOW)[0].last_transition_time == expected


def test_another_reason_or_generation_does_not_move_the_time() -> None:
    old = set_conditions([], [ready(True)], THEN)
    (after,) = set_conditions(old, [condition("Ready", True, "Scaled", "two replicas", 4)], NOW)
    assert (after.last_transition_time, after.reason, after.observed_generation) == (THEN, "Scaled", 4)


def test_ready_comes_first_and_the_rest_by_name_whatever_the_order_given() -> None:
    names = ["MetricsAvailable", "Stalled", "EngineReady", "Ready", "Reconciling"]
    new = [condition(name, True, "Test", "", 1) for name in names]
    expected = ["Ready", "Reconciling", "Stalled", "EngineReady", "MetricsAvailable"]
    assert [one.type for one in set_conditions([], new, NOW)] == expected
    assert set_conditions([], new[::-1], NOW) == set_conditions([], new, NOW)


def test_a_type_that_is_no_longer_given_goes() -> None:
    old = set_conditions([], [ready(True), condition("Stalled", True, "NoFreeGPU", "", 1)], THEN)
    assert [one.type for one in set_conditions(old, [ready(True)], NOW)] == ["Ready"]


def test_a_long_message_is_cut_and_not_refused() -> None:
    message = condition("Ready", False, "EngineCrashLoop", "x" * 5000, 1).message
    assert len(message) == 1024
    assert message.endswith("…")


def test_conditions_of_another_form_are_left_out() -> None:
    good = {"type": "Ready", "status": "True", "reason": "Serving", "message": "", "lastTransitionTime": THEN}
    body = {"status": {"conditions": [good, {"type": "Odd"}, "text"]}}
    assert [one.type for one in conditions_of(body)] == ["Ready"]
    assert conditions_of({}) == []
