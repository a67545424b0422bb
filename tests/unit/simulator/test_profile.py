"""The profile gives back what was measured, jumps where it was measured to jump, and stays sane beyond."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.simulator.engine import SimulatedEngine
from outrider.simulator.profile import MOE_PROFILE, load_profile, row_time_s
from tests.unit.simulator.builders import profile, request, settings, submit_all

CAPTURE = 512


def document() -> Any:
    return json.loads((files("outrider.simulator") / "data" / "h100-llama8b-eagle.json").read_text())


def test_every_measured_row_with_the_drafter_comes_back_within_3_percent() -> None:
    for row in document()["rows"]:
        k, batch = row["speculative_tokens"], row["batch"]
        time_s = profile().step_time_s(batch, k, CAPTURE, row["context"])
        assert time_s == pytest.approx(row_time_s(row), rel=0.03), f"batch {batch}, K {k}"


def test_every_row_without_the_drafter_comes_back_within_3_percent_at_both_context_lengths() -> None:
    for row in document()["no_drafter"]:
        time_s = profile().step_time_s(row["batch"], 0, CAPTURE, row["context"], drafter=False)
        assert time_s == pytest.approx(row_time_s(row), rel=0.03), f"batch {row['batch']}, context {row['context']}"


def test_prefill_times_come_back() -> None:
    for row in document()["prefill"]:
        assert profile().prefill_time_s(row["tokens"]) == pytest.approx(row["ttft_ms"] / 1e3)
    assert profile().prefill_time_s(16_000) > 2 * profile().prefill_time_s(7_000)


@pytest.mark.parametrize("k", [3, 4, 5])
@pytest.mark.parametrize("capture_size", [384, 504, 512])
def test_the_step_jumps_exactly_where_its_tokens_pass_the_largest_graph(k: int, capture_size: int) -> None:
    last = capture_size // (k + 1)
    fits, passes = (profile().step_time_s(batch, k, capture_size, 600) for batch in (last, last + 1))
    before = profile().step_time_s(last - 1, k, capture_size, 600)
    assert passes > 1.35 * fits
    assert fits < 1.1 * before


def test_larger_graphs_move_the_jump_away() -> None:
    assert profile().step_time_s(100, 5, 1536, 600) < 0.7 * profile().step_time_s(100, 5, 512, 600)


def test_a_drafter_at_k_0_costs_more_than_no_drafter() -> None:
    for batch in (1, 16, 64, 128):
        with_drafter = profile().step_time_s(batch, 0, CAPTURE, 600)
        assert with_drafter > profile().step_time_s(batch, 0, CAPTURE, 600, drafter=False)


def test_k_above_the_measured_ones_goes_on_in_a_straight_line() -> None:
    at_5, at_6, at_8 = (profile().step_time_s(16, k, CAPTURE, 600) for k in (5, 6, 8))
    assert at_8 == pytest.approx(at_6 + 2 * (at_6 - at_5))


def test_k_between_two_integers_lies_between_their_times() -> None:
    low, middle, high = (profile().step_time_s(32, k, CAPTURE, 600) for k in (2, 2.5, 3))
    assert middle == pytest.approx((low + high) / 2)


def test_a_slower_card_is_slower_in_everything() -> None:
    slow = profile().slowed(5)
    assert slow.dilation == 5
    assert slow.step_time_s(32, 3, CAPTURE, 900) == pytest.approx(5 * profile().step_time_s(32, 3, CAPTURE, 900))
    assert slow.prefill_time_s(1000) == pytest.approx(5 * profile().prefill_time_s(1000))
    assert slow.draft_pass_s == pytest.approx(5 * profile().draft_pass_s)


@given(
    batch=st.integers(1, 1024),
    k=st.integers(0, 8),
    capture_size=st.sampled_from([0, 96, 512, 2048]),
    context=st.integers(0, 32_000),
)
def test_times_are_positive_and_grow_with_context(batch: int, k: int, capture_size: int, context: int) -> None:
    time_s = profile().step_time_s(batch, k, capture_size, context)
    assert 0.005 < time_s < 5
    assert profile().step_time_s(batch, k, capture_size, context + 1000) > time_s


@given(batch=st.integers(1, 512), k=st.integers(0, 8))
def test_the_table_of_an_engine_is_the_profile_without_context(batch: int, k: int) -> None:
    table = profile().base_times_s(k, 512, CAPTURE)
    assert table[batch] == pytest.approx(profile().step_time_s(batch, k, CAPTURE, 0))


@pytest.mark.parametrize("k", [2, 3, 4, 5, 6])
def test_without_the_jump_a_larger_step_follows_the_trend_of_those_in_a_graph(k: int) -> None:
    smooth, last = profile().without_jump(), CAPTURE // (k + 1)
    for batch in (1, 8, last):
        assert smooth.step_time_s(batch, k, CAPTURE, 600) == profile().step_time_s(batch, k, CAPTURE, 600)
    fits, passes = (smooth.step_time_s(batch, k, CAPTURE, 600) for batch in (last, last + 1))
    assert fits <= passes < 1.05 * fits
    assert smooth.step_time_s(last + 1, k, CAPTURE, 600) < 0.8 * profile().step_time_s(last + 1, k, CAPTURE, 600)
    assert smooth.step_time_s(256, k, 256 * 7, 600) >= profile().step_time_s(256, k, 256 * 7, 600)


@given(batch=st.integers(1, 64), k=st.sampled_from([2, 3, 4, 6]))
def test_a_published_table_of_throughput_makes_step_times_that_grow_with_batch_and_k(batch: int, k: int) -> None:
    moe = load_profile(MOE_PROFILE)
    time_s = moe.step_time_s(batch, k, CAPTURE, 0)
    assert 0.01 < time_s < moe.step_time_s(batch + 1, k, CAPTURE, 0)
    assert all(moe.step_time_s(batch, less, CAPTURE, 0) < time_s for less in moe.measured_k if less < k)


def test_the_published_rates_come_back_with_the_assumed_acceptance() -> None:
    moe = load_profile(MOE_PROFILE)
    raw = json.loads((files("outrider.simulator") / "data" / f"{MOE_PROFILE}.json").read_text())
    for row in raw["tokens_per_second"]:
        k = row["speculative_tokens"]
        for batch, rate in zip(row["batch"], row["rate"], strict=True):
            tokens = 1 + sum(moe.acceptance[:k])
            assert batch * tokens / moe.step_time_s(batch, k, CAPTURE, 900) == pytest.approx(rate)


@pytest.mark.parametrize("k", [0, 1, 5])
def test_what_a_table_does_not_have_is_refused(k: int) -> None:
    moe = load_profile(MOE_PROFILE)
    assert moe.measured_k == (2, 3, 4, 6)
    with pytest.raises(ValueError, match=f"no rows for K = {k}"):
        moe.base_times_s(k, 64, CAPTURE)
    with pytest.raises(ValueError, match="no run without a drafter"):
        moe.step_time_s(1, 0, CAPTURE, 0, drafter=False)


def test_an_engine_runs_on_the_published_table_with_the_k_that_it_has() -> None:
    target = SimulatedEngine(settings("1-16:4 17-64:2", named=(2, 3, 4, 6), max_num_seqs=64), load_profile(MOE_PROFILE))
    records = submit_all(target, [request(n, at=n * 0.1, output=150) for n in range(40)])
    target.advance(1000)
    assert len(records) == 40
    assert set(target.counters.steps_by_k) == {2, 4}
