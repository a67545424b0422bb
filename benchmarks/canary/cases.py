"""What is played: the published spreads of boots in full, and arrangements that make it easier or harder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.canary.comparisons import Case
from benchmarks.canary.traffic import Arrangement
from outrider.core.revisions.analysis import Plan, Question

QUESTIONS: tuple[Question, ...] = ("Better", "NotWorse")
EFFECTS = (0.05, 0.0, -0.05)
QUIET, WILD = 0.014, 0.139
"""Standard deviations over means of the throughput of 12 boots of one engine, without CUDA graphs and with (L4, vLLM
0.29, public "spec-fp8-study" notes)."""


@dataclass(frozen=True)
class Way:
    """An arrangement with its description."""

    words: str
    arrangement: Arrangement
    known_boots: int = 0
    max_boots: int = 4


PUBLISHED: Mapping[str, Way] = {
    "quiet": Way("boots differ by 1.4 %, as published without CUDA graphs", Arrangement(QUIET)),
    "wild": Way("boots differ by 13.9 %, as published with CUDA graphs", Arrangement(WILD)),
}
PLUGIN = Arrangement(QUIET, plugin=True)
OTHERS: Mapping[str, Way] = {
    "quiet, plugin": Way("the same as `quiet`, and the plugin tells decode-only steps", PLUGIN),
    "quiet, known": Way(
        "the same as `quiet, plugin`, and the spread of 12 earlier boots is known, so that one boot may do",
        PLUGIN,
        known_boots=12,
    ),
    "quiet, two kinds": Way(
        "a fifth of boots are slow, the others quick; 1.4 % over all", Arrangement(QUIET, boots="two kinds")
    ),
    "wild, two kinds": Way(
        "a fifth of boots are slow, the others quick; 13.9 % over all", Arrangement(WILD, boots="two kinds")
    ),
    "quiet, less load": Way(
        "the candidate gets three quarters of a stable pod's requests", Arrangement(QUIET, load_share=0.75)
    ),
    "modest, 8 boots": Way(
        "boots differ by 3 %; six stable pods, two candidates at a time, eight boots of it, and the plugin",
        Arrangement(0.03, stable=6, candidates=2, plugin=True),
        max_boots=8,
    ),
}
WAYS: Mapping[str, Way] = {**PUBLISHED, **OTHERS}


def cases(published: int, others: int) -> list[Case]:
    """Every way with either question and every true difference, so many comparisons of each; none of what gets 0."""
    return [
        Case(name, way.arrangement, Plan(question, max_boots=way.max_boots), effect, fleets, way.known_boots)
        for ways, fleets in ((PUBLISHED, published), (OTHERS, others))
        for name, way in ways.items()
        for question in QUESTIONS
        for effect in EFFECTS
        if fleets
    ]
