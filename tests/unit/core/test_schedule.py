"""The schedule: what may be given to an engine, and how it reads."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core import schedule as schedules
from outrider.core.schedule import InvalidSchedule, Row, Schedule, constant, from_lookup, parse_rows, parse_text


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        pytest.param([[2, 16, 3]], "must start at 1", id="the first row covers the smallest batch"),
        pytest.param([[1, 16, 3], [10, 32, 1]], "overlap", id="rows may not overlap"),
        pytest.param([[1, 16, 3], [64, 32, 1]], "ends before it starts", id="a row runs upwards"),
        pytest.param([[17, 32, 1], [1, 16, 3]], "out of order", id="rows ascend"),
        pytest.param({"1-16": 3}, "list of [first, last, K] rows", id="a map is not a schedule"),
        pytest.param([[1, 16, 5]], "5 is above the ceiling 3", id="K above the ceiling would be clamped in silence"),
        pytest.param([[1, 16, 2]], "no CUDA graphs; choose from 0, 1, 3", id="K needs captured graphs"),
        pytest.param([[1, 512, 3]], "past the engine's largest batch, 256", id="a row past max_num_seqs never applies"),
        pytest.param([], "list of [first, last, K] rows", id="an empty schedule says nothing"),
        pytest.param([[1, 16, -1]], "K must be 0 or more", id="K is not negative"),
        pytest.param([[1, 16]], "must be three integers", id="a row has three items"),
        pytest.param([[1, 16, 3.0]], "must be three integers", id="a float is not a number of tokens"),
        pytest.param([[1, 16, True]], "must be three integers", id="a boolean is not a number of tokens"),
    ],
)
def test_a_bad_schedule_is_refused_with_its_fault(rows: Any, fault: str) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        parse_rows(rows, ceiling=3, max_batch_size=256, allowed=(0, 1, 3))
    assert fault in str(refused.value)


def test_every_fault_is_named_not_only_the_first() -> None:
    with pytest.raises(InvalidSchedule) as refused:
        parse_rows([[2, 16, 9], [10, 32, -1]], ceiling=3)
    assert len(refused.value.faults) == 4


def test_a_hole_keeps_the_row_before_it_as_vllm_does() -> None:
    schedule = parse_rows([[1, 16, 3], [64, 128, 2], [256, 4096, 0]], ceiling=3)
    assert str(schedule) == "1-63:3 64-255:2 256-4096:0"
    assert [schedule.at(size) for size in (1, 17, 63, 64, 200, 256)] == [3, 3, 3, 2, 2, 0]


def test_a_batch_beyond_the_last_row_keeps_its_k_and_one_below_1_the_first() -> None:
    schedule = parse_text("1-24:5 25-64:3")
    assert schedule.at(1000) == 3
    assert schedule.at(0) == 5


def test_a_mean_batch_between_two_sizes_belongs_to_the_smaller() -> None:
    assert parse_text("1-24:5 25-64:3").at(24.9) == 5


@pytest.mark.parametrize("text", ["1-24", "1-24:x", "24:5", "", "5-9:1"])
def test_text_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchedule):
        parse_text(text)


lookups = st.lists(st.integers(0, 8), min_size=1, max_size=64)


@given(lookups)
def test_a_lookup_survives_the_way_through_rows_text_and_lists(lookup: list[int]) -> None:
    schedule = from_lookup(lookup)
    assert schedule.lookup(len(lookup))[1:] == lookup
    assert parse_text(str(schedule)) == schedule
    assert parse_rows(schedule.as_lists(), ceiling=8, max_batch_size=len(lookup)) == schedule
    assert schedule.values == tuple(sorted(set(lookup)))
    assert schedule.max_batch_size == len(lookup)


@given(lookups)
def test_neighbouring_rows_differ(lookup: list[int]) -> None:
    rows = from_lookup(lookup).rows
    assert all(a.num_speculative_tokens != b.num_speculative_tokens for a, b in pairwise(rows))


def test_index_0_of_a_lookup_repeats_batch_size_1() -> None:
    assert constant(3, 4).lookup(4) == [3, 3, 3, 3, 3]


def test_rows_of_equal_k_are_joined() -> None:
    assert schedules.from_rows([Row(1, 4, 2), Row(5, 9, 2), Row(10, 12, 1)]) == Schedule((Row(1, 9, 2), Row(10, 12, 1)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("1-256:3", "K 3", id="one for all"),
        pytest.param("1-64:3 65-256:0", "K 3 up to batch 64, 0 beyond", id="two rows"),
        pytest.param("1-65:5 66-126:3 127-256:1", "K 5 up to batch 65, 3 up to 126, 1 beyond", id="three rows"),
    ],
)
def test_a_schedule_in_words(text: str, words: str) -> None:
    assert parse_text(text).in_words == words
