"""Step time: measured where there are steps, modelled where there are none; tried on a measured H100."""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.latency import HALF_LIFE_S, LatencyState, fit, update
from outrider.core.observation import StepCell
from outrider.core.step_cells import Cell

CAPTURE = 512
PROFILE = json.loads((files("outrider.simulator") / "data" / "h100-llama8b-eagle.json").read_text())
MEASURED_MS = {
    (row["batch"], row["speculative_tokens"]): row[
        "step_time_ms_from_throughput" if row["noisy"] else "step_time_ms_median"
    ]
    for row in PROFILE["rows"]
}


def bucket(batch: int) -> int:
    return 1 << (batch - 1).bit_length()


def seen(*points: tuple[int, int], steps: float = 400.0) -> LatencyState:
    """The state after ``steps`` decode steps at each of these measured points (batch, K)."""
    cells = [StepCell(bucket(b), k, False, steps, steps * MEASURED_MS[b, k] / 1e3, steps * b) for b, k in points]
    return update(LatencyState(), cells, 0.0)


def error(state: LatencyState, batch: int, k: int) -> float:
    model = fit(state, CAPTURE)
    assert model is not None
    return float(model.step_time_s(batch, k)) * 1e3 / MEASURED_MS[batch, k] - 1.0


def test_nothing_measured_gives_no_model() -> None:
    assert fit(LatencyState(), CAPTURE) is None


def test_a_handful_of_steps_is_not_a_law() -> None:
    assert fit(seen((32, 3), steps=5.0), CAPTURE) is None


def test_a_measured_cell_is_reproduced() -> None:
    assert error(seen((32, 3)), 32, 3) == pytest.approx(0.0, abs=1e-9)


def test_one_batch_of_one_k_predicts_its_neighbours_by_the_generic_shape() -> None:
    state = seen((32, 3))
    for batch, k in ((16, 3), (64, 3), (32, 2), (32, 5), (8, 1)):
        assert abs(error(state, batch, k)) < 0.12, (batch, k)


def test_with_several_k_the_fit_is_close_everywhere_it_was_tried() -> None:
    points = [(b, k) for b, k in MEASURED_MS if k in (0, 1, 2, 3, 5) and b <= 64]
    state = seen(*points)
    errors = [abs(error(state, b, k)) for b, k in points]
    assert float(np.mean(errors)) < 0.03


def test_a_k_that_was_left_out_is_predicted_from_the_others() -> None:
    points = [(b, k) for b, k in MEASURED_MS if k in (0, 1, 3, 5) and b <= 64]
    state = seen(*points)
    assert float(np.mean([abs(error(state, b, 2)) for b in (1, 8, 16, 32, 64)])) < 0.05


def test_a_step_beyond_the_captured_graphs_jumps() -> None:
    model = fit(seen((32, 3), (64, 3)), CAPTURE)
    assert model is not None
    inside, beyond = model.step_time_s([128, 129], 3)
    assert beyond > inside * 1.2


def test_a_model_knows_which_k_were_ever_run() -> None:
    model = fit(seen((32, 3)), CAPTURE)
    assert model is not None
    assert model.measured(3)
    assert not model.measured(2)


def test_steps_with_prefill_follow_another_law_and_are_left_out() -> None:
    state = update(LatencyState(), [StepCell(32, 3, True, 400, 12.0, 12000)], 0.0, generation_tokens=1000.0)
    assert state.cells == {}
    assert state.interference.tokens == 1000.0
    assert state.interference.mixed.keys() == {(32, 3)}


def test_old_steps_fade_and_disappear() -> None:
    state = update(seen((32, 3), steps=8.0), [], HALF_LIFE_S)
    assert state.cells[32, 3] == Cell(4.0, pytest.approx(4.0 * 0.01087, rel=1e-3), 128.0)  # type: ignore[arg-type]
    assert update(state, [], 3 * HALF_LIFE_S).cells == {}


@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128]), st.sampled_from([0, 1, 2, 3, 5]), st.floats(1e-3, 1.0)
        ),
        min_size=1,
        max_size=12,
    )
)
def test_predictions_are_positive_and_finite_whatever_was_measured(cells: list[tuple[int, int, float]]) -> None:
    state = update(LatencyState(), [StepCell(b, k, False, 100, 100 * t, 100 * b) for b, k, t in cells], 0.0)
    model = fit(state, CAPTURE)
    assert model is not None
    for k in (0, 1, 2, 3, 5):
        times = model.step_time_s(np.arange(1, 257), k)
        assert np.all(np.isfinite(times))
        assert np.all(times > 0.0)
