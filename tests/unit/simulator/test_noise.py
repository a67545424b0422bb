"""Noise is what its settings say, changes no mean, and comes the same whoever looks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.simulator.engine import SimulatedEngine
from outrider.simulator.fleet import Fleet, FleetConfig
from outrider.simulator.noise import MODEST, Noise, StepNoise
from outrider.simulator.workload import closed_loop, poisson
from tests.unit.simulator.builders import profile, request, settings, submit_all

STEP_S = 0.01


def factors(noise: Noise, steps: int, seed: int = 0) -> np.ndarray:
    source = StepNoise(noise, seed)
    return source.at(0.0, steps, STEP_S) / source.boot_factor


def test_the_factors_have_the_stated_size_and_memory_and_slow_nothing_down() -> None:
    noise = Noise(step_cv=0.05, correlation_s=0.5)
    found = factors(noise, 400_000)  # 8,000 correlation times: the mean is known to 0.05 * sqrt(2 / 8,000) = 0.08 %
    assert (1.0 / found).mean() == pytest.approx(1.0, abs=0.003)
    assert found.std() == pytest.approx(0.05, rel=0.05)
    logs = np.log(found)
    for lag_s, expected in ((0.1, np.exp(-0.2)), (0.5, np.exp(-1)), (2.0, np.exp(-4))):
        lag = round(lag_s / STEP_S)
        assert np.corrcoef(logs[:-lag], logs[lag:])[0, 1] == pytest.approx(expected, abs=0.05)


def test_boots_differ_as_stated_and_have_mean_1() -> None:
    boots = [StepNoise(Noise(boot_cv=0.03), seed).boot_factor for seed in range(2000)]
    assert np.mean(boots) == pytest.approx(1.0, abs=0.003)
    assert np.std(boots) == pytest.approx(0.03, rel=0.08)


@given(
    starts_s=st.lists(st.floats(0.0, 2000.0), min_size=1, max_size=20),
    step_s=st.floats(0.001, 0.1),
    steps=st.integers(1, 60),
)
def test_a_moment_has_one_factor_whoever_asks_and_in_whatever_order(
    starts_s: list[float], step_s: float, steps: int
) -> None:
    forward, backward = StepNoise(MODEST, 7), StepNoise(MODEST, 7)
    one_way = [forward.at(start_s, steps, step_s).tolist() for start_s in starts_s]
    other_way = [backward.at(start_s, steps, step_s).tolist() for start_s in reversed(starts_s)]
    assert one_way == other_way[::-1]


def test_a_noisy_engine_is_as_fast_as_a_quiet_one_on_average() -> None:
    def mean_step_s(noise: Noise, seed: int, until_s: float) -> float:
        target = SimulatedEngine(settings(3), profile(), seed=seed, noise=noise)
        submit_all(target, closed_loop(16, prompt_tokens=300, output_tokens=20_000))
        target.advance(until_s)
        (cell,) = (cell for key, cell in target.counters.cells.items() if not key.mixed)
        return cell.seconds / cell.steps

    wavering, booted = Noise(step_cv=0.05, correlation_s=0.2), Noise(boot_cv=0.03)
    steps = [mean_step_s(wavering, seed, 40.0) / mean_step_s(Noise(), seed, 40.0) for seed in range(5)]
    assert np.mean(steps) == pytest.approx(1.0, abs=0.006)
    # A short while only: a faster engine has longer contexts at the same moment, hence longer steps.
    boots = [mean_step_s(booted, seed, 3.0) / mean_step_s(Noise(), seed, 3.0) for seed in range(5)]
    assert boots == pytest.approx([StepNoise(booted, seed).boot_factor for seed in range(5)], rel=1e-3)


def test_a_noisy_engine_runs_the_same_steps_whoever_looks() -> None:
    once, often = (SimulatedEngine(settings("1-3:5 4-256:2"), profile(), seed=4, noise=MODEST) for _ in range(2))
    for target in (once, often):
        submit_all(target, [request(n, at=n * 0.2, output=200) for n in range(9)])
    once.advance(20.0)
    for tick in range(2001):
        often.advance(tick / 100)
        assert often.counters.generation_tokens >= 0
    assert once.counters.cells == often.counters.cells


def test_a_fleet_draws_for_each_replica_and_by_seed() -> None:
    def run(seed: int) -> list[float]:
        fleet = Fleet(FleetConfig(settings(), profile(), replicas=3, noise=Noise(boot_cv=0.05), seed=seed))
        result = fleet.run(poisson(20, 20, prompt_tokens=200, output_tokens=100, seed=1), 20)
        return sorted(record.finished_s for record in result.records)

    assert run(1) == run(1)
    assert run(1) != run(2)
