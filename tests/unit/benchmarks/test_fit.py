"""The figures of the step-time model that the policy benchmark quotes."""

from __future__ import annotations

import pytest

from benchmarks.fit.__main__ import report
from benchmarks.fit.published import figures

IN_SAMPLE = ("all", "no speculation", "K 7 to batch 128")


def test_the_report_has_the_keys_that_the_policy_benchmark_reads() -> None:
    found = report()
    assert {"mape_heldout_load_percent", "mape_heldout_k_percent", "mape_extrapolated_percent"} < set(found)
    assert all(set(row) == {"mape_percent", "reference_percent"} for row in found["published"].values())


def test_published_tables_are_fitted_as_well_as_by_the_plain_law() -> None:
    """To within a tenth: the plain fits are least squares of another kind."""
    fitted = [figure for figure in figures() if figure.name.split(": ")[1] in IN_SAMPLE]
    assert len(fitted) == 6
    for figure in fitted:
        assert figure.reference_percent is not None
        assert figure.percent <= 1.1 * figure.reference_percent, figure.name


def test_on_a_mixture_of_experts_one_k_left_out_is_predicted_as_well() -> None:
    found = {figure.name: figure for figure in figures()}
    for name in ("qwen3_235b: K 6 left out", "qwen3_235b: K 2 left out", "qwen3_235b: batch 1 left out"):
        assert found[name].percent <= (found[name].reference_percent or pytest.fail(name))
