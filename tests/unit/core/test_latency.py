"""Step time: measured where there are steps, modelled where there are none; tried on a measured H100."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core import measured_profile
from outrider.core.held_out import held_out
from outrider.core.latency import HALF_LIFE_S, LatencyState, fit, update
from outrider.core.observation import StepCell
from outrider.core.step_cells import Cell, band
from outrider.core.step_time import GENERIC, Experts, points_of

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


def test_a_cell_beside_the_edge_of_the_graphs_counts_fully_where_its_sizes_are_known_to_be_close() -> None:
    """96 requests of K 4 are 480 tokens of 512; cells of a power of two hold up to 128 requests."""
    state = seen((32, 4), (64, 4), (96, 4))
    slow = {key: cell.slowed(1.3) if cell.mean_batch > 90 else cell for key, cell in state.cells.items()}
    wide, close = (fit(replace(state, cells=slow), CAPTURE, spread=spread) for spread in (None, 1.04))
    assert wide is not None
    assert close is not None
    measured_s = 1.3 * MEASURED_MS[96, 4] / 1e3
    assert float(close.step_time_s(96, 4)) == pytest.approx(measured_s, rel=0.02)
    assert float(wide.step_time_s(96, 4)) < 0.95 * measured_s


def test_a_model_knows_which_k_were_ever_run() -> None:
    model = fit(seen((32, 3)), CAPTURE)
    assert model is not None
    assert model.measured(3)
    assert not model.measured(2)


def test_steps_with_prefill_follow_another_law_and_are_left_out() -> None:
    state = update(LatencyState(), [StepCell(32, 3, True, 400, 12.0, 12000)], 0.0, generation_tokens=1000.0)
    assert state.cells == {}
    assert state.interference.tokens == 1000.0
    assert state.interference.mixed.keys() == {(band(30.0), 3)}


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        pytest.param(96, 128, True, id="the engine's bucket of 128 holds both"),
        pytest.param(100, 104, False, id="a little noise in the load makes no new cell"),
        pytest.param(64, 66, False, id="whatever side of the engine's bucket it lies on"),
    ],
)
def test_cells_are_kept_by_half_octaves_of_the_mean_batch(one: int, other: int, *, apart: bool) -> None:
    steps = [StepCell(bucket(b), 3, False, 400.0, 4.0, 400.0 * b) for b in (one, other)]
    state = update(LatencyState(), steps, 0.0)
    assert len(state.cells) == (2 if apart else 1)
    assert sum(cell.steps for cell in state.cells.values()) == 800.0


@pytest.mark.parametrize(("mean_batch", "number"), [(0.5, 0), (1.0, 0), (2.0, 2), (32.0, 10), (45.3, 11), (256.0, 16)])
def test_there_are_two_bands_an_octave(mean_batch: float, number: int) -> None:
    assert band(mean_batch) == number


def test_old_steps_fade_and_disappear() -> None:
    state = update(seen((32, 3), steps=8.0), [], HALF_LIFE_S)
    assert state.cells[band(32.0), 3] == Cell(4.0, pytest.approx(4.0 * 0.01087, rel=1e-3), 128.0)  # type: ignore[arg-type]
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


def test_errors_held_out_on_the_measured_profile_are_within_the_targets() -> None:
    profile = measured_profile.read(PROFILE)
    drafter = profile.points.passes > 0
    points, times_s = profile.points.where(drafter), profile.times_s[drafter]
    found = held_out(points, times_s, np.ones_like(times_s), GENERIC, limit=96, above=128)
    assert found.batch is not None
    assert found.k is not None
    assert found.load is not None
    assert found.batch < 0.06
    assert found.k < 0.07
    assert found.load < 0.10


def test_one_batch_and_one_k_leave_nothing_to_hold_out() -> None:
    found = held_out(points_of([32.0], 3, 800.0), np.array([0.011]), np.ones(1), GENERIC)
    assert (found.batch, found.k, found.load) == (None, None, None)


def test_an_engine_without_its_drafter_is_predicted_from_one_with_it() -> None:
    state = seen(*[point for point in MEASURED_MS if point[0] <= 96])
    model = fit(state, CAPTURE)
    assert model is not None
    rows = [row for row in PROFILE["no_drafter"] if row["prompt"] == 512 and row["batch"] <= 96]
    predicted = model.no_drafter_step_time_s([row["batch"] for row in rows], 620.0)
    measured = np.array([row["step_time_ms_median"] for row in rows]) / 1e3
    assert float(np.abs(predicted / measured - 1.0).mean()) < 0.05


def test_an_engine_that_never_had_a_drafter_has_its_own_arm() -> None:
    state = update(LatencyState(), [StepCell(32, 0, False, 400, 400 * 0.0075, 400 * 32)], 0.0)
    bare, drafting = fit(state, CAPTURE, drafter=False), fit(state, CAPTURE)
    assert bare is not None
    assert drafting is not None
    assert float(bare.step_time_s(1, 0)) == pytest.approx(float(bare.no_drafter_step_time_s(1)))
    assert drafting.no_drafter_step_time_s(1) < drafting.step_time_s(1, 0)


@pytest.mark.parametrize(
    ("batch", "k", "expected"),
    [(32, 3, False), (96, 3, False), (97, 3, True), (10, 3, True), (32, 2, True), (64, 1, False)],
)
def test_what_lies_beyond_the_measured_batches_and_k_is_an_extrapolation(batch: int, k: int, expected: bool) -> None:
    model = fit(seen((16, 1), (32, 3), (64, 3)), CAPTURE)
    assert model is not None
    assert bool(model.extrapolated(batch, k)) is expected


def test_a_step_past_the_graphs_is_an_extrapolation_until_one_was_seen() -> None:
    inside, both = fit(seen((64, 5), (64, 6)), CAPTURE), fit(seen((64, 5), (96, 5)), CAPTURE)
    assert inside is not None
    assert both is not None
    assert bool(inside.extrapolated(90, 5))
    assert not bool(both.extrapolated(90, 5))


def test_the_error_of_a_prediction_grows_with_the_distance_from_what_was_measured() -> None:
    model = fit(seen((16, 3), (32, 3)), CAPTURE)
    assert model is not None
    here, near, far = model.step_time_with_error([32, 48, 120], 3)[1]
    assert 0.015 <= here < near < far
    assert model.step_time_with_error(32, 5)[1][0] > here


def test_errors_on_held_out_rows_are_as_large_as_the_model_says() -> None:
    """Within a factor: the root mean square of error over stated error is near one."""
    scaled = []
    for left in (0, 1, 2, 3, 5):
        model = fit(seen(*[(b, k) for b, k in MEASURED_MS if k != left and b <= 64]), CAPTURE)
        assert model is not None
        for batch in (1, 8, 16, 32, 64):
            error = float(model.step_time_s(batch, left)) * 1e3 / MEASURED_MS[batch, left] - 1.0
            scaled.append(error / float(model.step_time_with_error(batch, left)[1][0]))
    assert 0.2 < float(np.sqrt(np.mean(np.square(scaled)))) < 1.5


def test_context_is_learnt_where_it_is_observed() -> None:
    state = LatencyState()
    for batch, context in ((8, 600.0), (32, 600.0), (64, 600.0), (16, 4000.0), (128, 4000.0)):
        seconds = 0.007 + 4.5e-8 * batch * context
        cell = StepCell(bucket(batch), 1, False, 400, 400 * seconds, 400 * batch)
        state = update(state, [cell], 0.0, context_tokens=context)
    model = fit(state, CAPTURE)
    assert model is not None
    longer = float(model.step_time_s(32, 1, 4000.0) - model.step_time_s(32, 1, 600.0))
    assert longer == pytest.approx(4.5e-8 * 32 * 3400, rel=0.15)


def test_a_mixture_of_experts_needs_its_term() -> None:
    """Reading experts saturates with the tokens: the law has the shape, and without it misses what is left out."""
    experts = Experts(8, 128)
    batch, k = (grid.ravel() for grid in np.meshgrid([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0], [1.0, 2.0, 4.0]))
    at = points_of(batch, k, 800.0)
    truth = replace(GENERIC.scaled(0.007), coefficients=0.007 * np.array([1.0, 0.1, 5e-4, 8e-4, 2.6e-3, 8e-6, 2.0]))
    times_s = truth.for_engine(0, experts).step_time_s(at)
    errors = [
        held_out(at, times_s, np.ones_like(batch), GENERIC.for_engine(0, model)).batch or 0.0
        for model in (None, experts)
    ]
    assert errors[1] < 0.01
    assert errors[1] < errors[0] / 3


def test_a_profile_of_like_hardware_is_a_better_prior_than_the_generic_shape() -> None:
    profile = measured_profile.read(PROFILE)
    slower = {key: value * 1.4 for key, value in MEASURED_MS.items()}
    cells = [StepCell(32, 3, False, 400, 400 * slower[32, 3] / 1e3, 400 * 32)]
    state = update(LatencyState(), cells, 0.0)
    wrong = replace(GENERIC, coefficients=GENERIC.coefficients * np.array([1.0, 3.0, 1.0, 3.0, 3.0, 1.0, 1.0]))
    errors = []
    for prior in (profile.prior(), wrong):
        model = fit(state, CAPTURE, prior=prior)
        assert model is not None
        asked = [(b, k) for b, k in slower if b * (k + 1) <= CAPTURE]
        predicted = np.array([float(model.step_time_s(b, k)) * 1e3 / slower[b, k] for b, k in asked])
        errors.append(float(np.abs(predicted - 1.0).mean()))
    assert errors[0] < 0.06
    assert errors[0] < errors[1] / 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        pytest.param({"rows": None}, "expected form", id="no list"),
        pytest.param({"rows": []}, "needs rows", id="no rows"),
        pytest.param({"rows": [{"batch": 1}]}, "no field 'capture_size'", id="a field missing"),
        pytest.param({"rows": [{**PROFILE["rows"][0], "step_time_ms_median": 0.0}]}, "not positive", id="a zero"),
    ],
)
def test_a_profile_that_cannot_be_read_says_why(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        measured_profile.read({**PROFILE, **change})
