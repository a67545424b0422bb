"""How long steps last, whatever order their beginnings and ends come in. Times are in seconds."""

from __future__ import annotations

import pytest

from outrider_runtime.meter import IDLE_S, STALL_S, StepMeter

K = 3


def start(meter: StepMeter, name: str, now_s: float, *, requests: int = 1, k: int = K, mixed: bool = False) -> None:
    meter.scheduled(name, now_s, requests=requests, k=k, mixed=mixed)


def end(meter: StepMeter, name: str, now_s: float, *, tokens: bool = True, work_left: bool = True) -> None:
    meter.ended(name, now_s, tokens=tokens, work_left=work_left)


def running() -> StepMeter:
    """A meter in the midst of work: one step of K = 3 has just ended at 1.0."""
    meter = StepMeter()
    start(meter, "before", 0.99)
    end(meter, "before", 1.0)
    return meter


def seconds(meter: StepMeter) -> float:
    """Of all steps that count in the cells."""
    return sum(sums.seconds for sums in meter.cells.values())


def test_the_first_step_after_idle_lasts_from_its_own_start() -> None:
    meter = StepMeter()
    start(meter, "a", 10.0)
    end(meter, "a", 10.25, work_left=False)
    start(meter, "b", 10.26)  # at once, but the work had ended
    end(meter, "b", 10.5)
    assert seconds(meter) == pytest.approx(0.24)


def test_back_to_back_a_step_lasts_from_the_end_of_the_one_before() -> None:
    meter = running()
    start(meter, "a", 1.004)  # 4 ms of host work belong to it
    end(meter, "a", 1.02)
    assert seconds(meter) == pytest.approx(0.02)


def test_a_step_that_was_scheduled_while_another_ran_is_not_counted_twice() -> None:
    meter = running()
    start(meter, "a", 1.0)
    start(meter, "b", 1.001)
    end(meter, "a", 1.02, work_left=False)  # b is under way, so the engine is not idle
    end(meter, "b", 1.05)
    assert [(row[3], row[4]) for row in meter.as_rows()] == [(2, pytest.approx(0.05))]


def test_the_first_step_after_a_change_of_k_is_in_steps_by_k_but_in_no_cell() -> None:
    meter = running()
    for name, k in (("a", K), ("b", 1), ("c", 1)):
        start(meter, name, 1.0, k=k)
        end(meter, name, 1.01)
    assert meter.steps_by_k == {K: 2, 1: 2}  # the one of `running` too
    assert {cell: sums.steps for cell, sums in meter.cells.items()} == {(1, K, False): 1, (1, 1, False): 1}


@pytest.mark.parametrize(
    ("gap_s", "expected_s"),
    [
        pytest.param(IDLE_S - 0.01, IDLE_S, id="host work between two steps belongs to the second"),
        pytest.param(IDLE_S + 0.01, 0.01, id="the clients of the rest had hung up: the engine was idle"),
    ],
)
def test_a_gap_with_requests_left(gap_s: float, expected_s: float) -> None:
    meter = running()
    start(meter, "a", 1.0 + gap_s)
    end(meter, "a", 1.0 + gap_s + 0.01)
    assert seconds(meter) == pytest.approx(expected_s)


def test_a_long_step_is_no_gap_for_one_that_was_scheduled_while_it_ran() -> None:
    meter = running()
    start(meter, "a", 1.01)
    start(meter, "b", 1.5)
    end(meter, "a", 1.6)
    end(meter, "b", 1.7)
    assert seconds(meter) == pytest.approx(0.7)


def test_when_nothing_could_be_scheduled_the_next_step_starts_its_own_time() -> None:
    meter = running()
    meter.idle()
    start(meter, "a", 1.03)
    end(meter, "a", 1.04)
    assert seconds(meter) == pytest.approx(0.01)


def test_nothing_new_to_schedule_while_a_step_is_under_way_is_not_idle() -> None:
    meter = running()
    start(meter, "a", 1.0)
    end(meter, "a", 1.01)
    start(meter, "b", 1.015)
    meter.idle()
    end(meter, "b", 1.02)
    assert seconds(meter) == pytest.approx(0.02)


def test_a_step_that_never_ends_is_passed_over() -> None:
    meter = running()
    start(meter, "failed", 1.0)
    start(meter, "b", 1.01)
    end(meter, "b", 1.02)
    end(meter, "failed", 1.03)  # too late
    assert meter.steps_by_k == {K: 2}
    assert seconds(meter) == pytest.approx(0.02)
    assert meter.last_step_s == 1.02


def test_steps_are_told_apart_by_identity() -> None:
    """Two outputs of vLLM may well be equal."""
    meter = running()
    first: list[int] = []
    second: list[int] = []
    assert first == second
    meter.scheduled(first, 1.0, requests=1, k=K, mixed=False)
    meter.scheduled(second, 1.01, requests=2, k=K, mixed=False)
    meter.ended(second, 1.02, tokens=True, work_left=True)
    assert list(meter.cells) == [(2, K, False)]


def test_the_end_of_a_step_without_tokens_leaves_those_under_way() -> None:
    """With asynchronous scheduling vLLM queues the empty step that follows the last one of a request, and ends it when
    the first step of the next request is under way already."""
    meter = running()
    meter.idle()
    start(meter, "a", 2.0)
    end(meter, "empty", 2.001, tokens=False)
    end(meter, "a", 2.01)
    assert meter.steps_by_k == {K: 2}


@pytest.mark.parametrize(
    ("lasts_s", "stalls", "stall_seconds"),
    [
        pytest.param(STALL_S, 0, 0.0, id="a second is none"),
        pytest.param(STALL_S + 0.5, 1, STALL_S + 0.5, id="all of its time counts"),
    ],
)
def test_stalls(lasts_s: float, stalls: int, stall_seconds: float) -> None:
    meter = running()
    start(meter, "a", 1.0)
    end(meter, "a", 1.0 + lasts_s)
    assert (meter.stalls, meter.stall_seconds) == (stalls, pytest.approx(stall_seconds))


def test_the_first_step_after_a_change_of_k_can_stall_too() -> None:
    meter = running()
    start(meter, "a", 1.0, k=0)
    end(meter, "a", 4.0)
    assert meter.stalls == 1


def test_each_reader_hears_of_the_longest_step_since_it_asked_last() -> None:
    meter = running()
    assert [meter.longest_step_s("admin"), meter.longest_step_s("scrape")] == [0.0, 0.0]  # from now on
    for name, now_s in (("a", 1.01), ("b", 1.04), ("c", 1.06)):
        start(meter, name, now_s - 0.01)
        end(meter, name, now_s)
    assert meter.longest_step_s("admin") == pytest.approx(0.03)
    start(meter, "d", 1.06)
    end(meter, "d", 1.07)
    assert meter.longest_step_s("admin") == pytest.approx(0.01)
    assert meter.longest_step_s("scrape") == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("requests", "bucket"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (64, 64), (65, 128), (256, 256)]
)
def test_steps_are_kept_by_the_next_power_of_two_of_their_requests(requests: int, bucket: int) -> None:
    meter = running()
    meter.reset()
    start(meter, "a", 1.0, requests=requests, mixed=True)
    end(meter, "a", 1.01)
    assert list(meter.cells) == [(bucket, K, True)]


def test_a_cell_sums_its_steps() -> None:
    meter = running()
    for name, requests, lasts_s in (("a", 3, 0.01), ("b", 4, 0.02)):
        began_s = meter.last_step_s
        start(meter, name, began_s, requests=requests)
        end(meter, name, began_s + lasts_s)
    assert meter.as_rows() == [[4, K, False, 2, pytest.approx(0.03), pytest.approx(0.0005), 7]]


def test_rows_are_in_order() -> None:
    meter = running()
    for name, requests, mixed in (("a", 8, True), ("b", 8, False), ("c", 1, False)):
        start(meter, name, 1.0, requests=requests, mixed=mixed)
        end(meter, name, 1.0)
    assert [row[:3] for row in meter.as_rows()] == [[1, K, False], [8, K, False], [8, K, True]]


def test_only_tokens_count_as_tokens() -> None:
    meter = running()
    start(meter, "a", 1.5)
    end(meter, "a", 2.0, tokens=False)  # a part of a long prompt
    assert (meter.last_step_s, meter.last_token_s) == (2.0, 1.0)


def test_reset_forgets_all_steps_but_not_when_the_last_one_was() -> None:
    meter = running()
    meter.longest_step_s("admin")
    start(meter, "a", 1.0)
    end(meter, "a", 4.0)
    meter.reset()
    assert (meter.as_rows(), meter.steps_by_k, meter.stalls, meter.stall_seconds) == ([], {}, 0, 0.0)
    assert meter.longest_step_s("admin") == 0.0
    assert (meter.last_step_s, meter.last_token_s) == (4.0, 4.0)


def test_what_happens_while_the_meter_is_off_belongs_to_no_step() -> None:
    meter = running()
    start(meter, "a", 1.0)
    meter.switch(False)
    assert meter.enabled is False
    meter.switch(True)
    assert meter.enabled is True
    end(meter, "a", 61.0)
    start(meter, "b", 61.0)  # its drafts may be of another K: nobody saw the steps before
    end(meter, "b", 61.01)
    start(meter, "c", 61.01)
    end(meter, "c", 61.03)
    assert (meter.steps_by_k, meter.stalls) == ({K: 3}, 0)  # with the one of `running`
    assert seconds(meter) == pytest.approx(0.02)


def test_reset_forgets_a_step_under_way() -> None:
    """A warm-up that is cut short leaves one behind."""
    meter = running()
    start(meter, "a", 1.0)
    meter.reset()
    end(meter, "a", 4.0)
    assert (meter.steps_by_k, meter.stalls) == ({}, 0)
