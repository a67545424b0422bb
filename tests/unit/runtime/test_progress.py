"""When an engine counts as stuck or full. Times are in seconds."""

from __future__ import annotations

import pytest

from outrider_runtime.progress import Progress

NO_PROGRESS_S = 10.0


def progress(max_num_seqs: int = 4, max_waiting: int = 0) -> Progress:
    """Of an engine that was last heard of at 0."""
    return Progress(max_num_seqs, max_waiting, NO_PROGRESS_S)


def busy(requests: int, max_waiting: int = 0) -> Progress:
    """With so many requests in flight since 0."""
    made = progress(max_waiting=max_waiting)
    for _ in range(requests):
        assert made.enter(0.0) is None
    return made


@pytest.mark.failure(
    "Engines",
    "hangs while it says that it is healthy",
    replicas="its readiness goes, and its requests with it",
    alerts=["OutriderEngineStalls"],
    ends="when a step ends",
    guard="outrider_runtime/progress.py:Progress.stuck",
)
@pytest.mark.parametrize(
    ("heard_s", "now_s", "stuck"),
    [
        pytest.param(0.0, 10.0, False, id="silent for just so long"),
        pytest.param(0.0, 10.1, True, id="silent for longer"),
        pytest.param(5.0, 15.0, False, id="heard of meanwhile"),
        pytest.param(5.0, 15.1, True, id="but not since"),
    ],
)
def test_a_working_engine_is_stuck_when_it_has_been_silent_for_too_long(
    heard_s: float, now_s: float, stuck: bool
) -> None:
    made = busy(1)
    made.heard(heard_s)
    assert made.stuck(now_s) is stuck
    assert made.enter(now_s) == ("no_progress" if stuck else None)


def test_silence_without_work_is_rest() -> None:
    made = progress()
    assert made.silent_s(3600.0) == 0.0
    assert made.enter(3600.0) is None


def test_silence_counts_from_the_first_request_after_rest() -> None:
    made = progress()
    made.enter(3600.0)
    assert made.silent_s(3601.0) == 1.0


def test_further_requests_do_not_make_an_engine_look_alive() -> None:
    made = busy(1)
    made.enter(9.0)
    assert made.silent_s(9.5) == 9.5


def test_when_all_clients_have_given_up_one_may_try_again() -> None:
    made = busy(2)
    assert made.enter(20.0) == "no_progress"
    made.leave()
    assert made.enter(20.0) == "no_progress"
    made.leave()
    assert made.enter(20.0) is None


def test_a_report_of_any_kind_is_a_sign_of_life_but_only_tokens_are_tokens() -> None:
    made = progress()
    made.heard(5.0, tokens=True, waiting=2)
    made.heard(7.0)
    assert (made.heard_s, made.token_s, made.waiting) == (7.0, 5.0, 2)
    made.heard(8.0, waiting=0)
    assert made.waiting == 0


def test_the_queue_may_have_any_length_unless_it_is_said() -> None:
    made = busy(1000)
    made.heard(0.0, waiting=1000)
    assert made.enter(0.0) is None


@pytest.mark.parametrize(
    ("in_flight", "waiting", "refusal"),
    [
        pytest.param(5, 0, None, id="four run, one waits, one more may"),
        pytest.param(6, 0, "queue", id="four run, two wait: more than the engine has reported yet"),
        pytest.param(3, 1, None, id="memory holds two, one more may wait"),
        pytest.param(3, 2, "queue", id="memory holds one, two wait as the engine reports"),
    ],
)
def test_a_queue_of_two_beside_a_batch_of_four(in_flight: int, waiting: int, refusal: str | None) -> None:
    made = busy(in_flight, max_waiting=2)
    made.heard(1.0, waiting=waiting)
    assert made.enter(1.0) == refusal


def test_an_answer_makes_room() -> None:
    made = busy(6, max_waiting=2)
    assert made.enter(1.0) == "queue"
    made.leave()
    assert made.enter(1.0) is None


def test_refusals_are_counted_by_reason_and_are_not_in_flight() -> None:
    made = busy(6, max_waiting=2)
    for now_s in (1.0, 2.0, 11.0):
        made.enter(now_s)
    assert made.rejected == {"queue": 2, "no_progress": 1}
    assert made.in_flight == 6


def test_two_engines_count_apart() -> None:
    busy(6, max_waiting=2).enter(1.0)
    assert progress().rejected == {"queue": 0, "no_progress": 0}
