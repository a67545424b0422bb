"""What prefill costs the requests beside it: learnt from mixed steps, tried on the simulator at several loads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core import interference, latency
from outrider.core.interference import HALF_LIFE_S, Interference, Spread
from outrider.core.latency import LatencyModel, LatencyState
from outrider.core.observation import Histogram, Observation, StepCell, observe
from outrider.core.schedule import constant
from outrider.engine.command_line import HISTOGRAM_BUCKETS
from outrider.simulator.fleet import Fleet, FleetConfig
from outrider.simulator.profile import load_profile
from outrider.simulator.settings import EngineSettings, Plugin, Speculation
from outrider.simulator.workload import poisson

PROFILE = load_profile()
DURATION_S, WARM_UP_S = 150.0, 45.0


def window(rate_rps: float, k: int, prompt_tokens: int, output_tokens: int) -> Observation:
    """A simulated engine under Poisson arrivals, its first seconds left out."""
    buckets = {"inter_token_latency": tuple(HISTOGRAM_BUCKETS["inter_token_latency"])}
    settings = EngineSettings(
        speculation=Speculation("eagle", 6, constant(k, 256)), plugin=Plugin(), histogram_buckets=buckets
    )
    fleet = Fleet(FleetConfig(settings, PROFILE, window_s=DURATION_S, tail_s=0.1))
    fleet.run(
        poisson(rate_rps, DURATION_S, prompt_tokens=prompt_tokens, output_tokens=output_tokens, seed=3), DURATION_S
    )
    seen = observe(fleet.store.window(0.0, DURATION_S), WARM_UP_S, DURATION_S)
    assert isinstance(seen, Observation)
    return seen


def learnt(seen: Observation) -> tuple[LatencyModel, float]:
    held = sum((one.kv_cache_usage or 0.0) * (one.kv_cache_tokens or 0.0) for one in seen.engines)
    state = latency.update(
        LatencyState(),
        seen.cells,
        seen.seconds,
        generation_tokens=seen.generation_tokens,
        context_tokens=held / seen.running,
    )
    model = latency.fit(state, 512)
    assert model is not None
    overhead_s = latency.mixed_overhead(state, model)
    assert overhead_s is not None
    return model, overhead_s


def batch_of_a_request(seen: Observation) -> float:
    """The mean batch that a request sees: each step counts once for every request in it."""
    return sum(cell.requests * cell.mean_batch for cell in seen.cells) / sum(cell.requests for cell in seen.cells)


def acceptance_length(k: int) -> float:
    return 1.0 + sum(PROFILE.acceptance[:k])


@pytest.mark.parametrize(("k", "rate_rps"), [(0, 4.0), (0, 14.0), (1, 20.0), (3, 6.0), (3, 24.0)])
@pytest.mark.parametrize(("prompt", "output"), [(500, 200), (1000, 100)])
def test_decode_time_and_overhead_give_the_time_per_output_token(
    k: int, rate_rps: float, prompt: int, output: int
) -> None:
    seen = window(rate_rps, k, prompt, output)
    model, overhead_s = learnt(seen)
    predicted_s = float(model.tpot_s(batch_of_a_request(seen), k, acceptance_length(k), overhead_s))
    # 24 requests a second come near what the engine can do: a burst to 88 at once lifts the mean batch of all by 3 %.
    assert predicted_s == pytest.approx(seen.tpot.mean, rel=0.04 if rate_rps > 20.0 else 0.03)


def test_the_overhead_learnt_at_low_load_holds_at_high_load() -> None:
    quiet, busy = window(3.0, 3, 1000, 200), window(22.0, 3, 1000, 200)
    assert batch_of_a_request(busy) > 8 * batch_of_a_request(quiet)
    _, low_s = learnt(quiet)
    model, high_s = learnt(busy)
    assert low_s == pytest.approx(high_s, rel=0.15)
    predicted_s = float(model.tpot_s(batch_of_a_request(busy), 3, acceptance_length(3), low_s))
    assert predicted_s == pytest.approx(busy.tpot.mean, rel=0.08)


def test_a_longer_answer_spreads_the_same_prompt_over_more_tokens() -> None:
    _, short_s = learnt(window(6.0, 3, 1000, 100))
    _, long_s = learnt(window(3.0, 3, 1000, 200))
    assert short_s == pytest.approx(2 * long_s, rel=0.15)


def mixed(seconds: float, steps: float = 100.0, batch: int = 32) -> StepCell:
    return StepCell(batch, 3, True, steps, seconds, steps * batch)


def overhead_s(state: Interference, decode_s: float = 0.010) -> float | None:
    return interference.overhead_s(state, lambda batch, k, context: np.full_like(batch, decode_s))


def test_overhead_is_the_extra_time_of_mixed_steps_over_the_tokens_generated() -> None:
    state = interference.update(Interference(), [mixed(2.0)], 20_000.0, 15.0, None)
    assert overhead_s(state) == pytest.approx((2.0 - 100 * 0.010) / 20_000)


def test_no_overhead_is_known_before_tokens_were_generated() -> None:
    assert overhead_s(interference.update(Interference(), [mixed(2.0)], 100.0, 15.0, None)) is None


def test_without_mixed_steps_there_is_no_overhead() -> None:
    assert overhead_s(interference.update(Interference(), [], 20_000.0, 15.0, None)) == 0.0


def test_a_model_that_reads_too_slow_gives_no_negative_overhead() -> None:
    state = interference.update(Interference(), [mixed(0.5)], 20_000.0, 15.0, None)
    assert overhead_s(state) == 0.0


def test_old_traffic_fades() -> None:
    old = interference.update(Interference(), [mixed(3.0)], 10_000.0, 15.0, None)
    new = interference.update(old, [mixed(1.0)], 10_000.0, 4 * HALF_LIFE_S, None)
    assert overhead_s(new) == pytest.approx((3.0 / 16 + 1.0 - (1 + 1 / 16) * 1.0) / (10_000 * (1 + 1 / 16)))


def tpot(values_ms: tuple[float, ...], bounds_ms: tuple[float, ...]) -> Histogram:
    buckets = [(bound / 1e3, float(sum(value <= bound for value in values_ms))) for bound in bounds_ms]
    return Histogram(float(len(values_ms)), sum(values_ms) / 1e3, (*buckets, (float("inf"), float(len(values_ms)))))


FINE = tuple(1.1**power for power in range(60))
SKEWED = (*[9.0] * 90, *[19.0] * 10)


def learn(state: Interference, histogram: Histogram, *, decode_s: float, prefill_s: float) -> Interference:
    return interference.learn_spread(state, histogram, 0.95, 15.0, decode_s=decode_s, prefill_s=prefill_s, queued=False)


def test_the_spread_of_both_parts_is_learnt_from_two_loads() -> None:
    state = Interference()
    for _ in range(100):
        # 1.2 times a decode time of 10 ms and 1.8 times the prefill part, at two loads.
        state = learn(state, tpot((11.0,) * 90 + (13.8,) * 10, FINE), decode_s=0.010, prefill_s=0.001)
        state = learn(state, tpot((16.0,) * 90 + (21.0,) * 10, FINE), decode_s=0.010, prefill_s=0.005)
    assert state.spread.factors == pytest.approx((1.2, 1.8), rel=0.1)


def test_one_window_moves_the_spread_little() -> None:
    before = Spread().factors
    state = learn(Interference(), tpot((10.0,) * 100, FINE), decode_s=0.010, prefill_s=0.0)
    assert state.spread.factors == pytest.approx(before, rel=0.1)


@pytest.mark.parametrize(
    ("histogram", "queued"),
    [
        pytest.param(tpot(SKEWED, FINE), True, id="requests wait"),
        pytest.param(tpot((9.0,) * 10, FINE), False, id="too few requests"),
        pytest.param(tpot(SKEWED, (10.0, 25.0, 50.0)), False, id="buckets too coarse"),
        pytest.param(tpot((1.0,) * 90 + (9.0,) * 10, FINE), False, id="an outage"),
        pytest.param(Histogram(), False, id="nothing finished"),
    ],
)
def test_the_spread_is_left_alone_when(histogram: Histogram, queued: bool) -> None:
    state = Interference(spread=Spread((1.0, 0.1, 0.01, 1.0, 0.1)))
    kept = interference.learn_spread(state, histogram, 0.95, 15.0, decode_s=0.01, prefill_s=0.0, queued=queued)
    assert kept == state


@given(st.lists(st.floats(0.1, 200.0), min_size=20, max_size=60), st.floats(1e-4, 0.2), st.floats(0.0, 0.2))
def test_no_window_gives_a_percentile_below_the_mean(values: list[float], decode_s: float, prefill_s: float) -> None:
    state = Interference()
    for _ in range(5):
        state = learn(state, tpot(tuple(values), FINE), decode_s=decode_s, prefill_s=prefill_s)
    u, v = state.spread.factors
    assert u >= 1.0
    assert v >= 1.0


def test_the_percentile_learnt_at_half_the_load_errs_on_the_safe_side() -> None:
    half, busy = window(12.0, 3, 1000, 200), window(20.0, 3, 1000, 200)
    batch = batch_of_a_request(busy)
    assert batch > 2 * batch_of_a_request(half)
    model, overhead_s = learnt(half)
    state = latency.update(LatencyState(), half.cells, 15.0, generation_tokens=half.generation_tokens)
    for _ in range(40):
        state = latency.learn_spread(state, model, half, acceptance_length, 0.95, 15.0, overhead_s)
    decode_s = float(learnt(busy)[0].step_time_s(batch, 3)) / acceptance_length(3)
    predicted_s = float(latency.percentile_tpot_s(state, decode_s, batch, overhead_s))
    assert 0.95 < predicted_s / (busy.tpot.quantile(0.95) or 0.0) < 1.2
