"""The verdict on a candidate: promote, withdraw, wait, or end without one.

Two questions. `Better` is asked of a draft or a K: it is promoted when its gain is surely above nothing. `NotWorse` is
asked of an image, a setting or a quantisation: it is promoted when its loss is surely below a stated margin. So an
equal image is promoted, and an equal draft is not.

The figures are looked at once a boot, when it has been heard for `matching.QUOTA` like windows, and never between: the
looks are few, and the error levels of `LEVELS` are shared out over them (a group-sequential test with Pocock's equal
levels). After a look that leaves it open the candidate is started anew, since boots differ and more time on the same
one tells little. Faults (`outrider.core.revisions.health`) end it at any time.

Stateless: the same evidence gives the same verdict, so a restart of the operator forgets nothing that the evidence
keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log1p, sqrt
from typing import Literal

from outrider.core.revisions.evidence import Answers, Boot, Evidence, acceptance, answers, total
from outrider.core.revisions.health import OBJECTIVES, faults
from outrider.core.revisions.intervals import Gain, Spread, gain, quantile
from outrider.core.revisions.matching import QUOTA, Heard, Matched, matched, slope
from outrider.core.survival import Counts
from outrider.core.words import count

Question = Literal["Better", "NotWorse"]
Verdict = Literal["promote", "withdraw", "wait", "inconclusive"]

LEVELS = (0.0400, 0.0240, 0.0182, 0.0152, 0.0132, 0.0119, 0.0109, 0.0101)
"""One-sided error of each look, by the number of looks that are planned: together 4 % for a wrong promotion, and 4 %
for a wrong withdrawal, which leaves a fifth of the 5 % allowed for paces that are not quite normal and for faults.
Pocock's equal levels (Biometrika 64, 1977), for equal steps of information. Our looks share the stable boots, so they
go together more closely, and the error is below that."""
USEFUL = 0.02
"""Of a draft or K: a gain that is surely below this is not worth a roll-out, so the candidate goes."""
MARGIN = 0.05
"""Of an image, setting or quantisation: a loss of token goodput that is still not worse. With fewer than a dozen boots
nothing smaller can be told. Whoever must lose less states less, and hears longer or gets no verdict."""
LEAST_BOOTS = 2
"""Boots of the candidate before the first look: the scatter of boots is then measured on its side too, and one odd boot
decides nothing."""
KNOWN_DOF = 6.0
"""Degrees of freedom of what is known of earlier boots from which on a single boot is looked at."""
MAX_BOOTS = 4
"""Of the candidate. With three stable boots a fifth would narrow the bounds by 4 %."""
MAX_TIME_S = 2 * 3600.0
"""Since the candidate first took traffic. Four boots of ten minutes and their starts take an hour at steady traffic;
whoever has not had as many like windows in two will not have them soon."""
ATTAINMENT_MARGIN = 0.05
"""Share of requests within an objective that may be lost and the candidate still be promoted."""
HOPELESS = 3.0
"""Standard deviations of what further boots may move; no verdict within them means that none will come."""
DIFFERENCE = 0.05
"""The true difference that a comparison should tell; ``boots_needed`` is said for it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked, and how long at most."""

    question: Question
    margin: float = MARGIN
    """Loss that is still not worse, 0 to 1; of `NotWorse` alone."""
    max_boots: int = MAX_BOOTS
    """Boots of the candidate, 2 to 8; 1 too where enough is known of earlier boots."""
    max_time_s: float = MAX_TIME_S
    known: Spread | None = None
    """How much boots of this service differed before."""

    def __post_init__(self) -> None:
        if not self.first_look <= self.max_boots <= len(LEVELS):
            raise ValueError(f"max_boots must be {self.first_look} to {len(LEVELS)}, not {self.max_boots}")

    @property
    def first_look(self) -> int:
        """Boots of the candidate at the first look."""
        return 1 if self.known is not None and self.known.dof >= KNOWN_DOF else LEAST_BOOTS

    @property
    def level(self) -> float:
        """One-sided error of each look."""
        return LEVELS[self.max_boots - self.first_look]

    @property
    def promote_above(self) -> float:
        """Logarithmic gain that the lower bound must exceed."""
        return 0.0 if self.question == "Better" else log1p(-self.margin)

    @property
    def withdraw_below(self) -> float:
        """Logarithmic gain that the upper bound must stay under."""
        return log1p(USEFUL) if self.question == "Better" else 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What a verdict rests on; gains are relative, 0.05 for 5 % more token goodput at like load."""

    gain: float
    low: float
    high: float
    """Bounds, each wrong with the error level of one look; -1 and infinity without enough boots."""
    boots: int
    stable_boots: float
    boot_spread: float
    """Relative standard deviation of one boot as measured, infinite where it is unknown."""
    noise: float
    """Standard error of the gain from the scatter in time alone."""
    boots_needed: int | None
    """Boots of the candidate that tell a true difference of `DIFFERENCE`; None if no number of them does."""
    until_s: float
    """End of the last window that counted."""
    here: Spread
    """Of the boots of this comparison, to be remembered for the next."""
    own_acceptance: Counts
    stable_acceptance: Counts


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, the sentences that led to it, and its figures."""

    verdict: Verdict
    reasons: tuple[str, ...]
    figures: Figures | None = None
    """None before the first window at like load."""
    restart: bool = False
    """The candidate should be started anew: its present boot has told what it can."""


def judge(plan: Plan, evidence: Evidence, now_s: float) -> Judgement:
    """Weigh all evidence so far."""
    found = matched(evidence)
    own, stable = answers(evidence.candidate), answers(evidence.stable)
    wrong = faults(evidence.crashes, own, stable, found)
    if wrong:
        return Judgement("withdraw", wrong, _figures(plan, evidence, _gain(plan, found, found.heard), found.heard))
    closed = tuple(one for one in found.heard if one.closed)[: plan.max_boots]
    open_ = [one for one in found.heard if not one.closed and not one.ended]
    measured = _gain(plan, found, closed)
    figures = _figures(plan, evidence, measured, closed)
    said: tuple[str, ...] = ()
    if measured is not None and len(closed) >= plan.first_look:
        seen = _look(plan, measured, figures, _lost_attainment(total(own), total(stable)))
        if seen.verdict != "wait":
            return seen
        said = seen.reasons
    said = (*said, *_progress(plan, closed, open_))
    if now_s - evidence.since_s >= plan.max_time_s:
        limit = f"{plan.max_time_s / 60.0:.0f} minutes have passed without a verdict"
        return Judgement("inconclusive", (*said, limit), figures)
    if _all_heard(evidence.candidate, closed):
        sentence = "the candidate is to be started anew: boots differ, and this one has told what it can"
        return Judgement("wait", (*said, sentence), figures, restart=True)
    return Judgement("wait", said, figures)


def _all_heard(boots: tuple[Boot, ...], closed: tuple[Heard, ...]) -> bool:
    """Whether candidate processes run, and none of them has more to tell."""
    running, known = {boot.name for boot in boots if not boot.ended}, {one.boot for one in closed}
    return bool(running) and running <= known


def _progress(plan: Plan, closed: tuple[Heard, ...], open_: list[Heard]) -> tuple[str, ...]:
    if open_:
        matches = len(open_[-1].columns)
        return (f"the candidate's boot {len(closed) + 1} was heard in {matches} of {QUOTA} windows at like load",)
    if not closed:
        return ("no window yet in which candidate and stable engines had like load",)
    if len(closed) < plan.first_look:
        return (f"{count(len(closed), 'boot')} of the candidate heard; the first look is at {plan.first_look}",)
    return ()


def _look(plan: Plan, found: Gain, figures: Figures | None, lost: str) -> Judgement:
    """The look after the last closed boot. Earlier looks left it open, or the comparison would have ended there."""
    half = found.half_width(plan.level)
    told = _told(found, half)
    promote, withdraw = found.value - half > plan.promote_above, found.value + half < plan.withdraw_below
    # Surely above nothing and surely below what is useful: a draft goes, while an image within its margin stays.
    if withdraw and not (promote and plan.question == "NotWorse"):
        return Judgement("withdraw", (told, _withdrawn(plan)), figures)
    if promote:
        if not lost:
            return Judgement("promote", (told, _promoted(plan)), figures)
        told = f"{told}; {lost}"
    if found.boots >= plan.max_boots:
        return Judgement("inconclusive", (told, f"{plan.max_boots} boots have not told", _power(figures)), figures)
    if not promote and _hopeless(plan, found):
        sentence = f"up to {plan.max_boots} boots would not tell either, so it ends here"
        return Judgement("inconclusive", (told, sentence, _power(figures)), figures)
    return Judgement("wait", (told,), figures)


def _hopeless(plan: Plan, found: Gain) -> bool:
    half, move = found.half_width(plan.level, plan.max_boots), HOPELESS * found.still_to_move(plan.max_boots)
    return found.value + move - half <= plan.promote_above and found.value - move + half >= plan.withdraw_below


def _lost_attainment(own: Answers, stable: Answers) -> str:
    for name, within, of in OBJECTIVES:
        mine, usual = getattr(own, of), getattr(stable, of)
        if mine <= 0.0 or usual <= 0.0:
            continue
        share, usual_share = getattr(own, within) / mine, getattr(stable, within) / usual
        if share < usual_share - ATTAINMENT_MARGIN:
            return (
                f"but {100.0 * share:.1f} % of its requests meet the {name} objective, and"
                f" {100.0 * usual_share:.1f} % of the stable ones"
            )
    return ""


def _gain(plan: Plan, found: Matched, heard: tuple[Heard, ...]) -> Gain | None:
    return gain(found.grid, heard, slope(found.grid), plan.known) if heard else None


def _figures(plan: Plan, evidence: Evidence, found: Gain | None, heard: tuple[Heard, ...]) -> Figures | None:
    if found is None:
        return None
    half = found.half_width(plan.level)
    return Figures(
        gain=exp(found.value) - 1.0,
        low=exp(found.value - half) - 1.0,
        high=exp(found.value + half) - 1.0 if half < inf else inf,
        boots=found.boots,
        stable_boots=found.stable_boots,
        boot_spread=found.spread.value,
        noise=found.noise,
        boots_needed=boots_needed(found),
        until_s=max(one.until_s for one in heard),
        here=found.here,
        own_acceptance=acceptance(evidence.candidate),
        stable_acceptance=acceptance(evidence.stable),
    )


def boots_needed(found: Gain, difference: float = DIFFERENCE) -> int | None:
    """Boots of the candidate that find a true difference in 19 of 20 comparisons, with 1 false of 20; up to 99.

    Where twice Student's t at 5 % times the error is at most the difference. None if the stable boots alone are too few
    or nothing is known of the spread.
    """
    for boots in range(1, 100):
        dof = found.spread.dof + boots - found.boots
        if found.spread.dof > 0.0 and dof > 0.0:
            error = found.spread.value * sqrt(1.0 / boots + 1.0 / found.stable_boots)
            if 2.0 * quantile(dof, 0.95) * error <= log1p(difference):
                return boots
    return None


def _told(found: Gain, half: float) -> str:
    low, high = exp(found.value - half) - 1.0, exp(found.value + half) - 1.0 if half < inf else inf
    return (
        f"token goodput at like load {100.0 * (exp(found.value) - 1.0):+.1f} % ({100.0 * low:+.1f} to"
        f" {100.0 * high:+.1f} %) after {count(found.boots, 'boot')} of the candidate; boots differ by"
        f" {100.0 * found.spread.value:.1f} %"
    )


def _promoted(plan: Plan) -> str:
    if plan.question == "Better":
        return "it is surely better than the stable revision"
    return f"it is surely not worse by {100.0 * plan.margin:g} % or more"


def _withdrawn(plan: Plan) -> str:
    if plan.question == "Better":
        return f"it surely gains less than the {100.0 * USEFUL:g} % that make it worth a roll-out"
    return f"it is surely worse, and not surely by less than {100.0 * plan.margin:g} %"


def _power(figures: Figures | None) -> str:
    needed = None if figures is None else figures.boots_needed
    if needed is None:
        return f"no number of boots of the candidate tells {100.0 * DIFFERENCE:g} % beside so few stable boots"
    return f"{count(needed, 'boot')} of the candidate would tell {100.0 * DIFFERENCE:g} %"
