"""What the law makes of a measured profile, against engines simulated from the same profile."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest

from outrider.core import measured_profile
from outrider.core.outlook import Expected, outlook
from outrider.core.schedule import constant
from outrider.simulator.fleet import Fleet, FleetConfig
from outrider.simulator.profile import load_profile
from outrider.simulator.settings import EngineSettings, Plugin, Speculation
from outrider.simulator.workload import poisson

PROMPT, ANSWER = 500, 200
DOCUMENT = json.loads((files("outrider.simulator") / "data" / "h100-llama8b-eagle.json").read_text())


@cache
def expected() -> dict[str, Expected]:
    profile = measured_profile.read(DOCUMENT)
    arms = outlook(profile, [0, 1, 3, 5], prompt_tokens=PROMPT, output_tokens=ANSWER, max_batch=256)
    return {one.name: one for one in arms}


@pytest.mark.parametrize(("k", "rate_rps"), [(0, 8.0), (1, 18.0), (3, 20.0), (3, 29.0), (5, 29.0)])
def test_latency_is_that_of_a_simulated_engine_near_saturation_too(k: int, rate_rps: float) -> None:
    settings = EngineSettings(speculation=Speculation("eagle", 6, constant(k, 256)), plugin=Plugin())
    requests = poisson(rate_rps, 120.0, prompt_tokens=PROMPT, output_tokens=ANSWER, seed=2)
    records = Fleet(FleetConfig(settings, load_profile())).run(requests, 120.0).records
    measured_s = float(np.mean([record.e2e_s for record in records if 40.0 < record.request.arrival_s < 110.0]))
    point = expected()[f"K {k}"].arm.at(rate_rps)
    assert point is not None
    assert point.latency_s == pytest.approx(measured_s, rel=0.12)


def test_latency_grows_with_load_for_every_arm() -> None:
    for one in expected().values():
        rates = np.linspace(0.1, 0.95 * one.arm.saturation_rps, 30)
        latencies = [point.latency_s for rate in rates if (point := one.arm.at(float(rate))) is not None]
        assert len(latencies) == 30
        assert all(after >= before * 0.999 for before, after in pairwise(latencies)), one.name


def test_an_idle_engine_answers_in_one_prefill_and_its_decode_steps() -> None:
    point = expected()["no drafter"].arm.at(0.0)
    assert point is not None
    assert point.ttft_s == pytest.approx(0.01985, rel=0.1)  # the measured time to first token of 512 tokens
    assert point.tpot_s == pytest.approx(0.0065, rel=0.05)
