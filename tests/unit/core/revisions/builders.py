"""Short ways to say what the engines of a comparison told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from outrider.core.revisions.analysis import Judgement, Plan, Question, judge
from outrider.core.revisions.evidence import NOTHING, Answers, Boot, Evidence, Window
from outrider.core.revisions.matching import QUOTA

WINDOW_S = 15.0
RATE_TPS = 250.0
ALIKE = (-0.004, 0.0, 0.004)
"""Paces of three stable boots, relative."""
SANE = Answers(1000.0, 1.0, 2.0, 80.0, 0.0, 300_000.0, 950.0, 1000.0, 990.0, 1000.0)
"""What one boot's requests came to, when all is well."""


def boot(
    name: str,
    pace: float = 0.0,
    *,
    first: int = 0,
    count: int = QUOTA,
    batch: float = 20.0,
    answers: Answers = NOTHING,
    ended: bool = False,
) -> Boot:
    """A boot that is so much faster than usual, in windows numbered from ``first``; its windows waver by a half
    percent, and its answers stand in the first one."""
    windows = [
        Window((at + 1) * WINDOW_S, batch, RATE_TPS * (1.0 + pace) * (1.0 + 0.005 * (-1) ** at), 50_000.0)
        for at in range(first, first + count)
    ]
    if windows:
        windows[0] = replace(windows[0], answers=answers)
    return Boot(name, tuple(windows), ended)


def evidence(
    *candidate: float,
    stable: Sequence[float] = ALIKE,
    answers: Answers = SANE,
    own: Answers = SANE,
    crashes: int = 0,
) -> Evidence:
    """Boots of the candidate with these paces, one after the other, each heard in full, beside stable ones."""
    last = len(candidate) - 1
    return Evidence(
        0.0,
        tuple(
            boot(f"stable-{at}", pace, count=QUOTA * max(1, len(candidate)), answers=answers)
            for at, pace in enumerate(stable)
        ),
        tuple(
            boot(f"candidate-{at}", pace, first=at * QUOTA, answers=own, ended=at < last)
            for at, pace in enumerate(candidate)
        ),
        crashes,
    )


def verdict(question: Question, *candidate: float, stable: Sequence[float] = ALIKE) -> Judgement:
    """Of such evidence, without a word on time."""
    return judge(Plan(question), evidence(*candidate, stable=stable), 0.0)
