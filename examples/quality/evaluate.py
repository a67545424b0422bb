"""Asks a candidate and a stable engine the same multiple-choice questions, and tells how many each has right.

Runs in the Job that Outrider makes of spec.rollout.quality (examples/11-quality-before-traffic.yaml), in any image with
Python 3, or by hand:

    OUTRIDER_CANDIDATE_URL=http://127.0.0.1:8000 OUTRIDER_STABLE_URL=http://127.0.0.1:8001 OUTRIDER_MODEL=chat \\
      OUTRIDER_RESULT=/dev/stdout python examples/quality/evaluate.py

Questions have MMLU's form, and one token is decoded greedily; the first letter counts. Both engines get the same ones,
so that what a question is worth matters little. The more questions, the smaller the loss that shows: one of 20 is 5 %.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

QUESTIONS = Path(__file__).with_name("questions.jsonl")
LETTERS = "ABCD"
TIMEOUT_S = 60.0


def prompt(question: dict[str, Any]) -> str:
    """A question as the engine gets it."""
    options = "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, question["options"], strict=True))
    return f"{question['text']}\n{question['question']}\n{options}\nAnswer:"


def answer(url: str, model: str, text: str) -> str:
    """The letter that an engine says; empty if it says none.

    Raises:
        OSError: it does not answer. The Job then fails, which says nothing about the candidate's answers.
    """
    body = {"model": model, "prompt": text, "max_tokens": 1, "temperature": 0}
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        said: str = json.load(response)["choices"][0]["text"]
    return said.strip()[:1].upper()


def score(url: str, model: str, questions: list[dict[str, Any]]) -> float:
    """Share of the questions that an engine answers right, 0 to 1."""
    right = sum(answer(url, model, prompt(one)) == one["answer"] for one in questions)
    return right / len(questions)


def main() -> None:
    """Ask both, and leave the result where Outrider reads it."""
    model = os.environ["OUTRIDER_MODEL"]
    questions = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    result = {
        "score": score(os.environ["OUTRIDER_CANDIDATE_URL"], model, questions),
        "baseline": score(os.environ["OUTRIDER_STABLE_URL"], model, questions),
        "questions": len(questions),
    }
    sys.stdout.write(f"{result}\n")
    Path(os.environ["OUTRIDER_RESULT"]).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
