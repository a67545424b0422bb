"""The benchmark's arithmetic, on outcomes made by hand."""

from __future__ import annotations

import pytest

from benchmarks.figures import Figure
from benchmarks.policy import cases, traces
from benchmarks.policy.headline import DEFINITIONS, TARGETS, Table, score
from benchmarks.policy.outcome import Measured, Outcome, _counted
from benchmarks.policy.traces import Frontiers, Replay
from outrider.core.decision import Change


def outcome(arm: str, *rates_tps: float, seed: int = 0) -> Outcome:
    segments = tuple(Measured(level, rate, None, None) for level, rate in enumerate(rates_tps))
    return Outcome("mixed-measured", "mixed", arm, seed, segments)


def test_every_level_counts_the_same_in_a_score() -> None:
    assert score(outcome("outrider", 5.0, 10_000.0), outcome("oracle", 10.0, 10_000.0)) == pytest.approx(0.75)


def test_the_best_constant_is_chosen_in_hindsight() -> None:
    table = Table([outcome("oracle", 10.0, 10.0), outcome("k1", 5.0, 9.0), outcome("k3", 8.0, 7.0)])
    assert table.best_constant("mixed-measured", 0) == pytest.approx(0.75)


def test_probes_are_counted_apart_from_deliberate_changes_of_the_schedule() -> None:
    changes = [
        Change(10.0, "Schedule", "a", "b", "in the warm-up"),
        Change(400.0, "Probe", "b", "c", "a look at K 3"),
        Change(415.0, "Probe", "c", "b", "back"),
        Change(500.0, "Target", "32", "48", "TPOT"),
        Change(600.0, "Schedule", "b", "d", "at batch 4 K 0→1"),
    ]
    assert _counted(changes, 300.0) == (1, 2)


def replay(arm: str, hours: float, misses: float) -> Replay:
    return Replay("trace", arm, 0, 8.0, hours, misses, 1000, 4)


def swept(*points: tuple[float, float], mine: tuple[float, float]) -> Frontiers:
    """Every baseline with the same points of replica-hours and misses, and Outrider's one."""
    baselines = [replay(arm, *point) for arm in traces.BASELINES for point in points]
    return Frontiers([replay("outrider", *mine), *baselines])


def test_misses_are_compared_at_equal_replica_hours() -> None:
    found = swept((1.0, 0.4), (3.0, 0.1), mine=(2.0, 0.1))
    assert found.misses("trace", "k1", 0) == pytest.approx(0.2)
    assert found.ratio("trace", 0) == pytest.approx(0.5)
    assert found.within("trace", "k1", 0)


def test_a_target_that_costs_more_and_misses_more_is_not_held_against_a_baseline() -> None:
    found = swept((1.0, 0.1), (2.0, 0.4), (3.0, 0.1), mine=(2.0, 0.1))
    assert found.misses("trace", "k1", 0) == pytest.approx(0.1)


def test_outside_its_targets_a_baseline_keeps_its_nearest_share() -> None:
    found = swept((1.0, 0.4), (3.0, 0.1), mine=(9.0, 0.0))
    assert found.misses("trace", "k1", 0) == pytest.approx(0.1)
    assert not found.within("trace", "k1", 0)
    assert found.ratio("trace", 0) == pytest.approx(0.01)


def test_every_baseline_meets_every_target_on_every_trace_and_outrider_sets_its_own() -> None:
    jobs = list(traces.replays(traces.FULL))
    assert [job.args[2] for job in jobs if job.args[1] == "outrider"] == [None] * len(traces.TRACES)
    assert len(jobs) == sum(1 + len(traces.BASELINES) * len(case.targets) for case in traces.TRACES)


def test_every_target_has_a_definition_and_a_median_shows_its_spread() -> None:
    assert set(TARGETS) <= set(DEFINITIONS)
    assert Figure.of([3.0, 1.0, 2.0], "here") == Figure(2.0, 1.0, 3.0, "here")


@pytest.mark.parametrize("extent", [cases.QUICK, cases.FULL])
def test_every_measured_stretch_ends_on_a_scrape_within_its_case(extent: cases.Extent) -> None:
    for case in cases.cases(extent):
        for segment in case.segments:
            assert segment.since_s % 15.0 == segment.until_s % 15.0 == 0.0
            assert segment.until_s <= case.duration_s
