"""The few numbers of the benchmark, each by its definition; `DEFINITIONS` says them in words for the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from benchmarks.capacity.cases import STATED_S
from benchmarks.capacity.replays import BASELINES, Replay
from benchmarks.figures import Figure, Target
from benchmarks.frontier import Frontier, floored

TARGETS: Mapping[str, Target] = {
    "attainment_gain_min_points": Target(0.0, True),
    "replica_hours_saved_percent": Target(15.0, True),
    "oscillations_constant_load": Target(0.0, False),
    "target_patches_per_hour_max": Target(6.0, False),
    "target_patches_constant_load": Target(0.0, False),
    "gap_to_oracle_points": Target(2.0, False),
}

DEFINITIONS: Mapping[str, str] = {
    "attainment_gain_min_points": "Attainment is the share of requests within TPOT and TTFT; one that was not answered"
    " met neither. Outrider's, less that of the best baseline at Outrider's replica-hours, in percentage points; the"
    " least over traces, day and cold starts. A baseline's is read off between its fixed targets; one whose every"
    " target costs more than Outrider is left out.",
    "attainment_gain_in_flight_min_points": "The same against fixed in-flight targets alone.",
    "replica_hours_saved_percent": "The day with a drop of acceptance, by cold start: how many replica-hours Outrider"
    " takes less than the cheapest baseline needs for Outrider's attainment; the least over the cold starts. A baseline"
    " that never reaches it counts with its most replica-hours, if these are more than Outrider's.",
    "oscillations_constant_load": "Two hours of one mean rate, after ten minutes of warm-up: moves of the number of"
    " replicas against the direction of the move before; the most over the rates.",
    "target_patches_per_hour_max": "Changes of the autoscaler's target an hour, on traces and the day, after the"
    " warm-up; the most over all.",
    "target_patches_constant_load": "Changes of the target in the two hours of constant load; the most over the rates.",
    "gap_to_oracle_points": "Attainment of the oracle at Outrider's replica-hours less Outrider's, at a cold start of"
    " two minutes, in percentage points; the most over traces and day.",
}


class Table:
    """Replays by case, cold start and arm."""

    def __init__(self, found: Iterable[Replay]) -> None:
        self.found = tuple(found)

    def cases(self, *groups: str) -> list[str]:
        """Names of the cases of some groups."""
        return list(dict.fromkeys(one.case for one in self.found if one.group in groups))

    def cold_starts(self, case: str) -> list[float]:
        """Cold starts that a case was played with."""
        return sorted({one.cold_start_s for one in self.found if one.case == case})

    def seeds(self, case: str) -> list[int]:
        """Seeds that a case was played with."""
        return sorted({one.seed for one in self.found if one.case == case})

    def of(self, case: str, cold_start_s: float, arm: str, seed: int) -> list[Replay]:
        """An arm's replays, the cheapest first."""
        key = (case, cold_start_s, arm, seed)
        found = [one for one in self.found if (one.case, one.cold_start_s, one.arm, one.seed) == key]
        return sorted(found, key=lambda one: one.replica_hours)

    def outrider(self, case: str, cold_start_s: float, seed: int) -> Replay:
        """Outrider's one replay."""
        return self.of(case, cold_start_s, "outrider", seed)[0]

    def arms(self, case: str, cold_start_s: float) -> list[str]:
        """Baselines that were played there."""
        return [arm for arm in BASELINES if self.of(case, cold_start_s, arm, 0)]

    def frontier(self, case: str, cold_start_s: float, arm: str, seed: int) -> Frontier:
        """What an arm's settings buy."""
        played = self.of(case, cold_start_s, arm, seed)
        return Frontier.of([(one.replica_hours, floored(one.misses, one.num_requests)) for one in played])

    def misses(self, case: str, cold_start_s: float, arm: str, seed: int) -> float | None:
        """An arm's share of misses at Outrider's replica-hours; None where each of its settings costs more."""
        frontier, mine = self.frontier(case, cold_start_s, arm, seed), self.outrider(case, cold_start_s, seed)
        return None if frontier.hours[0] > mine.replica_hours else frontier.misses_at(mine.replica_hours)

    def gain_points(self, case: str, cold_start_s: float, seed: int, arms: Sequence[str] = BASELINES) -> float | None:
        """Outrider's attainment less the best of these arms' at Outrider's replica-hours; None without any."""
        mine = self.outrider(case, cold_start_s, seed)
        others = [self.misses(case, cold_start_s, arm, seed) for arm in arms if self.of(case, cold_start_s, arm, seed)]
        known = [one for one in others if one is not None]
        return 100.0 * (min(known) - floored(mine.misses, mine.num_requests)) if known else None

    def hours(self, case: str, cold_start_s: float, arm: str, seed: int) -> float | None:
        """What an arm needs for Outrider's attainment; None where it never reaches it, at fewer hours than Outrider's.

        One that does not reach it with more hours than Outrider counts with those: it needs even more.
        """
        frontier, mine = self.frontier(case, cold_start_s, arm, seed), self.outrider(case, cold_start_s, seed)
        misses = floored(mine.misses, mine.num_requests)
        if misses < frontier.misses[-1] and frontier.hours[-1] < mine.replica_hours:
            return None
        return frontier.hours_at(misses)

    def saved_percent(self, case: str, cold_start_s: float, seed: int, arms: Sequence[str] = BASELINES) -> float | None:
        """How many replica-hours Outrider takes less than the cheapest of these arms at equal attainment."""
        needed = [self.hours(case, cold_start_s, arm, seed) for arm in arms if self.of(case, cold_start_s, arm, seed)]
        known = [one for one in needed if one is not None]
        mine = self.outrider(case, cold_start_s, seed).replica_hours
        return 100.0 * (1.0 - mine / min(known)) if known else None

    def gap_points(self, case: str, cold_start_s: float, seed: int) -> float | None:
        """The oracle's attainment at Outrider's replica-hours less Outrider's."""
        gain = self.gain_points(case, cold_start_s, seed, ("oracle",))
        return None if gain is None else -gain


def headline(table: Table) -> dict[str, Figure]:
    """All figures."""
    loads = [(case, cold_s) for case in table.cases("trace", "day") for cold_s in table.cold_starts(case)]
    days = [(case, cold_s) for case, cold_s in loads if case in table.cases("day")]
    stated = [(case, cold_s) for case, cold_s in loads if cold_s == STATED_S]
    still = [(case, cold_s) for case in table.cases("constant") for cold_s in table.cold_starts(case)]

    def each(of: list[tuple[str, float]], value: str) -> dict[str, list[float | None]]:
        measure = getattr(table, value)
        return {_where(*one): [measure(*one, seed) for seed in table.seeds(one[0])] for one in of}

    in_flight = {
        _where(*one): [table.gain_points(*one, seed, ("in-flight",)) for seed in table.seeds(one[0])] for one in loads
    }
    patches = {
        _where(*one): [(mine := table.outrider(*one, seed)).patches / mine.hours for seed in table.seeds(one[0])]
        for one in loads
    }
    turns = {_where(*one): [table.outrider(*one, seed).reversals for seed in table.seeds(one[0])] for one in still}
    moved = {_where(*one): [table.outrider(*one, seed).patches for seed in table.seeds(one[0])] for one in still}
    return {
        "attainment_gain_min_points": worst(each(loads, "gain_points"), least=True),
        "attainment_gain_in_flight_min_points": worst(in_flight, least=True),
        "replica_hours_saved_percent": worst(each(days, "saved_percent"), least=True),
        "oscillations_constant_load": worst(turns, least=False),
        "target_patches_per_hour_max": worst(patches, least=False),
        "target_patches_constant_load": worst(moved, least=False),
        "gap_to_oracle_points": worst(each(stated, "gap_points"), least=False),
    }


def worst(values: Mapping[str, Sequence[float | None]], *, least: bool) -> Figure:
    """The case with the least, or the most, median over its seeds; cases without a value are left out."""
    known = {where: [one for one in of if one is not None] for where, of in values.items()}
    known = {where: of for where, of in known.items() if of}
    if not known:
        return Figure(None)
    where = (min if least else max)(known, key=lambda one: median(known[one]))
    return Figure.of(known[where], where)


def _where(case: str, cold_start_s: float) -> str:
    return f"{case}, {cold_start_s:g} s"
