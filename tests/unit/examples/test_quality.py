"""The evaluation of the example: its questions, and its script against simulated engines over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from outrider.core.revisions.quality import judge
from outrider.simulator.behaviour import named
from outrider.simulator.live import LiveEngine
from outrider.simulator.server import EngineServer
from tests.unit.api.bodies import ROOT
from tests.unit.simulator.builders import free_port, profile, settings

FOLDER = ROOT / "examples" / "quality"
QUESTIONS = [json.loads(line) for line in (FOLDER / "questions.jsonl").read_text(encoding="utf-8").splitlines()]


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one["question"])
def test_a_question_has_four_options_and_its_text_has_the_right_one(question: dict[str, Any]) -> None:
    options = dict(zip("ABCD", question["options"], strict=True))
    right = options.pop(question["answer"])
    assert words(right) <= words(question["text"])
    assert not any(words(other) <= words(question["text"]) for other in options.values())


def test_no_letter_is_right_more_often_than_another() -> None:
    answers = [one["answer"] for one in QUESTIONS]
    assert {answers.count(letter) for letter in "ABCD"} == {len(answers) / 4}


async def evaluated(tmp_path: Path, candidate: str, stable: str = "") -> tuple[int, str, str]:
    """Exit status of the script, its result and its last words, with two engines that do what these names say."""
    result, urls = tmp_path / "result", []
    async with AsyncExitStack() as closing:
        for name in (candidate, stable):
            live = LiveEngine(
                settings(3, port=free_port(), plugin=None, max_model_len=4096),
                profile(),
                seed=1,
                files={},
                behaviour=named(name),
            )
            server = EngineServer(live)
            closing.push_async_callback(server.close)
            await server.start("127.0.0.1")
            urls.append(f"http://127.0.0.1:{live.settings.port}")
        environment = {
            "OUTRIDER_CANDIDATE_URL": urls[0],
            "OUTRIDER_STABLE_URL": urls[1],
            "OUTRIDER_MODEL": "chat",
            "OUTRIDER_RESULT": str(result),
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(FOLDER / "evaluate.py")), env=environment, stderr=asyncio.subprocess.PIPE
        )
        _, said = await process.communicate()
    return process.returncode or 0, result.read_text() if result.exists() else "", said.decode()


async def test_an_engine_that_answers_alike_passes(tmp_path: Path) -> None:
    status, result, said = await evaluated(tmp_path, "engine:faster-15")
    assert status == 0, said
    assert json.loads(result) == {"score": 1.0, "baseline": 1.0, "questions": len(QUESTIONS)}
    assert judge(result, 0.02).verdict == "passed"


async def test_an_engine_that_answers_worse_does_not(tmp_path: Path) -> None:
    status, result, said = await evaluated(tmp_path, "engine:careless-50")
    assert status == 0, said
    assert judge(result, 0.02).verdict == "worse"


async def test_an_engine_that_fails_gives_no_result(tmp_path: Path) -> None:
    status, result, said = await evaluated(tmp_path, "engine:error-100")
    assert (status, result) == (1, "")
    assert "HTTP Error 500" in said
