"""The capacity benchmark: its arithmetic on replays made by hand, its loads, and the oracle's plan."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.capacity import cases, replays
from benchmarks.capacity.cases import BAD, CEILING, GOOD, STATED_S, WARM_UP_S, Day
from benchmarks.capacity.headline import DEFINITIONS, TARGETS, Table, headline, worst
from benchmarks.capacity.oracle import Known, plan
from benchmarks.capacity.replays import Replay, reversals
from outrider.simulator.profile import load_profile
from outrider.simulator.request import Request
from outrider.simulator.workload import geometric
from tests.unit.simulator.builders import settings

ACCEPTANCE = geometric(0.75, CEILING)
KNOWN = Known(load_profile(), settings(), (0, 1, 3))


def replay(arm: str, hours: float, misses: float, **changes: object) -> Replay:
    one = Replay(
        "day", "day", arm, 8.0, STATED_S, 0, 90, replica_hours=hours, misses=misses, late=0.0, starting=0.0,
        missed=frozenset(), num_requests=1000, most_replicas=4, reversals=0, patches=3, hours=0.5, replicas=(),
    )  # fmt: skip
    return replace(one, **changes)  # type: ignore[arg-type]


def table(*baseline: tuple[float, float], mine: tuple[float, float] = (2.0, 0.1)) -> Table:
    return Table([replay("outrider", *mine), *(replay("in-flight", *point) for point in baseline)])


def test_attainment_is_compared_at_equal_replica_hours() -> None:
    assert table((1.0, 0.4), (3.0, 0.1)).gain_points("day", STATED_S, 0) == pytest.approx(10.0)


def test_replica_hours_are_compared_at_equal_attainment() -> None:
    assert table((1.0, 0.4), (4.0, 0.1)).saved_percent("day", STATED_S, 0) == pytest.approx(50.0)


def test_a_baseline_that_only_plays_dearer_is_left_out_of_the_gain() -> None:
    assert table((3.0, 0.01)).gain_points("day", STATED_S, 0) is None


def test_a_baseline_that_never_attains_as_much_needs_at_least_its_dearest_hours() -> None:
    assert table((1.0, 0.4), (4.0, 0.2)).saved_percent("day", STATED_S, 0) == pytest.approx(50.0)


def test_a_baseline_that_attains_less_with_fewer_hours_says_nothing_of_what_is_saved() -> None:
    assert table((1.0, 0.4)).saved_percent("day", STATED_S, 0) is None


def test_the_best_of_several_baselines_counts() -> None:
    found = Table([replay("outrider", 2.0, 0.1), replay("in-flight", 2.0, 0.3), replay("queue-10", 2.0, 0.05)])
    assert found.gain_points("day", STATED_S, 0) == pytest.approx(-5.0)


def test_the_headline_has_a_figure_for_every_target() -> None:
    found = table((1.0, 0.4), (4.0, 0.1))
    still = replay("outrider", 1.0, 0.0, case="constant-3", group="constant", reversals=2)
    figures = headline(Table([*found.found, replay("oracle", 2.0, 0.02), still]))
    assert set(TARGETS) <= set(figures) == set(DEFINITIONS)
    assert figures["gap_to_oracle_points"].value == pytest.approx(8.0)
    assert figures["target_patches_per_hour_max"].value == pytest.approx(6.0)
    assert figures["oscillations_constant_load"].value == 2
    assert figures["oscillations_constant_load"].where == "constant-3, 120 s"


def test_a_figure_is_of_the_worst_case_and_of_none_without_values() -> None:
    assert worst({"one": [3.0], "other": [1.0, 2.0], "none": [None]}, least=True).where == "other"
    assert worst({"none": [None]}, least=True).value is None


def test_a_reversal_is_a_move_against_the_move_before() -> None:
    assert reversals([3, 3, 4, 5, 5]) == 0
    assert reversals([3, 4, 4, 3, 2, 3]) == 2


def test_the_day_is_quiet_at_night_busiest_in_the_evening_and_its_drafts_drop_in_the_afternoon() -> None:
    day = Day(2400.0, 10.0)
    rates = {hour: day.rate_rps(WARM_UP_S + hour * 100.0) for hour in range(24)}
    assert min(rates, key=rates.__getitem__) in (2, 3, 4)
    assert max(rates, key=rates.__getitem__) in range(17, 22)
    assert max(rates.values()) <= 10.0
    assert [phase.from_s - WARM_UP_S for phase in day.phases[1:]] == [1300.0, 2000.0]
    assert [phase.acceptance[0] for phase in day.phases] == [GOOD, BAD, GOOD]


def test_the_same_seed_gives_the_same_day() -> None:
    day = Day(60.0, 5.0)
    assert list(day.requests(3)) == list(day.requests(3))
    assert list(day.requests(3)) != list(day.requests(4))


@pytest.mark.parametrize("extent", [cases.QUICK, cases.FULL])
def test_every_case_has_a_name_of_its_own_and_every_load_is_played_with_every_baseline(extent: cases.Extent) -> None:
    names = [one.name for one in extent.cases]
    assert len(set(names)) == len(names)
    played = {(job.args[0].name, job.args[1]) for job in replays.replays(extent) if job.args[3] == STATED_S}
    for one in extent.cases:
        arms = ("outrider",) if one.group == "constant" else tuple(replays.ARMS)
        assert {(one.name, arm) for arm in arms} <= played


def evenly(rate_rps: float, since_s: float, until_s: float) -> list[Request]:
    return [Request(f"{at}", since_s + at / rate_rps, 128, 300) for at in range(round(rate_rps * (until_s - since_s)))]


def test_the_plan_asks_for_replicas_a_cold_start_before_the_load_needs_them() -> None:
    requests = [*evenly(1.0, 0.0, 600.0), *evenly(40.0, 600.0, 900.0)]
    found = plan(requests, KNOWN, lambda _: ACCEPTANCE, 0.015, 0.8, 120.0, (1, 12))
    first = next(at_s for at_s, replicas in found.steps if replicas > 1)
    assert 450.0 <= first <= 480.0
    assert found.at(0.0) == 1


def test_the_plan_keeps_a_replica_that_would_be_needed_again_within_a_cold_start() -> None:
    requests = [*evenly(40.0, 0.0, 300.0), *evenly(1.0, 300.0, 360.0), *evenly(40.0, 360.0, 600.0)]
    found = plan(requests, KNOWN, lambda _: ACCEPTANCE, 0.015, 0.8, 120.0, (1, 12))
    assert min(replicas for at_s, replicas in found.steps if at_s < 570.0) > 1
    apart = plan(requests, KNOWN, lambda _: ACCEPTANCE, 0.015, 0.8, 0.0, (1, 12))
    assert min(replicas for at_s, replicas in apart.steps if at_s < 570.0) == 1


def test_a_replica_carries_less_of_what_drafts_fit_badly_and_of_long_prompts() -> None:
    good, _ = KNOWN.carried(ACCEPTANCE, 128.0, 300.0, 0.012)
    bad, _ = KNOWN.carried(geometric(0.2, CEILING), 128.0, 300.0, 0.012)
    long, _ = KNOWN.carried(ACCEPTANCE, 4000.0, 300.0, 0.012)
    assert bad < good
    assert long < good


def test_a_fuller_plan_takes_fewer_replicas() -> None:
    requests = evenly(40.0, 0.0, 300.0)
    counts = [
        plan(requests, KNOWN, lambda _: ACCEPTANCE, 0.015, share, 60.0, (1, 12)).at(150.0) for share in (0.2, 0.5, 1.0)
    ]
    assert all(before > after for before, after in pairwise(counts))
