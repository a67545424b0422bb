"""Multiple-choice questions to a simulated engine."""

from __future__ import annotations

import pytest

from outrider.simulator.choices import chosen

KEY = "The spare key is under the blue pot.\nWhere is the key?\nA. in a drawer\nB. under the blue pot\nAnswer:"
BEFORE = "Snow fell.\nWhat fell?\nA. Snow\nB. Rain\nAnswer: A\n\n"


@pytest.mark.parametrize(
    ("prompt", "letter"),
    [
        pytest.param(KEY, "B", id="the option that the text has"),
        pytest.param(BEFORE + KEY, "B", id="with an example before it"),
        pytest.param(KEY.replace(". ", ") ") + "\n", "B", id="other brackets"),
        pytest.param("Where is the key?\nA. in a drawer\nB. on a shelf\nAnswer:", "A", id="nothing to read"),
        pytest.param("Where is the key?\nAnswer:", "", id="no options"),
        pytest.param(KEY.removesuffix("Answer:"), "", id="no question of that form"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_the_option_is_read_off_the_text(prompt: str, letter: str) -> None:
    assert chosen(prompt) == letter


def test_a_careless_engine_has_the_same_share_of_questions_wrong_each_time() -> None:
    prompts = [f"Question {number}. {KEY}" for number in range(400)]
    first, second = ([chosen(prompt, 0.25) for prompt in prompts] for _ in range(2))
    assert first == second
    assert 0.15 < first.count("A") / len(first) < 0.35
