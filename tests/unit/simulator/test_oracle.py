"""The oracle: no table beats it, and it tells the rates that engines on the same profile reach."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.schedule import Row, Schedule, constant
from outrider.simulator.oracle import Oracle
from outrider.simulator.profile import MOE_PROFILE, load_profile
from outrider.simulator.workload import closed_loop, geometric
from tests.unit.simulator.builders import MAX_BATCH, engine, profile, submit_all

VALUES = range(6)


@given(
    acceptance=st.floats(0.05, 0.95),
    cuts=st.lists(st.integers(1, MAX_BATCH), max_size=4, unique=True),
    ks=st.lists(st.sampled_from(list(VALUES)), min_size=5, max_size=5),
    batch=st.integers(1, MAX_BATCH),
)
def test_no_other_table_yields_more_at_any_batch_size(
    acceptance: float, cuts: list[int], ks: list[int], batch: int
) -> None:
    oracle = Oracle(profile(), geometric(acceptance, 6), context=800)
    ends = sorted({*cuts, MAX_BATCH})
    starts = [1, *(end + 1 for end in ends[:-1])]
    other = Schedule(tuple(Row(*row) for row in zip(starts, ends, ks, strict=False)))
    assert oracle.scheduled_rate_tps(batch, other) <= oracle.rate_tps(batch, oracle.best_k(batch, VALUES))


def test_the_schedule_is_the_best_k_of_each_batch_size_in_whole_rows() -> None:
    oracle = Oracle(profile(), profile().acceptance, context=600)
    schedule = oracle.best_schedule(VALUES, MAX_BATCH)
    assert [schedule.at(batch) for batch in range(1, 257)] == [oracle.best_k(batch, VALUES) for batch in range(1, 257)]
    assert schedule.rows[0].first == 1
    assert schedule.max_batch_size == MAX_BATCH
    neighbours = [row.num_speculative_tokens for row in schedule.rows]
    assert all(before != after for before, after in pairwise(neighbours))


def test_nothing_accepted_means_no_drafts_and_everything_accepted_as_many_as_allowed_at_batch_1() -> None:
    assert Oracle(profile(), (0.0,)).best_schedule(VALUES, MAX_BATCH) == constant(0, MAX_BATCH)
    assert Oracle(profile(), (1.0,)).best_k(1, VALUES) == max(VALUES)


@pytest.mark.parametrize(("batch", "k"), [(4, 5), (32, 3), (100, 5), (128, 0)])
def test_an_engine_reaches_the_rate_that_the_oracle_tells(batch: int, k: int) -> None:
    target = engine(k)
    submit_all(target, closed_loop(batch, prompt_tokens=400, output_tokens=20_000))
    target.advance(3.0)
    before = target.counters.generation_tokens
    target.advance(6.0)
    context = target.kv_cache_usage * target.settings.num_gpu_blocks * 16 / batch
    target.advance(9.0)
    expected = Oracle(profile(), profile().acceptance, context=context).rate_tps(batch, k)
    assert (target.counters.generation_tokens - before) / 6.0 == pytest.approx(expected, rel=0.02)


def test_on_the_published_table_it_finds_the_published_best_k() -> None:
    """As the source says: at batch 1 K = 4 is best of the fixed ones, at batch 64 K = 2."""
    moe = load_profile(MOE_PROFILE)
    oracle = Oracle(moe, moe.acceptance)
    assert oracle.best_k(1, moe.measured_k) == 4
    assert oracle.best_k(64, moe.measured_k) == 2
    assert oracle.rate_tps(16, 4) == pytest.approx(1537)
