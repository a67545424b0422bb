"""Plays comparisons to their verdicts: fleets by the hundred, the analysis one by one."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

import numpy as np

from benchmarks.canary.traffic import WINDOW_S, WINDOWS, Arrangement, Fleets, Stage
from outrider.core.revisions.analysis import Judgement, Plan, Verdict, judge
from outrider.core.revisions.evidence import Answers, Boot, Evidence, Window
from outrider.core.revisions.intervals import Spread

RESTART_S = 180.0
"""From a look that leaves it open to the candidate's next window: one minute to end what runs, two to start."""
HEARD_TO = 0.014
"""Error of a boot's pace after ten minutes, as found here for boots that are alike."""
ONE_SIDED = 1.645
"""Standard errors at 5 % a side."""
CHUNK = 200
"""Fleets at a time, so that arrays stay small."""


@dataclass(frozen=True)
class Case:
    """One arrangement, question and true difference."""

    name: str
    arrangement: Arrangement
    plan: Plan
    effect: float
    """True relative difference of the candidate, from its drafts for `Better` and from its step times for
    `NotWorse`."""
    fleets: int
    known_boots: int = 0
    """Boots of the same service that were measured before."""
    seed: int = 10


@dataclass(frozen=True)
class Outcome:
    """How the comparisons of a case ended."""

    case: Case
    verdicts: tuple[Verdict, ...]
    minutes: tuple[float, ...]
    """Of all of them, those without a verdict included."""
    gains: tuple[float, ...]
    """As estimated at the end."""
    naive: tuple[float, ...]
    """The gain over its error from the scatter in time alone, after the first boot: what a comparison tells that takes
    boots for alike."""
    faults: tuple[str, ...]
    """The first sentence of each withdrawal that was not for speed."""

    def percent(self, *verdicts: Verdict) -> float:
        """Share of comparisons that ended so."""
        return 100.0 * fmean(one in verdicts for one in self.verdicts)

    @property
    def naive_percent(self) -> float:
        """Share of comparisons that one boot would have decided, either way, with an error of 5 % a side."""
        return 100.0 * fmean(abs(one) > ONE_SIDED for one in self.naive)

    @property
    def median_minutes(self) -> float | None:
        """Of those promoted or withdrawn."""
        told = [
            minutes
            for minutes, verdict in zip(self.minutes, self.verdicts, strict=True)
            if verdict in ("promote", "withdraw")
        ]
        return median(told) if told else None


@dataclass
class _Fleet:
    """One comparison so far."""

    plan: Plan
    stable: list[list[Window]]
    candidate: list[Boot] = field(default_factory=list)
    now_s: float = 0.0
    found: Judgement = field(default_factory=lambda: Judgement("wait", ()))
    naive: float = 0.0


def parts(case: Case) -> list[Case]:
    """The case in parts of at most `CHUNK` comparisons."""
    return [
        replace(case, fleets=min(CHUNK, case.fleets - first), seed=case.seed + index)
        for index, first in enumerate(range(0, case.fleets, CHUNK))
    ]


def joined(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The parts of each case together."""
    found: dict[tuple[str, str, float], list[Outcome]] = {}
    for one in outcomes:
        found.setdefault((one.case.name, one.case.plan.question, one.case.effect), []).append(one)
    return [
        Outcome(
            many[0].case,
            verdicts=tuple(value for one in many for value in one.verdicts),
            minutes=tuple(value for one in many for value in one.minutes),
            gains=tuple(value for one in many for value in one.gains),
            naive=tuple(value for one in many for value in one.naive),
            faults=tuple(value for one in many for value in one.faults),
        )
        for many in found.values()
    ]


def play(case: Case) -> Outcome:
    """All comparisons of a case, side by side."""
    every = _played(case)
    return Outcome(
        case=case,
        verdicts=tuple(one.found.verdict for one in every),
        minutes=tuple(one.now_s / 60.0 for one in every),
        gains=tuple(one.found.figures.gain for one in every if one.found.figures is not None),
        naive=tuple(one.naive for one in every),
        faults=tuple(one.found.reasons[0] for one in every if one.found.verdict == "withdraw" and _fault(one.found)),
    )


def _played(case: Case) -> list[_Fleet]:
    arrangement, count = case.arrangement, case.fleets
    draft = case.plan.question == "Better"
    seed = [case.seed, round(1e4 * (1.0 + case.effect)), int(draft), zlib.crc32(case.name.encode())]
    fleets = Fleets(arrangement, case.effect, draft=draft, fleets=count, seed=seed)
    known = _known(fleets, case.known_boots)
    every = [_Fleet(replace(case.plan, known=one), [[] for _ in range(arrangement.stable)]) for one in known]
    left = np.arange(count)
    while len(left):
        stage = fleets.stage(left)
        for row, at in enumerate(left):
            _listen(every[at], arrangement.stable, stage, row)
        left = np.array([at for at in left if every[at].found.verdict == "wait"], dtype=np.intp)
    return every


def _known(fleets: Fleets, boots: int) -> list[Spread | None]:
    """The spread of earlier boots of each fleet's service, each heard for ten minutes."""
    if not boots:
        return [None] * len(fleets.level)
    paces = np.log(fleets.paces(boots)) + HEARD_TO * fleets.rng.standard_normal((len(fleets.level), boots))
    return [Spread(float(one), boots - 1.0) for one in ((paces - paces.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)]


def _listen(fleet: _Fleet, stable: int, stage: Stage, row: int) -> None:
    """One more boot of the candidates: the comparison is asked when the last of them has been heard, or at the end."""
    for pod in range(stage.tokens.shape[1]):
        windows = _windows(stage, row, pod, fleet.now_s)
        if pod < stable:
            fleet.stable[pod] += windows
        else:
            fleet.candidate.append(Boot(f"candidate-{len(fleet.candidate)}", tuple(windows)))
    known = tuple(Boot(f"stable-{at}", tuple(windows)) for at, windows in enumerate(fleet.stable))
    end_s = fleet.now_s + WINDOWS * WINDOW_S
    fleet.found = judge(fleet.plan, Evidence(0.0, known, tuple(fleet.candidate)), end_s)
    figures = fleet.found.figures
    if figures is not None and not fleet.naive and figures.noise > 0.0:
        fleet.naive = math.log1p(figures.gain) / figures.noise
    # Nothing after the last window that was heard counts: the verdict would have come then.
    heard = figures is not None and (fleet.found.restart or fleet.found.verdict != "wait")
    fleet.now_s = figures.until_s if figures is not None and heard else end_s
    if fleet.found.verdict == "wait":
        fleet.candidate = [replace(boot, ended=True) for boot in fleet.candidate]
        fleet.now_s += RESTART_S


def _windows(stage: Stage, row: int, pod: int, began_s: float) -> list[Window]:
    told = (one[row, pod].tolist() for one in (stage.batch, stage.rate_tps, stage.tokens, stage.length))
    windows = [
        Window(began_s + (index + 1) * WINDOW_S, *values) for index, values in enumerate(zip(*told, strict=True))
    ]
    # The analysis adds answers up over a boot; they all stand in the last window, which is quicker.
    kinds = (stage.ended, stage.errors, stage.empty, stage.cut, stage.tokens, stage.within)
    ended, errors, empty, cut, tokens, within = (float(one[row, pod].sum()) for one in kinds)
    ended_so = Answers(ended, errors, empty, cut, 0.0, tokens, within, ended)
    windows[-1] = replace(windows[-1], answers=ended_so)
    return windows


def _fault(found: Judgement) -> bool:
    """Whether a withdrawal was for a fault and not for speed."""
    return not found.reasons[0].startswith("token goodput")
