"""The few numbers of the benchmark, each by its definition; `DEFINITIONS` says them in words for the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from benchmarks.canary.cases import PUBLISHED, QUESTIONS
from benchmarks.canary.comparisons import Outcome
from benchmarks.figures import Figure, Target
from outrider.core.revisions.analysis import Question, Verdict

TARGETS: Mapping[str, Target] = {
    "false_promotion_percent": Target(5.0, False),
    "false_withdrawal_percent": Target(5.0, False),
    "aa_false_alarm_percent": Target(5.0, False),
}
DEFINITIONS: Mapping[str, str] = {
    "false_promotion_percent": "Comparisons of a candidate that is truly 5 % worse which end in promotion; the worst of"
    " both questions and both published spreads of boots.",
    "false_withdrawal_percent": "Comparisons of a candidate that is truly 5 % better which end in withdrawal; the worst"
    " of the same.",
    "aa_false_alarm_percent": "Comparisons of equals that end wrongly: an equal draft promoted, an equal image"
    " withdrawn; the worst of the same.",
    "median_minutes_to_verdict": "From the candidate's first request to promotion or withdrawal, of comparisons with a"
    " true difference of 5 % either way that end in one; where boots differ by 1.4 %.",
    "inconclusive_percent_quiet": "Comparisons that end without a verdict (and so without promotion) where boots differ"
    " by 1.4 %, all true differences and both questions together.",
    "inconclusive_percent_wild": "The same where boots differ by 13.9 %: there three stable boots and four of the"
    " candidate cannot tell 5 %.",
    "better_found_percent_quiet": "Drafts that are truly 5 % better and are promoted, where boots differ by 1.4 %: the"
    " power of the test.",
    "equal_image_promoted_percent_quiet": "Equal images that are promoted, where boots differ by 1.4 %.",
    "single_boot_false_alarm_percent_wild": "What is avoided: equals that a comparison of one boot would call different"
    " either way at 5 % a side, with errors from the scatter in time alone, where boots differ by 13.9 %.",
}


class Table:
    """Outcomes by arrangement, question and true difference."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.outcomes = list(outcomes)
        self._by_key = {(one.case.name, one.case.plan.question, one.case.effect): one for one in self.outcomes}

    def at(self, name: str, question: Question, effect: float) -> Outcome:
        """One of them."""
        return self._by_key[name, question, effect]

    def of(self, name: str) -> list[Outcome]:
        """All of an arrangement."""
        return [one for one in self.outcomes if one.case.name == name]


def headline(table: Table) -> dict[str, Figure]:
    """All figures."""
    quiet, wild = table.of("quiet"), table.of("wild")
    minutes = [
        minutes
        for one in quiet
        if one.case.effect
        for minutes, verdict in zip(one.minutes, one.verdicts, strict=True)
        if verdict in ("promote", "withdraw")
    ]
    return {
        "false_promotion_percent": _worst(table, -0.05, ("promote", "promote")),
        "false_withdrawal_percent": _worst(table, 0.05, ("withdraw", "withdraw")),
        "aa_false_alarm_percent": _worst(table, 0.0, ("promote", "withdraw")),
        "median_minutes_to_verdict": Figure(median(minutes) if minutes else None),
        "inconclusive_percent_quiet": _mean(quiet, "inconclusive"),
        "inconclusive_percent_wild": _mean(wild, "inconclusive"),
        "better_found_percent_quiet": Figure(table.at("quiet", "Better", 0.05).percent("promote")),
        "equal_image_promoted_percent_quiet": Figure(table.at("quiet", "NotWorse", 0.0).percent("promote")),
        "single_boot_false_alarm_percent_wild": Figure(table.at("wild", "NotWorse", 0.0).naive_percent),
    }


def _worst(table: Table, effect: float, wrong: tuple[Verdict, Verdict]) -> Figure:
    found = [
        (table.at(name, question, effect).percent(verdict), f"{name}, {question}")
        for name in PUBLISHED
        for question, verdict in zip(QUESTIONS, wrong, strict=True)
    ]
    value, where = max(found)
    return Figure(value, min(found)[0], value, where)


def _mean(outcomes: Sequence[Outcome], verdict: Verdict) -> Figure:
    shares = [one.percent(verdict) for one in outcomes]
    return Figure(sum(shares) / len(shares), min(shares), max(shares))
