"""The alarm on step times: finds a slower or faster engine soon, and leaves noise and single stalls alone."""

from __future__ import annotations

import numpy as np
import pytest

from outrider.core import latency, step_time_shift
from outrider.core.latency import KEEP_AFTER_SHIFT, LatencyModel, LatencyState
from outrider.core.observation import StepCell
from outrider.core.step_cells import band
from outrider.core.step_time_shift import StepTimeShift, Watch

DEVIATION = 0.03


def windows_until_alarm(ratios: np.ndarray) -> tuple[int | None, StepTimeShift | None]:
    watch = Watch()
    for number, ratio in enumerate(ratios, 1):
        watch, shift = step_time_shift.look(watch, float(ratio))
        if shift is not None:
            return number, shift
    return None, None


def noise(windows: int, seed: int, mean: float = 0.0) -> np.ndarray:
    return np.exp(mean + DEVIATION * np.random.default_rng(seed).standard_normal(windows))


@pytest.mark.parametrize(("ratio", "most"), [(1.15, 4), (0.87, 4), (1.06, 12), (2.0, 2)])
def test_a_shift_is_found_within_a_few_windows(ratio: float, most: int) -> None:
    delays, ratios = [], []
    for seed in range(20):
        before = step_time_shift.Watch()
        for seen in noise(40, seed):
            before, _ = step_time_shift.look(before, float(seen))
        watch, found = before, None
        for number, seen in enumerate(noise(60, 100 + seed, np.log(ratio)), 1):
            watch, found = step_time_shift.look(watch, float(seen))
            if found is not None:
                delays.append(number)
                ratios.append(found.ratio)
                break
    assert len(delays) == 20
    assert float(np.median(ratios)) == pytest.approx(ratio, rel=0.05)
    assert max(abs(np.log(np.array(ratios) / ratio))) < 0.2
    assert float(np.median(delays)) <= most


def test_false_alarms_are_hours_apart() -> None:
    found = [windows_until_alarm(noise(2000, seed))[0] or 2000 for seed in range(20)]
    assert float(np.mean(found)) > 300  # either side: half of Siegmund's 938, cut at 2,000 windows


def test_one_stall_is_no_shift() -> None:
    assert windows_until_alarm(np.array([*noise(20, 1), 3.0, *noise(20, 2)]))[1] is None


def test_a_noisy_service_gets_a_wider_yardstick() -> None:
    rng, watch = np.random.default_rng(0), Watch()
    for _ in range(400):
        watch, _ = step_time_shift.look(watch, float(np.exp(0.08 * rng.standard_normal())))
    assert watch.deviation > 0.045


def cell(k: int, seconds_a_step: float, batch: int = 32, *, mixed: bool = False, steps: float = 500.0) -> StepCell:
    return StepCell(batch, k, mixed, steps, steps * seconds_a_step, steps * batch)


def known(*cells: StepCell) -> tuple[LatencyState, LatencyModel]:
    state = latency.update(LatencyState(), cells, 0.0)
    model = latency.fit(state, 512)
    assert model is not None
    return state, model


def test_residual_is_measured_over_predicted_and_ignores_what_the_model_does_not_know() -> None:
    _, model = known(cell(3, 0.011), cell(1, 0.0086))
    unknown = [cell(5, 0.05), cell(3, 0.05, mixed=True), cell(3, 0.5, steps=3.0), cell(3, 0.2, batch=256)]
    assert latency.residual(model, [cell(3, 0.0121), *unknown]) == pytest.approx(1.1, rel=0.02)
    assert latency.residual(model, unknown) is None


def test_the_alarm_says_how_much_and_since_when() -> None:
    sentence = "steps take 1.30 times as long as before, for 4 windows by now"
    assert str(StepTimeShift(1.3, 4)) == sentence


def test_on_an_alarm_older_steps_are_scaled_and_count_less() -> None:
    state, model = known(cell(3, 0.011), cell(1, 0.0086))
    shift = None
    while shift is None:
        state, shift = latency.look(state, model, [cell(3, 0.011 * 1.3)])
    assert shift.ratio == pytest.approx(1.3, rel=0.03)
    assert "1.3" in str(shift)
    assert state.cells[band(32.0), 1].steps == pytest.approx(500.0 * KEEP_AFTER_SHIFT)
    again = latency.fit(state, 512)
    assert again is not None
    for k in (1, 3):
        assert float(again.step_time_s(32, k) / model.step_time_s(32, k)) == pytest.approx(1.3, rel=0.03)
