"""Which K at which batch size: exhaustive, with few rows, staying put where nothing clearly better exists."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.objective import MARGIN, MIN_ROW, WIDENING_LOSS, Yield, best_band, best_schedule, gain
from outrider.core.schedule import constant, from_lookup, parse_text

from .builders import yields


def crossing() -> Yield:
    """K 3 is better up to batch 40, K 0 beyond, by a clear margin on both sides."""
    sizes = np.arange(1, 129)
    return yields({0: np.full(128, 10.0), 3: 10.0 * (0.6 + sizes / 100)})


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
    rows = {1: [10.0] * 64, 3: [8.0] * 31 + [10.4] * 2 + [8.0] * 31}
    assert str(best_schedule(yields(rows), constant(3, 64), (1, 3))) == "1-64:3"


def test_a_narrow_row_stays_where_its_neighbours_would_cost_much() -> None:
    rows = {1: [10.0] * 64, 3: [8.0] * 31 + [12.0] * 2 + [8.0] * 31}
    assert str(best_schedule(yields(rows), constant(3, 64), (1, 3))) == "1-31:3 32-33:1 34-64:3"


def test_the_last_row_may_be_narrow() -> None:
    """A saturated engine runs at its largest batch all the time, often just past the captured graphs."""
    rows = {1: [10.0] * 64, 3: [8.0] * 56 + [14.0] * 8}
    assert str(best_schedule(yields(rows), constant(3, 64), (1, 3))) == "1-56:3 57-64:1"


def test_what_was_measured_is_preferred_to_what_is_only_predicted() -> None:
    rows = {1: [10.0] * 64, 3: [9.5] * 64}
    known, doubtful = yields(rows), yields(rows, errors={3: 0.10})
    assert best_schedule(known, constant(1, 64), (1, 3)) == constant(3, 64)
    assert best_schedule(doubtful, constant(1, 64), (1, 3)) == constant(1, 64)


@pytest.mark.parametrize("doubt", [0.0, 0.2])
def test_an_error_that_all_k_share_moves_no_boundary(doubt: float) -> None:
    sizes = np.arange(1, 129)
    rows = {0: np.full(128, 10.0), 3: 10.0 * (0.6 + sizes / 100)}
    found = best_schedule(yields(rows, errors={0: doubt, 3: doubt}), constant(3, 128), (0, 3))
    assert found == best_schedule(crossing(), constant(3, 128), (0, 3))


def test_k_never_rises_beyond_the_measured_batches_and_never_falls_below_them() -> None:
    """A burst of a size that nobody has seen then meets a K that is too small at worst."""
    rows = {
        1: [8.0] * 8 + [10.0] * 24 + [10.0] * 32,
        3: [10.0] * 8 + [9.0] * 24 + [10.0] * 32,
        5: [12.0] * 32 + [7.0] * 32,
    }
    inside, outside = yields(rows), yields(rows, measured=(12, 30))
    assert str(best_schedule(inside, constant(3, 64), (1, 3, 5))) == "1-8:1 9-32:3 33-64:5"
    assert best_schedule(outside, constant(3, 64), (1, 3, 5)) == constant(3, 64)


def test_k_may_fall_beyond_the_measured_batches_and_rise_below_them() -> None:
    rows = {1: [10.0] * 32 + [7.0] * 32, 3: [9.0] * 64, 5: [7.0] * 8 + [12.0] * 56}
    found = best_schedule(yields(rows, measured=(12, 30)), constant(3, 64), (1, 3, 5))
    assert str(found) == "1-8:5 9-32:3 33-64:1"


@given(
    st.lists(st.lists(st.floats(1.0, 100.0), min_size=48, max_size=48), min_size=2, max_size=4),
    st.tuples(st.integers(1, 48), st.integers(1, 48)),
)
def test_outside_the_measured_batches_k_only_falls_with_the_batch(
    times: list[list[float]], measured: tuple[int, int]
) -> None:
    first, last = sorted(measured)
    rows = yields(dict(enumerate(times)), measured=(first, last))
    # A present schedule that no prediction keeps, so that every row is chosen anew.
    worst = [int(np.argmax([row[size] for row in times])) for size in range(48)]
    found = best_schedule(rows, from_lookup(worst), rows.values)
    if found == from_lookup(worst):
        return
    lookup = found.lookup(48)
    best = {size: min(rows.values, key=lambda k: times[k][size - 1]) for size in (first, last)}
    assert max(lookup[last:]) <= max(best[last], *lookup[1 : last + 1])
    assert min(lookup[1 : first + 1]) >= min(best[first], *lookup[first:])


def test_errors_of_two_k_add_up_but_they_share_that_of_the_positions_in_common() -> None:
    rows = {1: [10.0] * 4, 3: [9.0] * 4}
    found = yields(rows, errors={1: 0.03, 3: 0.04}, length_errors={1: 0.02, 3: 0.14})
    assert found.error_between(1, 3, 2) == pytest.approx(0.13)  # 0.03, 0.04 and 0.12 in three directions
    assert found.error_between(3, 1, 2) == found.error_between(1, 3, 2)


def test_the_batches_to_trust_are_those_where_some_k_was_measured() -> None:
    rows = {1: [10.0] * 64, 3: [9.0] * 64}
    assert yields(rows, measured=(12, 30)).trusted == (12, 30)
    nothing = replace(yields(rows), extrapolated=np.ones((2, 64), dtype=bool))
    assert nothing.trusted == (1, 64)


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
def test_the_result_covers_all_batch_sizes_in_rows_that_are_wide_or_worth_much(
    times: list[list[float]], current: list[int]
) -> None:
    rows = yields(dict(enumerate(times)))
    present = from_lookup(current)
    found = best_schedule(rows, present, rows.values)
    assert found.rows[0].first == 1
    assert found.max_batch_size == 32
    if found == present or len(found.rows) == 1:
        return
    for index, row in enumerate(found.rows):
        if (row.last + 1) / row.first >= MIN_ROW:
            continue
        part = slice(row.first - 1, row.last)
        own = float(rows.row(row.num_speculative_tokens)[part].sum())
        for neighbour in (*found.rows[max(0, index - 1) : index], *found.rows[index + 1 : index + 2]):
            assert float(rows.row(neighbour.num_speculative_tokens)[part].sum()) / own - 1.0 > WIDENING_LOSS


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
