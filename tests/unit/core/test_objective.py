"""Which K at which batch size: exhaustive, with few rows, staying put where nothing clearly better exists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.objective import MARGIN, MIN_ROW, Yield, best_band, best_schedule, gain
from outrider.core.schedule import constant, from_lookup, parse_text

from .builders import yields


def crossing() -> Yield:
    """K 3 is better up to batch 40, K 0 beyond, by a clear margin on both sides."""
    sizes = np.arange(1, 129)
    return Yield((0, 3), np.stack([np.full(128, 0.010), 0.010 * (0.6 + sizes / 100)]))


def test_each_batch_size_gets_the_k_of_highest_goodput() -> None:
    found = best_schedule(crossing(), constant(3, 128), (0, 3))
    assert found.at(20) == 3
    assert found.at(100) == 0
    assert len(found.rows) == 2


def test_a_gain_within_the_margin_moves_nothing() -> None:
    nearly = yields({0: [10.0] * 64, 3: [10.0 * (1 + MARGIN / 2)] * 64})
    assert best_schedule(nearly, constant(3, 64), (0, 3)) == constant(3, 64)


def test_a_schedule_that_is_as_good_everywhere_is_kept_whatever_its_rows() -> None:
    """The boundary between two K lies anywhere in the band where both are as good: it is not moved within it."""
    for last in (40, 42):
        present = parse_text(f"1-{last}:3 {last + 1}-128:0")
        assert best_schedule(crossing(), present, (0, 3)) == present


def test_the_users_bounds_hold_even_where_another_k_would_yield_more() -> None:
    assert best_schedule(crossing(), constant(3, 128), (3,)) == constant(3, 128)


def test_goodput_need_not_fall_with_the_batch() -> None:
    """Mixture-of-experts models want small K at small batches and larger K in the middle."""
    rows = {1: [10.0] * 4 + [10.0] * 28 + [10.0] * 32, 3: [14.0] * 4 + [7.0] * 28 + [14.0] * 32}
    assert str(best_schedule(yields(rows), constant(1, 64), (1, 3))) == "1-4:1 5-32:3 33-64:1"


def test_a_row_that_is_only_a_tile_wide_goes_to_the_cheaper_neighbour() -> None:
    rows = {1: [10.0] * 64, 3: [8.0] * 31 + [12.0] * 2 + [8.0] * 31}
    assert str(best_schedule(yields(rows), constant(3, 64), (1, 3))) == "1-64:3"


def test_the_gain_is_relative_in_goodput() -> None:
    rows = yields({0: [10.0, 10.0], 3: [8.0, 12.5]})
    assert gain(rows, constant(0, 2), constant(3, 2)) == pytest.approx([0.25, -0.2])


def test_the_time_per_token_under_a_schedule_is_that_of_each_batch_sizes_k() -> None:
    rows = yields({0: [10.0, 10.0, 10.0], 3: [8.0, 9.0, 12.0]})
    assert rows.under(parse_text("1-2:3 3-3:0")) == pytest.approx([0.008, 0.009, 0.010])
    assert rows.row(3) == pytest.approx([0.008, 0.009, 0.012])
    assert rows.at(parse_text("1-2:3 3-3:0"), 2.2) == pytest.approx(0.009)
    assert rows.at(parse_text("1-2:3 3-3:0"), 500) == pytest.approx(0.010)


@given(
    st.lists(st.lists(st.floats(1.0, 100.0), min_size=32, max_size=32), min_size=2, max_size=5),
    st.lists(st.integers(0, 1), min_size=32, max_size=32),
)
def test_the_result_covers_all_batch_sizes_in_rows_that_are_wide_enough(
    times: list[list[float]], current: list[int]
) -> None:
    rows = yields(dict(enumerate(times)))
    present = from_lookup(current)
    found = best_schedule(rows, present, rows.values)
    assert found.rows[0].first == 1
    assert found.max_batch_size == 32
    wide = all((row.last + 1) / row.first >= MIN_ROW for row in found.rows)
    assert found == present or len(found.rows) == 1 or wide


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        pytest.param([0.0] * 99 + [0.5] * 35, (0.5, 100), id="a whole band"),
        pytest.param([0.0] * 252 + [0.5] * 4, (4 * 0.5 / 67, 190), id="the last four sizes of all hardly count"),
        pytest.param([0.3], (0.3, 1), id="an engine of one request"),
    ],
)
def test_a_gain_counts_over_a_band_of_batch_sizes(gains: list[float], expected: tuple[float, int]) -> None:
    value, batch = best_band(np.array(gains))
    assert value == pytest.approx(expected[0], rel=0.1)
    assert batch == expected[1]
