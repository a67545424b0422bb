"""The canary benchmark: fleets with a known truth, and its arithmetic on outcomes made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.canary.cases import EFFECTS, PUBLISHED, QUESTIONS, WAYS, cases
from benchmarks.canary.comparisons import CHUNK, Case, Outcome, joined, parts, play
from benchmarks.canary.headline import DEFINITIONS, TARGETS, Table, headline
from benchmarks.canary.traffic import WINDOWS, Arrangement, Fleets, Stage
from outrider.core.revisions.analysis import Plan, Verdict

ALIKE = Arrangement(boot_cv=0.0)


def stage(arrangement: Arrangement, effect: float = 0.0, *, draft: bool = True, fleets: int = 60) -> Stage:
    return Fleets(arrangement, effect, draft=draft, fleets=fleets, seed=[1]).stage(np.arange(fleets))


def faster(found: Stage) -> float:
    """By how much a request of the candidate is faster than one of the first stable pod, once its batch is full."""
    rates = np.log(found.rate_tps[..., 10:])
    return float((rates[:, 3] - rates[:, 0]).mean())


@pytest.mark.parametrize("draft", [True, False], ids=["a draft", "an image"])
def test_a_better_candidate_is_faster_by_so_much(draft: bool) -> None:
    plugin = replace(ALIKE, plugin=True)
    assert faster(stage(plugin, 0.2, draft=draft)) - faster(stage(plugin, draft=draft)) == pytest.approx(0.2, abs=0.05)


def test_the_router_deals_evenly_so_a_quicker_pod_has_a_smaller_batch_and_not_more_tokens() -> None:
    found = stage(ALIKE, 0.2)
    assert found.batch[:, 3, 10:].mean() < 0.9 * found.batch[:, :3, 10:].mean()
    assert found.tokens[:, 3, 10:].mean() == pytest.approx(found.tokens[:, :3, 10:].mean(), rel=0.03)


def test_a_candidate_starts_empty() -> None:
    found = stage(ALIKE)
    assert found.tokens[:, 3, 0].mean() < found.tokens[:, 0, 0].mean()


@pytest.mark.parametrize("boots", ["lognormal", "two kinds"])
def test_boots_differ_by_what_is_said(boots: str) -> None:
    fleets = Fleets(Arrangement(0.1, boots=boots), 0.0, draft=True, fleets=4000, seed=[2])  # type: ignore[arg-type]
    paces = fleets.paces(3)
    assert paces.mean() == pytest.approx(1.0, abs=0.01)
    assert paces.std() == pytest.approx(0.1, abs=0.01)


def test_the_stable_pods_keep_their_boots_and_the_candidate_draws_a_new_one_each_time() -> None:
    fleets = Fleets(Arrangement(0.2, plugin=True), 0.0, draft=True, fleets=40, seed=[3])
    first, second = (np.log(fleets.stage(np.arange(40)).rate_tps[..., 10:]).mean(axis=2) for _ in range(2))
    stable = [np.corrcoef(first[:, 0] - first[:, 1], second[:, 0] - second[:, 1])[0, 1]]
    candidate = [np.corrcoef(first[:, 3] - first[:, 1], second[:, 3] - second[:, 1])[0, 1]]
    assert stable[0] > 0.9
    assert candidate[0] < 0.8


def test_the_same_seed_gives_the_same_comparisons() -> None:
    case = Case("quiet", Arrangement(0.014), Plan("NotWorse"), 0.2, fleets=3)
    assert play(case) == play(case)
    assert play(case).minutes != play(replace(case, seed=1)).minutes


def test_a_comparison_takes_as_long_as_its_boots_are_heard_and_started() -> None:
    found = play(Case("quiet", ALIKE, Plan("NotWorse"), 0.2, fleets=3))
    assert found.verdicts == ("promote",) * 3
    assert all(2 * 10.0 + 3.0 <= minutes < 2 * WINDOWS / 4.0 + 3.0 for minutes in found.minutes)


def test_the_parts_of_a_case_are_all_of_it_with_seeds_of_their_own() -> None:
    case = cases(2 * CHUNK + 1, 1)[0]
    found = parts(case)
    assert [one.fleets for one in found] == [CHUNK, CHUNK, 1]
    assert len({one.seed for one in found}) == 3


def outcome(name: str, question: str, effect: float, *verdicts: Verdict) -> Outcome:
    case = next(one for one in cases(1, 1) if (one.name, one.plan.question, one.effect) == (name, question, effect))
    return Outcome(case, verdicts, tuple(10.0 * at for at in range(1, len(verdicts) + 1)), (0.01,), (2.0, 0.0), ())


def table(**changed: tuple[Verdict, ...]) -> Table:
    """Every case ends without a verdict, but for those named `question_effect` where boots are quiet."""
    found = []
    for name in WAYS:
        for question in QUESTIONS:
            for effect in EFFECTS:
                key = f"{question}_{100 * effect:.0f}".replace("-", "minus")
                usual: tuple[Verdict, ...] = ("inconclusive",) * 4
                found.append(outcome(name, question, effect, *(changed.get(key, usual) if name == "quiet" else usual)))
    return Table(found)


def test_a_promotion_of_what_is_worse_is_false_and_so_is_a_withdrawal_of_what_is_better() -> None:
    figures = headline(
        table(
            Better_minus5=("promote", "withdraw", "withdraw", "withdraw"),
            NotWorse_5=("withdraw", "withdraw", "promote", "promote"),
        )
    )
    assert figures["false_promotion_percent"].value == 25.0
    assert figures["false_promotion_percent"].where == "quiet, Better"
    assert figures["false_withdrawal_percent"].value == 50.0
    assert figures["median_minutes_to_verdict"].value == 25.0


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        pytest.param({"Better_0": ("promote",) * 4}, 100.0, id="an equal draft promoted"),
        pytest.param({"Better_0": ("withdraw",) * 4}, 0.0, id="an equal draft withdrawn"),
        pytest.param({"NotWorse_0": ("withdraw",) * 4}, 100.0, id="an equal image withdrawn"),
        pytest.param({"NotWorse_0": ("promote",) * 4}, 0.0, id="an equal image promoted"),
    ],
)
def test_what_is_an_alarm_between_equals_depends_on_the_question(
    ends: dict[str, tuple[Verdict, ...]], expected: float
) -> None:
    assert headline(table(**ends))["aa_false_alarm_percent"].value == expected


def test_the_headline_has_a_figure_for_every_target_and_says_what_each_is() -> None:
    figures = headline(table())
    assert set(TARGETS) <= set(figures) == set(DEFINITIONS)
    assert figures["inconclusive_percent_wild"].value == 100.0
    assert figures["median_minutes_to_verdict"].value is None
    assert figures["single_boot_false_alarm_percent_wild"].value == 50.0


def test_parts_are_joined_by_their_case() -> None:
    one, other = outcome("wild", "Better", 0.0, "promote"), outcome("wild", "Better", 0.0, "withdraw")
    found = joined([one, outcome("wild", "Better", 0.05, "promote"), other])
    assert [len(each.verdicts) for each in found] == [2, 1]
    assert found[0].percent("promote") == 50.0


def test_both_published_spreads_are_played_in_full() -> None:
    played = {one.name: one.fleets for one in cases(2000, 100)}
    assert {name for name, fleets in played.items() if fleets == 2000} == set(PUBLISHED) == {"quiet", "wild"}
