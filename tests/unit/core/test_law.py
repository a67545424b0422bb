"""The law of a service: closed forms, their properties, and the fixed point against the simulator."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from outrider.core import law
from outrider.core.law import Arm, Coefficients, Demand
from outrider.core.schedule import constant
from outrider.simulator.fleet import Fleet, FleetConfig
from outrider.simulator.profile import load_profile
from outrider.simulator.settings import EngineSettings, Plugin, Speculation
from outrider.simulator.workload import poisson

seconds = st.floats(1e-4, 0.1)
demands = st.builds(Demand, st.floats(0.1, 10.0), st.floats(0.001, 1.0))


@given(st.lists(demands, min_size=2, max_size=8), st.floats(0.01, 0.95))
def test_the_best_k_at_a_rate_is_the_best_at_the_batch_that_the_rate_leads_to(arms: list[Demand], load: float) -> None:
    rate = load * max(arm.saturation_rps for arm in arms)
    best = min(arms, key=lambda arm: arm.latency_s(rate))
    batch = rate * best.latency_s(rate)
    assert min(arm.at_batch_s(batch) for arm in arms) == pytest.approx(best.at_batch_s(batch), rel=1e-9)


@given(demands, demands)
def test_at_break_even_the_speedup_is_one(demand: Demand, base: Demand) -> None:
    rate = law.break_even_rps(demand, base)
    assume(rate is not None and rate < 0.99 * min(demand.saturation_rps, base.saturation_rps))
    assert rate is not None
    assert law.speedup(demand, base, rate) == pytest.approx(1.0, rel=1e-6)


def test_without_a_crossing_there_is_no_break_even() -> None:
    assert law.break_even_rps(Demand(1.0, 0.01), Demand(2.0, 0.02)) is None
    assert law.break_even_rps(Demand(1.0, 0.01), Demand(1.0, 0.01)) is None


@given(demands, st.floats(0.0, 0.99))
def test_latency_is_what_little_says(demand: Demand, load: float) -> None:
    rate = load * demand.saturation_rps
    latency_s = demand.latency_s(rate)
    assert latency_s == pytest.approx(demand.at_batch_s(rate * latency_s), rel=1e-6)
    assert demand.latency_s(demand.saturation_rps * 1.001) == inf


@given(demands, st.floats(0.1, 100.0), st.floats(0.5, 1000.0))
def test_replicas_serve_the_load_within_the_limit_and_one_less_does_not(
    demand: Demand, limit_s: float, total_rps: float
) -> None:
    replicas = demand.replicas(total_rps, limit_s)
    if replicas is None:
        assert limit_s <= demand.fixed_s
        return
    assert demand.latency_s(total_rps / replicas) <= limit_s * (1 + 1e-6)
    if replicas > 1:
        assert demand.latency_s(total_rps / (replicas - 1)) >= limit_s * (1 - 1e-6)


@given(
    st.tuples(seconds, seconds),
    st.tuples(st.floats(5e-3, 2e-2), st.floats(1e-4, 5e-4), st.floats(1e-6, 1e-4), st.floats(0.8, 2.0)),
    st.tuples(st.floats(10.0, 2000.0), st.floats(10.0, 2000.0)),
)
def test_the_switch_over_depends_neither_on_prefill_nor_on_answers(
    prefill: tuple[float, float], step: tuple[float, float, float, float], answers: tuple[float, float]
) -> None:
    verify, draft, shared, share = step
    parts = Coefficients(prefill[0], verify, draft, prefill[1], shared, share * shared)
    one, other = (law.switch_over_batch(parts.demand(1, 1.7, g), parts.demand(4, 2.5, g)) for g in answers)
    assert one is not None
    assert other == pytest.approx(one, rel=1e-6)
    assert parts.demand(1, 1.7, 100.0).at_batch_s(one) == pytest.approx(parts.demand(4, 2.5, 100.0).at_batch_s(one))


def linear_arm(fixed_s: float, shared_s: float, output_tokens: float = 101.0, sizes: int = 2000) -> Arm:
    """T/E = fixed + (B - 1)·shared for each token, no prefill."""
    decode_s = fixed_s + shared_s * np.arange(sizes)
    return Arm(decode_s, 1e-9 * decode_s, np.zeros(sizes), output_tokens)


def test_a_linear_arm_follows_the_closed_form() -> None:
    arm, demand = linear_arm(0.005, 0.0001), Demand(0.5, 0.01)
    for rate in (0.0, 1.0, 20.0, 60.0, 90.0):
        point = arm.at(rate)
        assert point is not None
        assert point.latency_s == pytest.approx(demand.latency_s(rate), rel=1e-3)
        assert point.batch == pytest.approx(rate * point.latency_s, abs=1e-9)


def test_past_saturation_there_is_no_steady_state() -> None:
    arm = linear_arm(0.005, 0.0001, sizes=256)
    assert arm.at(arm.saturation_rps * 1.001) is None
    assert arm.at(arm.saturation_rps * 0.999) is not None


growing = st.lists(st.floats(1e-6, 2e-4), min_size=40, max_size=40).map(lambda steps: 0.005 + np.cumsum(steps))


@given(st.lists(growing, min_size=2, max_size=5), st.floats(0.05, 0.9))
def test_the_best_arm_at_a_rate_is_the_best_at_its_batch_for_any_growing_step_time(
    curves: list[np.ndarray], load: float
) -> None:
    arms = [Arm(curve, curve, np.zeros(40), 100.0) for curve in curves]
    rate = load * max(arm.saturation_rps for arm in arms)
    points = [(point, arm) for arm in arms if (point := arm.at(rate)) is not None]
    assume(points)
    best, its_arm = min(points, key=lambda pair: pair[0].latency_s)
    sizes = np.arange(40)
    latencies = [float(np.interp(best.batch, sizes, arm.latency_s)) for arm in arms]
    assert float(np.interp(best.batch, sizes, its_arm.latency_s)) <= min(latencies) * (1 + 1e-3)


@given(st.floats(0.3, 0.95), st.floats(1.1, 3.0))
def test_the_break_even_of_two_linear_arms_is_the_closed_form(fixed: float, shared: float) -> None:
    arm, base = linear_arm(0.005 * fixed, 1e-4 * shared), linear_arm(0.005, 1e-4)
    expected = law.break_even_rps(Demand(0.5 * fixed, 0.01 * shared), Demand(0.5, 0.01))
    found = law.arms_break_even_rps(arm, base)
    assert expected is not None
    assume(expected < 0.9 * arm.saturation_rps)
    assert found == pytest.approx(expected, rel=0.01)


def test_an_arm_that_is_better_everywhere_has_no_break_even_and_one_that_never_is_has_zero() -> None:
    fast, slow = linear_arm(0.004, 1e-4), linear_arm(0.005, 1.1e-4)
    assert law.arms_break_even_rps(fast, slow) is None
    assert law.arms_break_even_rps(slow, fast) == 0.0


def test_replicas_of_an_arm_meet_the_objective_and_one_less_does_not() -> None:
    arm = linear_arm(0.005, 0.0001, sizes=256)
    replicas = arm.replicas(500.0, 0.010)
    assert replicas is not None
    within = arm.at(500.0 / replicas)
    assert within is not None
    assert within.tpot_s <= 0.010
    point = arm.at(500.0 / (replicas - 1))
    assert point is None or point.tpot_s > 0.010 * 0.99
    assert arm.replicas(500.0, 0.004) is None


def test_a_percentile_needs_more_replicas_than_the_mean() -> None:
    sizes = np.arange(256)
    arm = Arm(0.005 + 2e-5 * sizes, 0.01 + 4e-5 * sizes, np.full(256, 0.02), 200.0)
    mean, high = arm.replicas(100.0, 0.012), arm.replicas(100.0, 0.012, (1.1, 2.2))
    assert mean is not None
    assert high is not None
    assert high > mean


def test_the_best_arm_is_nowhere_worse_than_any() -> None:
    arms = [linear_arm(0.004, 0.0002, sizes=64), linear_arm(0.006, 0.0001, sizes=64)]
    assert np.all(law.best_of(arms).latency_s <= np.minimum(arms[0].latency_s, arms[1].latency_s))


@pytest.mark.parametrize(("k", "rate_rps"), [(0, 4.0), (0, 12.0), (1, 16.0), (3, 8.0), (3, 20.0)])
def test_the_fixed_point_gives_the_latency_of_a_simulated_engine(k: int, rate_rps: float) -> None:
    profile, prompt, output = load_profile(), 500, 200
    settings = EngineSettings(speculation=Speculation("eagle", 6, constant(k, 256)), plugin=Plugin())
    duration_s = 150.0
    requests = poisson(rate_rps, duration_s, prompt_tokens=prompt, output_tokens=output, seed=5)
    records = Fleet(FleetConfig(settings, profile)).run(requests, duration_s).records
    measured_s = float(np.mean([record.e2e_s for record in records if record.request.arrival_s > 30.0]))
    sizes = range(1, 257)
    context = prompt + output / 2
    step_s = np.array([profile.step_time_s(batch, k, 512, context) for batch in sizes])
    mixed_s = np.array([profile.prefill_time_s(prompt + batch * (k + 1)) for batch in sizes])
    prefill_s = np.maximum(
        0.0, mixed_s + k * profile.draft_pass_s + profile.context_s * context * np.arange(256) - step_s
    )
    length = 1.0 + sum(profile.acceptance[:k])
    point = Arm(step_s / length, step_s, prefill_s, float(output)).at(rate_rps)
    assert point is not None
    assert point.latency_s == pytest.approx(measured_s, rel=0.06)
