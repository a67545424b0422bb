"""The traces of the package: what was published, and draws that keep rates, burstiness and lengths."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from outrider.simulator.trace_names import TRACES
from outrider.simulator.traces import RateTrace, RateWindow, RecordedTrace, read_rates, trace


@pytest.mark.parametrize(
    ("name", "requests", "minutes", "prompt", "output"),
    [
        ("azure-conversation", 19_366, 58, 1155, 211),
        ("azure-code", 8_819, 57, 2048, 28),
        ("mooncake-conversation", 12_031, 59, 12_035, 343),
    ],
)
def test_recorded_traces_are_the_published_ones(
    name: str, requests: int, minutes: float, prompt: float, output: float
) -> None:
    found = trace(name)
    assert isinstance(found, RecordedTrace)
    assert len(found.arrivals) == requests
    assert found.duration_s / 60 == pytest.approx(minutes, abs=1)
    assert fmean(one.prompt_tokens for one in found.arrivals) == pytest.approx(prompt, abs=1)
    assert fmean(one.output_tokens for one in found.arrivals) == pytest.approx(output, abs=1)


@pytest.mark.parametrize("name", TRACES)
def test_every_trace_gives_requests_in_the_order_of_arrival_and_the_same_ones_again(name: str) -> None:
    factor = 0.01 if name.startswith("servegen") else 1.0
    first, second = (list(trace(name).requests(600, rate_factor=factor, offset_s=900, seed=3)) for _ in range(2))
    assert first == second
    times = [one.arrival_s for one in first]
    assert times == sorted(times)
    assert all(0 <= time_s < 600 for time_s in times)
    assert all(one.prompt_tokens >= 1 and one.output_tokens >= 1 for one in first)
    assert len({one.id for one in first}) == len(first) > 50


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="no trace 'azure'; there are azure-conversation, azure-code"):
        trace("azure")


@pytest.mark.parametrize("cv", [0.5, 1.0, 2.5])
def test_drawn_arrivals_have_the_rate_and_the_variation_of_their_window(cv: float) -> None:
    rates = RateTrace([RateWindow(start_s, 4.0, cv, 300.0, 80.0) for start_s in (0.0, 5000.0)])
    found = list(rates.requests(10_000, rate_factor=0.5, seed=1))
    gaps = [after.arrival_s - before.arrival_s for before, after in pairwise(found)]
    assert len(found) / 10_000 == pytest.approx(2.0, rel=0.06)
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(cv, rel=0.1)
    assert fmean(one.prompt_tokens for one in found) == pytest.approx(300, rel=0.03)
    assert fmean(one.output_tokens for one in found) == pytest.approx(80, rel=0.03)


def test_rates_change_with_the_window_and_nothing_comes_in_an_empty_one() -> None:
    windows = [RateWindow(600.0 * n, rate, 1.0, 10.0, 10.0) for n, rate in enumerate((1.0, 0.0, 8.0))]
    found = list(RateTrace(windows).requests(3600, seed=2))
    counts = [sum(600 * n <= one.arrival_s < 600 * (n + 1) for one in found) for n in range(4)]
    assert counts == pytest.approx([600, 0, 4800, 0], rel=0.1)
    shifted = list(RateTrace(windows).requests(600, offset_s=1200, seed=2))
    assert len(shifted) == pytest.approx(4800, rel=0.1)


def test_what_a_window_does_not_tell_is_the_mean_of_the_others(tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text(
        "window_start_s,rate_rps,cv_weighted,active_clients,mean_input_tokens,mean_output_tokens,length_coverage\n"
        "0,3,1,1,100,10,1\n600,1,500,1,200,50,1\n1200,1,0,1,0,0,0\n"
    )
    first, bursty, unknown = read_rates(file).windows
    assert (first.mean_prompt_tokens, bursty.cv) == (100, 10)
    assert (unknown.mean_prompt_tokens, unknown.mean_output_tokens) == (125, 20)
