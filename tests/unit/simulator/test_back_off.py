"""When pods that were refused are tried again."""

from __future__ import annotations

from outrider.simulator.back_off import LONGEST_S, BackOff


def attempts(until_s: float, begin_s: float = 100.0) -> list[float]:
    """Moments of attempts that all fail, looked for every second."""
    wait, found, now_s = BackOff(), [begin_s], begin_s
    wait.failed(begin_s)
    while now_s < until_s:
        now_s += 1.0
        if wait.due(now_s):
            found.append(now_s)
            wait.failed(now_s)
    return found


def test_each_attempt_waits_as_long_again_as_all_before_it() -> None:
    assert attempts(300.0) == [100.0, 105.0, 110.0, 120.0, 140.0, 180.0, 260.0]


def test_no_wait_is_longer_than_the_controllers_own_bound() -> None:
    found = attempts(6000.0)
    assert found[-1] - found[-2] == LONGEST_S


def test_nothing_is_due_before_a_refusal_or_after_its_end() -> None:
    wait = BackOff()
    assert not wait.due(1e6)
    wait.failed(0.0)
    wait.end()
    assert not wait.due(1e6)
