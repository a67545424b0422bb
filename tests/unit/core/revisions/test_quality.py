"""Results of evaluations: which pass, which do not, and what is no result."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.revisions.quality import MAX_MESSAGE, Quality, judge


def result(score: Any = 0.71, baseline: Any = 0.72, **more: Any) -> str:
    return json.dumps({"score": score, "baseline": baseline, **more})


class TestTheVerdict:
    @pytest.mark.parametrize(
        ("message", "asked", "expected"),
        [
            pytest.param(result(0.71, 0.72), None, "passed", id="a loss of 1.4 % where 2 % is the default"),
            pytest.param(result(0.70, 0.72), None, "worse", id="a loss of 2.8 %"),
            pytest.param(result(0.72, 0.80), 0.1, "passed", id="a loss of just what is allowed"),
            pytest.param(result(0.70, 0.72, tolerance=0.03), None, "passed", id="the result allows more"),
            pytest.param(result(0.70, 0.72, tolerance=0.5), 0.02, "worse", id="the spec has the last word"),
            pytest.param(result(0.71, 0.72), 0.0, "worse", id="no loss is allowed"),
            pytest.param(result(0.72, 0.72), 0.0, "passed", id="none, and none there is"),
            pytest.param(result(90, 72), 0.0, "passed", id="better, in whole numbers"),
            pytest.param(result(0, 72), 0.5, "worse", id="nothing right"),
            pytest.param(result(0.71, 0.72, questions=14_042, harness="ours"), None, "passed", id="more than is asked"),
            pytest.param(f"\n {result()}\n", None, "passed", id="blanks around it"),
        ],
    )
    def test_a_score_passes_within_the_tolerance(self, message: str, asked: float | None, expected: str) -> None:
        assert judge(message, asked).verdict == expected

    def test_figures_are_told_either_way(self) -> None:
        lost = "score 0.7 beside a baseline of 0.72: a loss of 2.8 %, and 2 % is allowed"
        assert judge(result(0.70, 0.72), 0.02) == Quality("worse", lost)
        assert (
            judge(result(0.73, 0.72), 0.02).reason
            == "score 0.73 beside a baseline of 0.72: no loss, and 2 % is allowed"
        )

    @given(
        baseline=st.floats(1e-6, 1e6),
        loss=st.floats(-1.0, 1.0),
        tolerance=st.floats(0.0, 0.5),
        unit=st.floats(1e-3, 1e3),
    )
    def test_the_unit_of_scores_does_not_matter_and_less_loss_is_never_worse(
        self, baseline: float, loss: float, tolerance: float, unit: float
    ) -> None:
        score = baseline * (1.0 - loss)
        found = judge(result(score, baseline), tolerance).verdict
        if abs(loss - tolerance) > 1e-6:
            assert found == ("passed" if loss < tolerance else "worse")
            assert judge(result(unit * score, unit * baseline), tolerance).verdict == found


class TestWhatIsNoResult:
    @pytest.mark.parametrize(
        ("message", "words"),
        [
            pytest.param("", "ended without a result", id="nothing"),
            pytest.param(" \n", "ended without a result", id="blanks"),
            pytest.param("score: 0.71", "no JSON", id="another form"),
            pytest.param(result()[:-1], "no JSON", id="cut"),
            pytest.param(f"done {result()}", "no JSON", id="words before it"),
            pytest.param("[0.71, 0.72]", "JSON list", id="a list"),
            pytest.param('{"score": 0.71}', "baseline is missing", id="no baseline"),
            pytest.param('{"baseline": 0.71}', "score is missing", id="no score"),
            pytest.param('{"score": NaN, "baseline": 0.7}', "NaN is no number", id="not a number"),
            pytest.param('{"score": 0.7, "baseline": Infinity}', "Infinity is no number", id="without end"),
            pytest.param('{"score": 1e999, "baseline": 0.7}', "score is below 0 or without end", id="too large"),
            pytest.param(result(10**400), "score is below 0 or without end", id="more digits than there are"),
            pytest.param(result(-0.1), "score is below 0", id="a score below 0"),
            pytest.param(result("0.71"), "score is no number", id="a text"),
            pytest.param(result(True), "score is no number", id="a truth"),
            pytest.param(result(baseline=0), "baseline is 0", id="nothing to lose"),
            pytest.param(result(tolerance=1), "tolerance is 1", id="a tolerance in percent"),
            pytest.param(result(tolerance=None), "tolerance is missing", id="a tolerance of nothing"),
            pytest.param(result(log="x" * MAX_MESSAGE), "longer than 4095 bytes", id="more than Kubernetes keeps"),
            pytest.param("[" * 4000, "no JSON", id="nested without end"),
        ],
    )
    def test_it_fails_with_what_is_the_matter_and_the_remedy(self, message: str, words: str) -> None:
        found = judge(message, None)
        assert found.verdict == "failed"
        assert words in found.reason
        assert "spec.rollout.quality." in found.reason

    @given(st.one_of(st.text(), st.binary().map(lambda raw: raw.decode(errors="replace"))))
    def test_no_text_makes_it_stumble_or_pass(self, message: str) -> None:
        assert judge(message, None).verdict == "failed"

    @given(
        st.dictionaries(
            st.sampled_from(["score", "baseline", "tolerance", "other"]),
            st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers())),
        )
    )
    def test_no_object_makes_it_stumble_and_what_passes_has_numbers(self, document: dict[str, Any]) -> None:
        if judge(json.dumps(document), None).verdict in ("passed", "worse"):
            assert document["score"] >= 0
            assert document["baseline"] > 0
