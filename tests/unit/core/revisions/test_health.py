"""Faults that end a comparison at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.core.revisions.evidence import Answers, Evidence, answers
from outrider.core.revisions.health import faults
from outrider.core.revisions.matching import matched

from .builders import SANE, boot, evidence


def said(found: Evidence) -> str:
    own, stable = answers(found.candidate), answers(found.stable)
    return "; ".join(faults(found.crashes, own, stable, matched(found)))


def test_a_sane_candidate_has_no_fault() -> None:
    assert said(evidence(-0.1, 0.1)) == ""


@pytest.mark.parametrize(
    ("crashes", "expected"),
    [
        pytest.param(0, "", id="none"),
        pytest.param(1, "", id="one may be the node's"),
        pytest.param(2, "the candidate crashed 2 times; 2 are too many", id="two are its own"),
    ],
)
def test_crashes(crashes: int, expected: str) -> None:
    assert said(evidence(0.0, crashes=crashes)) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"errors": 20.0}, "", id="two errors in a hundred are within noise"),
        pytest.param({"errors": 60.0}, "6 % of the candidate's requests failed, and 0.1 % of the stable", id="errors"),
        pytest.param({"empty": 50.0}, "", id="a few more empty answers"),
        pytest.param({"empty": 150.0}, "15 % of the candidate's answers are empty", id="empty answers"),
        pytest.param({"cut": 120.0}, "", id="a few more cut answers"),
        pytest.param(
            {"cut": 400.0}, "40 % of the candidate's answers are cut at their limit, and 8 %", id="cut answers"
        ),
        pytest.param({"repeating": 150.0}, "15 % of the candidate's answers repeat themselves", id="repeating answers"),
        pytest.param({"tokens": 210_000.0}, "", id="answers a third shorter"),
        pytest.param({"tokens": 150_000.0}, "have 150 tokens on average, the stable ones 300", id="half as long"),
        pytest.param({"tokens": 600_000.0}, "have 600 tokens on average, the stable ones 300", id="twice as long"),
    ],
)
def test_answers(changes: dict[str, float], expected: str) -> None:
    found = said(evidence(0.0, own=replace(SANE, **changes)))
    assert found == "" if not expected else expected in found


@pytest.mark.parametrize("own", [Answers(), Answers(ended=4.0, errors=4.0)], ids=["no answers", "four answers"])
def test_too_few_answers_tell_nothing(own: Answers) -> None:
    assert said(evidence(0.0, own=own)) == ""


def test_no_answers_of_the_stable_revision_tell_nothing() -> None:
    assert said(evidence(0.0, own=replace(SANE, errors=500.0), answers=Answers())) == ""


def missing(*within: float, stable: tuple[float, ...] = (0.95, 0.94, 0.96), field: str = "tpot") -> Evidence:
    def with_share(name: str, share: float) -> Answers:
        return replace(SANE, **{f"{field}_within": 1000.0 * share, f"{field}_of": 1000.0})

    return Evidence(
        0.0,
        tuple(boot(f"stable-{at}", answers=with_share("", share)) for at, share in enumerate(stable)),
        tuple(boot(f"candidate-{at}", answers=with_share("", share)) for at, share in enumerate(within)),
    )


@pytest.mark.parametrize("field", ["tpot", "ttft"])
def test_boots_that_all_miss_an_objective_are_a_fault(field: str) -> None:
    sentence = f"65 % of the candidate's requests meet the {field.upper()} objective, and 95 % of the stable ones"
    assert sentence in said(missing(0.64, 0.66, field=field))


def test_one_boot_that_misses_the_objective_may_be_a_slow_one() -> None:
    assert said(missing(0.30)) == ""
    assert said(missing(0.30, 0.95)) == ""


def test_where_stable_boots_differ_in_their_share_a_low_one_is_no_fault() -> None:
    assert said(missing(0.64, 0.66, stable=(0.99, 0.60, 0.80))) == ""


def slowed(windows: int) -> Evidence:
    found = evidence(0.0)
    own = found.candidate[0]
    slow = tuple(replace(one, rate_tps=0.5 * one.rate_tps) for one in own.windows[:windows])
    return replace(found, candidate=(replace(own, windows=slow + own.windows[windows:]),))


def test_a_collapse_is_three_windows_running_at_less_than_sixty_percent() -> None:
    assert said(slowed(2)) == ""
    assert said(slowed(3)).startswith("in 3 windows running a request got less than 60 %")
