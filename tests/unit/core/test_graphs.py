"""Which K get CUDA graphs, of which sizes, and that target and drafter then agree at every batch size."""

from __future__ import annotations

from math import lcm

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.graphs import (
    CAPTURE_LIMIT,
    capture_limit,
    capture_sizes,
    choose_speculative_tokens,
    step_of,
    unsafe_batches,
)

VLLM_SIZES = [1, 2, 4, *range(8, 257, 8), *range(272, 513, 16)]
"""What vLLM 0.33 captures when nobody says otherwise, up to 512 tokens."""


@pytest.mark.parametrize(
    ("ceiling", "expected"),
    [
        (1, (0, 1)),
        (2, (0, 1, 2)),
        (3, (0, 1, 2, 3)),
        (4, (0, 1, 3, 4)),
        (5, (0, 1, 2, 3, 5)),
        (6, (0, 1, 6)),
        (7, (0, 1, 2, 3, 5, 7)),
        (8, (0, 1, 2, 5, 8)),
        (9, (0, 1, 3, 4, 9)),
        (10, (0, 1, 10)),
        (11, (0, 1, 2, 3, 5, 7, 11)),
        (12, (0, 1, 12)),
        (13, (0, 1, 3, 6, 13)),
        (14, (0, 1, 2, 4, 5, 9, 14)),
        (15, (0, 1, 3, 7, 15)),
        (16, (0, 1, 16)),
    ],
)
def test_the_choice_for_each_ceiling(ceiling: int, expected: tuple[int, ...]) -> None:
    assert choose_speculative_tokens(ceiling) == expected


@pytest.mark.parametrize("max_num_seqs", [1, 2, 7, 32, 100, 256, 1024])
@pytest.mark.parametrize("ceiling", range(1, 17))
def test_every_choice_is_safe_at_every_batch_size(ceiling: int, max_num_seqs: int) -> None:
    values = choose_speculative_tokens(ceiling)
    sizes = capture_sizes(values, capture_limit(values, max_num_seqs))
    assert unsafe_batches(values, sizes, max_num_seqs) == []


@given(values=st.sets(st.integers(0, 11), min_size=1, max_size=4), max_num_seqs=st.integers(1, 300))
def test_any_set_is_safe_with_sizes_that_are_multiples_of_all_lengths(values: set[int], max_num_seqs: int) -> None:
    ordered = sorted(values)
    assert unsafe_batches(ordered, capture_sizes(ordered), max_num_seqs) == []


@pytest.mark.parametrize(
    ("values", "count"),
    [
        pytest.param(range(7), 263, id="0 to 6, the set that stalled on an H100"),
        pytest.param((0, 1, 2, 3, 5), 137, id="a smaller set without sizes of its own"),
        pytest.param((0, 1, 3, 7), 0, id="lengths that divide vLLM's own sizes"),
        pytest.param((0, 1, 3), 0, id="fewer of them"),
        pytest.param((4,), 0, id="one K alone"),
    ],
)
def test_the_check_on_vllms_own_sizes(values: range | tuple[int, ...], count: int) -> None:
    assert len(unsafe_batches(values, VLLM_SIZES, 256)) == count


def test_the_check_names_k_and_requests() -> None:
    # 5 requests at K = 0 are 5 tokens: the nearest group is 6, which only K = 2 fills, so the target is padded to 8
    # tokens piecewise, and there the drafter finds a graph of 8 requests.
    assert (0, 5) in unsafe_batches((0, 1, 2), VLLM_SIZES, 256)


@pytest.mark.parametrize("ceiling", range(1, 17))
def test_sizes_are_multiples_in_order_and_few(ceiling: int) -> None:
    values = choose_speculative_tokens(ceiling)
    sizes = capture_sizes(values)
    assert all(size % step_of(values) == 0 for size in sizes)
    assert sorted(set(sizes)) == list(sizes)
    assert sizes[0] == step_of(values) == lcm(*(k + 1 for k in values))
    assert sizes[-2] < CAPTURE_LIMIT <= sizes[-1]
    assert len(sizes) <= len(VLLM_SIZES)


@pytest.mark.parametrize("ceiling", range(1, 17))
def test_the_largest_batch_of_an_ordinary_engine_has_a_graph_for_one_token(ceiling: int) -> None:
    values = choose_speculative_tokens(ceiling)
    assert capture_sizes(values, capture_limit(values, max_num_seqs=256))[-1] >= 256 * 2


def test_small_engines_capture_no_more_than_they_can_use() -> None:
    assert capture_sizes((0, 1, 2, 3, 5), capture_limit((0, 1, 2, 3, 5), max_num_seqs=4)) == (12, 24, 36, 48)
    assert capture_sizes((0, 1, 2, 3, 5), capture_limit((0, 1, 2, 3, 5), max_num_seqs=1)) == (12,)
    assert capture_sizes((0, 1), limit=1) == (2, 4, 6), "at least the smallest ones"
