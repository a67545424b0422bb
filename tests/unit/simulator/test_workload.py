"""Arrivals from traces and from rates."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.simulator.request import extended
from outrider.simulator.workload import (
    KINDS,
    Mix,
    Phase,
    constant_rate,
    conversation_trace,
    fitted,
    geometric,
    poisson,
    pooled,
    read_trace,
    replay,
    with_mix,
    with_phases,
)
from tests.unit.simulator.builders import engine, request, submit_all


def test_the_trace_in_the_package_is_the_published_one() -> None:
    trace = read_trace(conversation_trace())
    assert len(trace) == 19_366
    assert trace[0].time_s == 0.0
    assert trace[-1].time_s / 60 == pytest.approx(58, abs=1)
    assert sum(one.prompt_tokens for one in trace) / len(trace) == pytest.approx(1155, abs=1)
    assert sum(one.output_tokens for one in trace) / len(trace) == pytest.approx(211, abs=1)


def test_a_replay_takes_a_part_and_makes_it_denser() -> None:
    trace = read_trace(conversation_trace())
    plain = list(replay(trace, duration_s=600, offset_s=300))
    dense = list(replay(trace, duration_s=300, offset_s=300, rate_factor=2))
    assert [one.prompt_tokens for one in plain] == [one.prompt_tokens for one in dense]
    assert [one.arrival_s / 2 for one in plain] == pytest.approx([one.arrival_s for one in dense])
    assert all(0 <= one.arrival_s < 300 for one in dense)


def test_a_mooncake_trace_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "mooncake.csv"
    file.write_text(
        "timestamp_ms,input_length,output_length,prefix_blocks,prefix_blocks_seen\n500,10,3,1,0\n1500,20,4,1,0"
    )
    assert [(one.time_s, one.prompt_tokens, one.output_tokens) for one in read_trace(file)] == [(0, 10, 3), (1, 20, 4)]


def test_another_file_is_refused_by_its_columns(tmp_path: Path) -> None:
    file = tmp_path / "other.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="neither an Azure 2023 nor a Mooncake trace"):
        read_trace(file)


def test_rates_are_kept() -> None:
    assert len(list(poisson(10, 500, prompt_tokens=1, output_tokens=1))) == pytest.approx(5000, rel=0.05)
    assert [one.arrival_s for one in constant_rate(4, 1, prompt_tokens=1, output_tokens=1)] == [0, 0.25, 0.5, 0.75]


def test_acceptance_changes_with_the_phase_that_a_request_arrives_in() -> None:
    high, low = geometric(0.9, 3), geometric(0.3, 3)
    arrivals = [request(at=at) for at in (0, 9, 10, 25)]
    phases = [Phase(5, high), Phase(10, low)]
    assert [one.acceptance for one in with_phases(arrivals, phases)] == [None, high, low, low]


def test_what_would_not_fit_the_model_is_shortened() -> None:
    sizes = [(900, 100), (900, 300), (10, 2000)]
    short = fitted((request(prompt=prompt, output=output) for prompt, output in sizes), 1000)
    assert [(one.prompt_tokens, one.output_tokens) for one in short] == [(900, 100), (700, 300), (1, 999)]


@pytest.mark.parametrize(
    ("curve", "length", "expected"),
    [
        pytest.param([0.8, 0.4], 4, [0.8, 0.4, 0.2, 0.1], id="the last ratio goes on"),
        pytest.param([0.5], 3, [0.5, 0.25, 0.125], id="one value is a ratio"),
        pytest.param([0.9, 0.8, 0.7], 2, [0.9, 0.8], id="a longer curve is cut"),
        pytest.param([0.9, 0.0], 3, [0.9, 0.0, 0.0], id="nothing stays nothing"),
        pytest.param([0.9], 0, [], id="without a drafter there are no positions"),
    ],
)
def test_a_curve_is_brought_to_the_engines_length(curve: list[float], length: int, expected: list[float]) -> None:
    assert extended(curve, length) == pytest.approx(expected)


def test_kinds_come_in_their_shares_and_shift_with_the_mix() -> None:
    arrivals = [request(n, at=n / 100) for n in range(6000)]
    mixes = [Mix(10, {"chat": 3, "code": 1}), Mix(30, {"summarise": 1})]
    found = list(with_mix(arrivals, mixes, seed=1))
    assert found == list(with_mix(arrivals, mixes, seed=1))
    assert found != list(with_mix(arrivals, mixes, seed=2))
    early, mixed, late = found[:1000], found[1000:3000], found[3000:]
    assert {one.acceptance for one in early} == {None}
    assert sum(one.acceptance == KINDS["chat"] for one in mixed) / 2000 == pytest.approx(0.75, abs=0.03)
    assert {one.acceptance for one in mixed} == {KINDS["chat"], KINDS["code"]}
    assert {one.acceptance for one in late} == {KINDS["summarise"]}


@pytest.mark.parametrize(("kind", "length"), [("chat", 3.5), ("code", 4.2), ("summarise", 3.1)])
def test_kinds_have_the_published_acceptance_lengths(kind: str, length: float) -> None:
    assert 1 + sum(KINDS[kind][:5]) == pytest.approx(length, abs=0.05)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_the_pooled_curve_of_a_mix_takes_as_many_steps_as_the_mix(k: int) -> None:
    shares = {"chat": 0.5, "code": 0.3, "summarise": 0.2}
    target = engine(k, max_num_seqs=8)
    arrivals = (request(n, output=400) for n in range(300))
    submit_all(target, with_mix(arrivals, [Mix(0, shares)], seed=4))
    target.advance(10_000)
    counters = target.counters
    measured = 1 + counters.num_accepted_tokens / counters.num_drafts
    curve = pooled(shares, 6)
    assert 1 + sum(curve[:k]) == pytest.approx(measured, rel=0.015)
    assert list(curve) == sorted(curve, reverse=True)
