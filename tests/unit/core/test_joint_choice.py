"""K is spent before replicas: the table of K holds the objective at the largest load at which any K does."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from outrider.core.capacity import capacity, least_replicas
from outrider.core.objective import MARGIN, WIDENING_LOSS, Yield, best_schedule
from outrider.core.schedule import constant, parse_text
from tests.unit.core.builders import VALUES, yields

SIZE = 128
SIZES = np.arange(1, SIZE + 1)
NEARLY = (1.0 + MARGIN) * (1.0 + WIDENING_LOSS)
"""What a table of few rows may lose to one with a row for each batch size."""


def law(acceptance: float, draft_ms: float = 0.4, token_us: float = 40.0) -> Yield:
    """A linear step of 5 ms whose compute grows with every token, and a drafter that guesses so well."""
    rows = {}
    for k in VALUES:
        step_ms = 5.0 + draft_ms * max(k, 1) + token_us / 1e3 * SIZES * (k + 1)
        rows[k] = list(step_ms / sum(acceptance**j for j in range(k + 1)))
    return yields(rows)


def carried(tpot_s: NDArray[np.float64], objective_s: float) -> int:
    return capacity(
        tpot_s,
        tpot_objective_s=objective_s,
        measured_batch=float(SIZE),
        kv_cache_tokens=None,
        tokens_per_request=None,
    ).requests_per_replica


laws = st.builds(law, st.floats(0.05, 0.95), st.floats(0.05, 2.0), st.floats(1.0, 200.0))
objectives = st.floats(0.003, 0.060)


@given(laws, objectives, st.sampled_from(VALUES))
def test_no_k_carries_more_within_the_objective_than_the_table(
    predicted: Yield, objective_s: float, present: int
) -> None:
    table = best_schedule(predicted, constant(present, SIZE), VALUES)
    held = carried(predicted.under(table), objective_s * NEARLY)
    assert held >= max(carried(predicted.row(k), objective_s) for k in VALUES)
    assert held >= carried(predicted.tpot_s.min(axis=0), objective_s)


@given(st.floats(0.05, 0.95), st.floats(0.0, 0.5), objectives)
def test_falling_acceptance_never_raises_what_the_best_k_carries(
    acceptance: float, fall: float, objective_s: float
) -> None:
    before, after = law(acceptance), law(acceptance * (1.0 - fall))
    assert carried(after.tpot_s.min(axis=0), objective_s) <= carried(before.tpot_s.min(axis=0), objective_s)
    table = best_schedule(before, constant(3, SIZE), VALUES)
    assert carried(after.under(table), objective_s) <= carried(before.under(table), objective_s)


def test_a_smaller_k_that_avoids_a_replica_is_taken_at_that_load() -> None:
    """K 5 yields most of few requests and carries 56 within the objective; the table goes on with fewer, to 63."""
    predicted = law(0.8)
    table = best_schedule(predicted, constant(5, SIZE), VALUES)
    alone, together = carried(predicted.row(5), 0.006), carried(predicted.under(table), 0.006)
    assert table.at(1) == 5
    assert table.at(together) < 5
    load_tps = together / predicted.under(table)[together - 1]
    assert least_replicas(load_tps, predicted.under(table), together, measured_batch=SIZE) == 1
    assert least_replicas(load_tps, predicted.row(5), alone, measured_batch=SIZE) == 2


def test_a_larger_k_stays_where_a_smaller_one_would_avoid_no_replica() -> None:
    """At 8 in flight K 5 is the quickest: fewer drafts would only make answers slower on the same replica."""
    predicted = law(0.8)
    kept = best_schedule(predicted, parse_text(f"1-{SIZE}:5"), VALUES)
    assert kept.at(8) == 5
    load_tps = 8 / predicted.row(5)[7]
    assert least_replicas(load_tps, predicted.row(2), 40, measured_batch=SIZE) == (
        least_replicas(load_tps, predicted.row(5), 40, measured_batch=SIZE)
    )
