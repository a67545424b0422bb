"""The few numbers of the GPU benchmark; one that the rows do not hold is None, with a sentence that says why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.figures import Target
from benchmarks.gpu.compare import Compared, ranking, worst
from benchmarks.gpu.rows import Results, Row
from benchmarks.gpu.runs import SETTLE_S, TRACE

OUTRIDER, NONE = "outrider", "none"
FIXED = ("k1", "k3", "k5")
ROUNDS = 3
"""Repeats that a figure of worth needs."""
TARGETS = {
    "share_of_best_arm_min": Target(0.98, True),
    "gain_vs_best_fixed_mixed_percent": Target(0.0, True),
    "worst_vs_no_drafter_percent": Target(5.0, False),
    "simulator_throughput_error_percent": Target(5.0, False),
    "simulator_tpot_error_percent": Target(10.0, False),
    "crashes": Target(0.0, False),
}
DEFINITIONS = {
    "share_of_best_arm_min": "Tokens a second of Outrider over those of the best arm at the same level (no drafter,"
    " K 1, 3, 5), mean over rounds; the smallest over levels.",
    "gain_vs_best_fixed_mixed_percent": "Tokens of Outrider over the measured part of the mixed trace against those of"
    " the best single K, less 1; mean over rounds.",
    "worst_vs_no_drafter_percent": "How much fewer tokens a second than an engine without a drafter, at the worst"
    " level; 0 if nowhere fewer.",
    "simulator_throughput_error_percent": "Tokens a second of the simulator against the GPU: the largest error of any"
    " arm and level, mean over the simulator's seeds.",
    "simulator_tpot_error_percent": "The same of mean TPOT.",
    "ranking_agrees": "Whether the simulator has the same arm ahead at every level and for every two arms that lie more"
    " than 5 % apart on the GPU.",
    "crashes": "Passes over the trace with a stall of a second or more or with a request without a whole answer.",
}


@dataclass(frozen=True, slots=True)
class Found:
    """A figure, or the reason why there is none; the place where it is worst."""

    value: float | bool | None
    why: str = ""
    where: str = ""


def headline(boots: Sequence[Results], compared: Sequence[Compared]) -> dict[str, Found]:
    """All of them, of boots on one card.

    Raises:
        ValueError: the boots are of several cards.
    """
    if len({boot.card for boot in boots}) > 1:
        raise ValueError("rows of different cards cannot be put together; give the boots of one card")
    tokens, tpot, pairs = worst(compared, "tokens_per_second"), worst(compared, "tpot_mean_ms"), ranking(compared)
    off = [one for one in pairs if not one.agrees]
    return {
        **_worth(boots),
        "simulator_throughput_error_percent": Found(100.0 * abs(tokens.error("tokens_per_second")), where=_at(tokens)),
        "simulator_tpot_error_percent": Found(100.0 * abs(tpot.error("tpot_mean_ms")), where=_at(tpot)),
        "ranking_agrees": Found(not off if pairs else None, "" if pairs else "no two arms lie apart"),
        "crashes": Found(sum(map(crashed, (row for boot in boots for row in boot.traces)))),
    }


def crashed(trace: Row) -> bool:
    """Whether a pass went wrong; an engine that no longer tells of its stalls counts."""
    return bool(trace["num_failed"] or not trace["stalls"] or trace["stalls"]["count"])


def rounds(boots: Sequence[Results], arm: str) -> int:
    """Whole passes of an arm."""
    return sum(row["arm"] == arm for boot in boots for row in boot.traces)


def _worth(boots: Sequence[Results]) -> dict[str, Found]:
    needed = {
        "share_of_best_arm_min": (OUTRIDER, NONE, *FIXED),
        "gain_vs_best_fixed_mixed_percent": (OUTRIDER, *FIXED),
        "worst_vs_no_drafter_percent": (OUTRIDER, NONE),
    }
    rates, found = _rates(boots), {}
    for key, arms in needed.items():
        if any(rounds(boots, arm) < ROUNDS for arm in arms):
            have = ", ".join(f"{arm} {rounds(boots, arm)}" for arm in arms)
            found[key] = Found(None, f"Not measured: it needs {ROUNDS} whole passes of each arm; there are: {have}.")
        else:
            found[key] = _of(key, rates)
    return found


def _of(key: str, rates: dict[str, dict[int, float]]) -> Found:
    mine = rates[OUTRIDER]
    if key == "gain_vs_best_fixed_mixed_percent":
        tokens = {arm: sum(rates[arm][level] * (seconds - SETTLE_S) for level, seconds in TRACE) for arm in rates}
        best = max(FIXED, key=lambda arm: tokens[arm])
        return Found(100.0 * (tokens[OUTRIDER] / tokens[best] - 1.0), where=f"against {best}")
    if key == "worst_vs_no_drafter_percent":
        level = min(mine, key=lambda level: mine[level] / rates[NONE][level])
        return Found(max(0.0, 100.0 * (1.0 - mine[level] / rates[NONE][level])), where=f"level {level}")
    best_of = {level: max(rates[arm][level] for arm in (OUTRIDER, NONE, *FIXED)) for level in mine}
    level = min(mine, key=lambda level: mine[level] / best_of[level])
    return Found(mine[level] / best_of[level], where=f"level {level}")


def headroom(boots: Sequence[Results]) -> float:
    """Tokens over the measured part of the trace with the best of the single K at each level, against those of the best
    single K, less 1: what a perfect table of these K would gain."""
    rates = _rates(boots)
    seconds = {level: seconds - SETTLE_S for level, seconds in TRACE}
    table = sum(max(rates[arm][level] for arm in FIXED) * part for level, part in seconds.items())
    return table / max(sum(rates[arm][level] * part for level, part in seconds.items()) for arm in FIXED) - 1.0


def by_level(boots: Sequence[Results]) -> dict[tuple[int, str], list[float]]:
    """Tokens a second of each round, by level and arm in the order of the measurement."""
    many: dict[tuple[int, str], list[float]] = {}
    for row in (row for boot in boots for row in boot.levels):
        many.setdefault((row["level"], row["arm"]), []).append(row["tokens_per_second"])
    return many


def _rates(boots: Sequence[Results]) -> dict[str, dict[int, float]]:
    """Tokens a second by arm and level, mean over rounds."""
    rates: dict[str, dict[int, float]] = {}
    for (level, arm), values in by_level(boots).items():
        rates.setdefault(arm, {})[level] = fmean(values)
    return rates


def _at(one: Compared) -> str:
    return f"{one.arm}, level {one.level}"
