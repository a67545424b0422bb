"""The verdict on a candidate: two questions, looks once a boot, and what ends it early."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.core.revisions import analysis
from outrider.core.revisions.analysis import LEVELS, MAX_TIME_S, Plan, Question, judge
from outrider.core.revisions.evidence import Boot, Evidence
from outrider.core.revisions.intervals import Spread
from outrider.core.series import Missing

from .builders import ALIKE, boot, evidence, verdict

WIDE = (-0.14, 0.0, 0.14)
QUESTIONS: tuple[Question, ...] = ("Better", "NotWorse")
paces = st.floats(-0.3, 0.3)


@pytest.mark.parametrize(
    ("question", "gains", "expected"),
    [
        pytest.param("Better", (0.06, 0.062), "promote", id="a better draft is promoted"),
        pytest.param("Better", (-0.06, -0.062), "withdraw", id="a worse draft is withdrawn"),
        pytest.param("Better", (0.0, 0.002), "withdraw", id="an equal draft is not worth a roll-out"),
        pytest.param("NotWorse", (0.06, 0.062), "promote", id="a better image is promoted"),
        pytest.param("NotWorse", (0.0, 0.002), "promote", id="an equal image is promoted"),
        pytest.param("NotWorse", (-0.02, -0.022), "promote", id="an image within its margin is promoted"),
        pytest.param("NotWorse", (-0.09, -0.092), "withdraw", id="a worse image is withdrawn"),
    ],
)
def test_verdict_where_boots_are_nearly_alike(question: Question, gains: tuple[float, ...], expected: str) -> None:
    found = verdict(question, *gains)
    assert found.verdict == expected
    assert "token goodput at like load" in found.reasons[0]


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_same_difference_tells_nothing_where_boots_differ_by_more(question: Question) -> None:
    found = verdict(question, 0.06, 0.062, stable=WIDE)
    assert found.verdict != "promote"
    assert found.figures is not None
    assert found.figures.low < -0.05 < 0.05 < found.figures.high


@pytest.mark.parametrize("question", QUESTIONS)
def test_one_boot_is_never_enough_and_is_followed_by_another(question: Question) -> None:
    found = verdict(question, 0.5)
    assert (found.verdict, found.restart) == ("wait", True)
    assert found.reasons[0] == "1 boot of the candidate heard; the first look is at 2"


def test_one_boot_is_enough_where_the_spread_of_boots_is_known() -> None:
    plan = Plan("Better", known=Spread(10 * 0.01**2, 10.0))
    assert judge(plan, evidence(0.06), 0.0).verdict == "promote"


def test_a_boot_that_is_still_heard_is_not_started_anew_and_its_figures_do_not_count() -> None:
    found = evidence(0.06, 0.062)
    short = replace(found.candidate[1], windows=found.candidate[1].windows[:-1])
    seen = judge(Plan("Better"), replace(found, candidate=(found.candidate[0], short)), 0.0)
    assert (seen.verdict, seen.restart) == ("wait", False)
    assert seen.reasons == ("the candidate's boot 2 was heard in 39 of 40 windows at like load",)


def test_windows_after_the_quota_change_nothing() -> None:
    found = evidence(0.06, 0.062)
    more = boot("candidate-1", -0.9, first=80, count=20)
    longer = replace(found.candidate[1], windows=found.candidate[1].windows + more.windows)
    stable = tuple(
        replace(one, windows=one.windows + boot("", ALIKE[at], first=80, count=20).windows)
        for at, one in enumerate(found.stable)
    )
    late = Evidence(0.0, stable, (found.candidate[0], longer))
    assert judge(Plan("Better"), late, 0.0).figures == judge(Plan("Better"), found, 0.0).figures


def test_a_boot_that_ended_early_is_not_waited_for() -> None:
    found = evidence(0.06, 0.0)
    ended = replace(found.candidate[1], windows=found.candidate[1].windows[:10], ended=True)
    third = boot("candidate-2", 0.062, first=40)
    seen = judge(Plan("Better"), replace(found, candidate=(found.candidate[0], ended, third)), 0.0)
    assert seen.verdict == "promote"


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(
    "nothing",
    [
        pytest.param(Evidence(0.0), id="no boots"),
        pytest.param(replace(evidence(0.5, 0.5), stable=()), id="no stable boots"),
        pytest.param(replace(evidence(0.5), candidate=()), id="no candidate"),
        pytest.param(
            replace(evidence(), candidate=(Boot("new", (Missing("MetricsStale"),) * 80),)), id="no metrics of it"
        ),
    ],
)
def test_nothing_is_promoted_on_no_evidence(question: Question, nothing: Evidence) -> None:
    assert judge(Plan(question), nothing, 0.0).verdict == "wait"
    late = judge(Plan(question), nothing, MAX_TIME_S)
    assert late.verdict == "inconclusive"
    assert late.reasons[-1] == "120 minutes have passed without a verdict"


def test_windows_without_metrics_are_left_out_and_do_not_count_as_slow() -> None:
    found = evidence(0.06, 0.062)
    gaps = tuple(Missing("MetricsStale") if at % 2 else window for at, window in enumerate(found.candidate[0].windows))
    seen = judge(Plan("Better"), replace(found, candidate=(Boot("gappy", gaps), found.candidate[1])), 0.0)
    assert seen.verdict == "wait"
    assert seen.figures is not None
    assert seen.figures.gain == pytest.approx(0.062, abs=0.002)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_second_crash_withdraws_whatever_the_speed(question: Question) -> None:
    assert judge(Plan(question), evidence(0.5, 0.5, crashes=1), 0.0).verdict == "promote"
    found = judge(Plan(question), evidence(0.5, 0.5, crashes=2), 0.0)
    assert found.verdict == "withdraw"
    assert found.reasons == ("the candidate crashed 2 times; 2 are too many",)


def test_two_crashes_withdraw_before_any_window() -> None:
    assert judge(Plan("NotWorse"), Evidence(0.0, crashes=2), 1.0).verdict == "withdraw"


def test_requests_that_miss_their_objective_forbid_promotion() -> None:
    found = evidence(0.06, 0.062)
    late = tuple(
        replace(one, windows=(replace(one.windows[0], answers=replace(one.windows[0].answers, tpot_within=880.0)),
                              *one.windows[1:]))
        for one in found.candidate
    )  # fmt: skip
    seen = judge(Plan("Better"), replace(found, candidate=late), 0.0)
    assert seen.verdict == "wait"
    assert "but 88.0 % of its requests meet the TPOT objective, and 95.0 % of the stable ones" in seen.reasons[0]


def test_a_comparison_that_no_further_boot_would_settle_ends_early_and_says_what_would() -> None:
    found = verdict("NotWorse", -0.01, 0.01, stable=WIDE)
    assert found.verdict == "inconclusive"
    assert found.reasons[1] == "up to 4 boots would not tell either, so it ends here"
    assert found.reasons[2] == "no number of boots of the candidate tells 5 % beside so few stable boots"


def test_after_the_last_boot_it_ends_without_a_verdict() -> None:
    found = verdict("Better", 0.03, 0.0, 0.02, -0.005, stable=(-0.01, 0.0, 0.01))
    assert found.verdict == "inconclusive"
    assert found.reasons[1] == "4 boots have not told"
    assert "would tell 5 %" in found.reasons[2]


def test_a_stated_margin_is_what_an_image_is_held_to() -> None:
    assert judge(Plan("NotWorse", margin=0.01), evidence(-0.03, -0.031), 0.0).verdict == "withdraw"
    assert judge(Plan("NotWorse", margin=0.10), evidence(-0.03, -0.031), 0.0).verdict == "promote"


def test_a_plan_without_a_look_is_refused() -> None:
    with pytest.raises(ValueError, match="max_boots must be 2 to 8, not 1"):
        Plan("Better", max_boots=1)


@settings(max_examples=60, deadline=None)
@given(gains=st.lists(paces, min_size=2, max_size=4), stable=st.lists(paces, min_size=1, max_size=4))
def test_the_order_of_boots_does_not_matter(gains: list[float], stable: list[float]) -> None:
    one = verdict("Better", *gains, stable=stable).figures
    other = verdict("Better", *gains[::-1], stable=stable[::-1]).figures
    assert one is not None
    assert other is not None
    assert (one.gain, one.low, one.high) == pytest.approx((other.gain, other.low, other.high), rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(gains=st.lists(paces, min_size=2, max_size=4), stable=st.lists(paces, min_size=1, max_size=4))
def test_a_gain_is_the_other_sides_loss(gains: list[float], stable: list[float]) -> None:
    """Faster by a factor or slower by it: bounds change places on the logarithmic scale."""
    mirror = [1.0 / (1.0 + one) - 1.0 for one in gains]
    found = verdict("NotWorse", *gains, stable=stable).figures
    other = verdict("NotWorse", *mirror, stable=[1.0 / (1.0 + one) - 1.0 for one in stable]).figures
    assert found is not None
    assert other is not None
    assert (1.0 + found.gain) * (1.0 + other.gain) == pytest.approx(1.0)
    if found.high < inf:
        assert (1.0 + found.low) * (1.0 + other.high) == pytest.approx(1.0)


@settings(max_examples=60, deadline=None)
@given(gain=paces, further=st.floats(0.0, 0.3), stable=st.lists(paces, min_size=2, max_size=4))
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_faster_candidate_is_never_judged_worse(
    question: Question, gain: float, further: float, stable: list[float]
) -> None:
    order = {"withdraw": 0, "inconclusive": 1, "wait": 1, "promote": 2}
    slow = verdict(question, gain, gain, stable=stable)
    fast = verdict(question, gain + further, gain + further, stable=stable)
    assert order[slow.verdict] <= order[fast.verdict]


def test_bounds_narrow_with_every_boot_of_the_same_pace() -> None:
    widths = []
    for boots in (2, 3, 4):
        figures = verdict("Better", *([0.01] * boots), stable=(-0.02, 0.0, 0.02)).figures
        assert figures is not None
        widths.append(figures.high - figures.low)
    assert all(more < fewer for fewer, more in pairwise(widths))


def test_the_error_levels_of_all_looks_come_to_four_percent_together() -> None:
    """Looks at equal steps of information, the worst case: the share of random walks that ever pass the bound."""
    rng = np.random.default_rng(7)
    for looks, level in enumerate(LEVELS, start=1):
        walks = rng.standard_normal((200_000, looks)).cumsum(axis=1) / np.sqrt(np.arange(1, looks + 1))
        ordered = np.sort(rng.standard_normal(1_000_000))
        bound = ordered[int((1.0 - level) * len(ordered))]
        assert (walks > bound).any(axis=1).mean() == pytest.approx(0.04, abs=0.003)


def test_five_percent_need_three_boots_at_the_quiet_published_spread_and_are_out_of_reach_at_the_other() -> None:
    """Three stable boots; 1.4 % and 13.9 % between boots (12 boots of one engine, without CUDA graphs and with)."""

    def needed(cv: float) -> int | None:
        distance = cv * sqrt(1.0)
        found = verdict("Better", -distance / sqrt(2.0), distance / sqrt(2.0), stable=(-distance, 0.0, distance))
        assert found.figures is not None
        assert found.figures.boot_spread == pytest.approx(cv, rel=0.05)
        return found.figures.boots_needed

    assert needed(0.014) == 3
    assert needed(0.139) is None
    assert analysis.DIFFERENCE == 0.05
