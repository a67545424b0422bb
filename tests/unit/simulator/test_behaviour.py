"""What the names of a draft and an image make of a simulated engine."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from outrider.simulator.behaviour import NORMAL, Behaviour, named
from outrider.simulator.command_line import parse
from outrider.simulator.engine import SimulatedEngine
from outrider.simulator.workload import closed_loop

from .builders import profile, request, settings


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(["acme/eagle3-llama"], NORMAL, id="an ordinary draft"),
        pytest.param(["meta-llama/Llama-3.1-8B-Instruct", "registry.example/vllm:0.33.0"], NORMAL, id="ordinary names"),
        pytest.param(["acme/draft-better-15"], Behaviour(tokens_a_step=0.15), id="a better draft"),
        pytest.param(["acme/draft_worse-5"], Behaviour(tokens_a_step=-0.05), id="a worse draft"),
        pytest.param(["", "r.example/engine:slower-20"], Behaviour(pace=-0.2), id="a slower image"),
        pytest.param(["r/e:faster-8-empty-2"], Behaviour(pace=0.08, empty=0.02), id="two words"),
        pytest.param(["r/e:error-1", "cut-5,repeat-3"], Behaviour(error=0.01, cut=0.05, repeat=0.03), id="shares"),
        pytest.param(["r/e:careless-40"], Behaviour(careless=0.4), id="wrong answers"),
        pytest.param(["r/e:crash-at-start"], Behaviour(crash_at_start=True), id="a start that fails"),
        pytest.param(["r/e:crash-after-50-requests"], Behaviour(crash_after_requests=50), id="one that fails later"),
        pytest.param(["r/e:terror-5", "r/e:slower-5b"], NORMAL, id="other words"),
    ],
)
def test_names_say_what_is_to_happen(names: list[str], expected: Behaviour) -> None:
    assert named(*names) == expected


def rate(does: Behaviour) -> tuple[float, float]:
    """Tokens a step and tokens a second of 16 long requests at K = 3."""
    engine = SimulatedEngine(settings(3, ceiling=3), does.profile(profile(), 3), seed=3)
    for one in closed_loop(16, prompt_tokens=64, output_tokens=20_000):
        engine.submit(replace(one, finish_reason="length"), 0.0)
    engine.advance(5.0)  # contexts stay short: those of a better draft grow faster, and cost time
    counters = engine.counters
    return 1.0 + counters.num_accepted_tokens / counters.num_drafts, counters.generation_tokens / 5.0


@pytest.mark.parametrize(("percent", "word"), [(15, "better"), (-15, "worse")])
def test_a_draft_changes_tokens_a_step_and_with_them_tokens_a_second(percent: int, word: str) -> None:
    (length, rate_tps), (usual, usual_tps) = rate(named(f"draft-{word}-{abs(percent)}")), rate(NORMAL)
    assert length / usual == pytest.approx(1.0 + percent / 100.0, abs=0.01)
    assert rate_tps / usual_tps == pytest.approx(1.0 + percent / 100.0, abs=0.025)


def test_an_image_changes_the_pace_alone() -> None:
    (length, rate_tps), (usual, usual_tps) = rate(named("engine:slower-15")), rate(NORMAL)
    assert length == pytest.approx(usual, abs=0.01)
    assert rate_tps / usual_tps == pytest.approx(0.85, abs=0.02)
    assert named("engine:slower-15").profile(profile(), 3).dilation == profile().dilation


def test_requests_that_bring_their_own_acceptance_are_drafted_worse_too() -> None:
    does = named("draft-worse-15")
    one = does.request(request(acceptance=(0.8, 0.6, 0.4)), 3, Random(1))
    assert one.acceptance is not None
    assert 1.0 + sum(one.acceptance) == pytest.approx(0.85 * 2.8)


def test_shares_of_answers_end_as_they_are_told_to() -> None:
    does, rng = Behaviour(error=0.1, empty=0.1, cut=0.1, repeat=0.1), Random(1)
    ends = [does.request(replace(request(output=100), finish_reason="stop"), 3, rng) for _ in range(2000)]
    shares = {
        key: sum((one.finish_reason, one.output_tokens) == key for one in ends) / 2000
        for key in {(one.finish_reason, one.output_tokens) for one in ends}
    }
    assert shares == {
        ("error", 1): pytest.approx(0.1, abs=0.02),
        ("stop", 1): pytest.approx(0.1, abs=0.02),
        ("length", 100): pytest.approx(0.1, abs=0.02),
        ("repetition", 100): pytest.approx(0.1, abs=0.02),
        ("stop", 100): pytest.approx(0.6, abs=0.03),
    }


def test_the_draft_is_read_from_the_command_line() -> None:
    document = '{"method": "eagle3", "model": "acme/draft-better-15", "num_speculative_tokens": 3}'
    found = parse(["--speculative-config", document], {}).speculation
    assert found is not None
    assert found.draft == "acme/draft-better-15"
