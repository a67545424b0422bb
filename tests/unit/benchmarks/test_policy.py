"""The benchmark's arithmetic, on outcomes made by hand."""

from __future__ import annotations

import pytest

from benchmarks.policy import cases
from benchmarks.policy.headline import DEFINITIONS, TARGETS, Figure, Table, score
from benchmarks.policy.outcome import Measured, Outcome, _counted
from outrider.core.decision import Change


def outcome(arm: str, *rates_tps: float, seed: int = 0) -> Outcome:
    segments = tuple(Measured(level, rate, None, None) for level, rate in enumerate(rates_tps))
    return Outcome("mixed-measured", "mixed", arm, seed, segments)


def test_every_level_counts_the_same_in_a_score() -> None:
    assert score(outcome("outrider", 5.0, 10_000.0), outcome("oracle", 10.0, 10_000.0)) == pytest.approx(0.75)


def test_the_best_constant_is_chosen_in_hindsight() -> None:
    table = Table([outcome("oracle", 10.0, 10.0), outcome("k1", 5.0, 9.0), outcome("k3", 8.0, 7.0)])
    assert table.best_constant("mixed-measured", 0) == pytest.approx(0.75)


def test_a_probe_and_its_return_are_no_deliberate_changes() -> None:
    changes = [
        Change(10.0, "Schedule", "a", "b", "in the warm-up"),
        Change(400.0, "Schedule", "b", "c", "probe: acceptance not seen"),
        Change(415.0, "Schedule", "c", "b", "at batch 4 K 1→0"),
        Change(500.0, "Target", "32", "48", "TPOT"),
        Change(600.0, "Schedule", "b", "d", "at batch 4 K 0→1"),
    ]
    assert _counted(changes, 300.0) == (1, 1)


def test_every_target_has_a_definition_and_a_median_shows_its_spread() -> None:
    assert set(TARGETS) <= set(DEFINITIONS)
    assert Figure.of([3.0, 1.0, 2.0], "here") == Figure(2.0, 1.0, 3.0, "here")


@pytest.mark.parametrize("extent", [cases.QUICK, cases.FULL])
def test_every_measured_stretch_ends_on_a_scrape_within_its_case(extent: cases.Extent) -> None:
    for case in cases.cases(extent):
        for segment in case.segments:
            assert segment.since_s % 15.0 == segment.until_s % 15.0 == 0.0
            assert segment.until_s <= case.duration_s
