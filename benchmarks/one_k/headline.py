"""The few numbers of the benchmark, each by its definition; `DEFINITIONS` says them in words for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.figures import Figure, Target
from benchmarks.one_k.day import ROLLED, Played, given

TARGETS: Mapping[str, Target] = {
    "gain_over_given_k_percent": Target(0.0, True),
    "restarts_a_day": Target(4.0, False),
}
DEFINITIONS: Mapping[str, str] = {
    "gain_over_given_k_percent": "Tokens for each second of a GPU by roll-out, over those with the K that the resource"
    " gives: its `maxSpeculativeTokens`, which such engines are started with. The restarts' cost is in it.",
    "gain_over_best_in_hindsight_percent": "The same over the best of all static K of that day, which nobody knows"
    " beforehand.",
    "gain_over_worst_percent": "The same over the worst of them.",
    "hourly_best_in_hindsight_percent": "What the best static K of each hour would give over the best of the day, if"
    " the future were known and restarts were free: the most that any roll-out could.",
    "restarts_a_day": "Roll-outs of another K; the bound is that of decision 0029.",
    "gpu_time_of_restarts_percent": "GPU time beyond that of an engine that is never replaced: old and new engine hold"
    " one each, from the start of the new one until the old one has ended what it had begun.",
}


def headline(found: Sequence[Played]) -> dict[str, Figure]:
    """All figures, medians over the seeds."""
    seeds = sorted({one.seed for one in found})
    ours = [_of(found, ROLLED, seed) for seed in seeds]
    static = [[one for one in found if one.seed == seed and one.name != ROLLED] for seed in seeds]
    best, worst = ([choose(of, key=lambda one: one.goodput_tps) for of in static] for choose in (max, min))
    asked = [_of(found, given(), seed) for seed in seeds]
    hourly = [sum(max(hour) for hour in zip(*(one.tokens for one in of), strict=True)) for of in static]
    return {
        "gain_over_given_k_percent": _gain(ours, asked),
        "gain_over_best_in_hindsight_percent": _gain(ours, best),
        "gain_over_worst_percent": _gain(ours, worst),
        "hourly_best_in_hindsight_percent": Figure.of(
            [_percent(tokens / one.gpu_s, one.goodput_tps) for tokens, one in zip(hourly, best, strict=True)]
        ),
        "restarts_a_day": Figure.of([float(len(one.rolls)) for one in ours]),
        "gpu_time_of_restarts_percent": Figure.of(
            [_percent(one.gpu_s, other.gpu_s) for one, other in zip(ours, best, strict=True)]
        ),
    }


def _of(found: Sequence[Played], name: str, seed: int) -> Played:
    return next(one for one in found if (one.name, one.seed) == (name, seed))


def _gain(ours: Sequence[Played], others: Sequence[Played]) -> Figure:
    return Figure.of([_percent(one.goodput_tps, other.goodput_tps) for one, other in zip(ours, others, strict=True)])


def _percent(one: float, other: float) -> float:
    return 100.0 * (one / other - 1.0)
