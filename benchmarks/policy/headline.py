"""The few numbers of the benchmark, each by its definition; `DEFINITIONS` says them in words for the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

import numpy as np

from benchmarks.figures import Figure, Target
from benchmarks.fit import measured
from benchmarks.policy.cases import CONSTANTS, LOW
from benchmarks.policy.outcome import Outcome
from benchmarks.policy.traces import Frontiers

SERVICES = 1000


TARGETS: Mapping[str, Target] = {
    "share_of_oracle_min": Target(0.98, True),
    "headroom_captured_percent": Target(90.0, True),
    "gain_vs_best_fixed_shift_percent": Target(10.0, True),
    "worst_vs_no_drafter_percent": Target(5.0, False),
    "low_load_loss_percent": Target(1.0, False),
    "adapt_seconds_p95": Target(60.0, False),
    "changes_in_6h_max": Target(3.0, False),
    "mape_heldout_load_percent": Target(6.0, False),
    "mape_heldout_k_percent": Target(7.0, False),
    "mape_extrapolated_percent": Target(10.0, False),
    "decision_ms_p99": Target(5.0, False),
    "trace_misses_ratio_worst": Target(1.0, False),
}

DEFINITIONS: Mapping[str, str] = {
    "share_of_oracle_min": "Token goodput over that of the oracle in the same steady case and seed, from the fifth"
    " minute on; median over seeds, then the smallest over all levels from 1 to 256 clients.",
    "headroom_captured_percent": "Levels from 1 to 256 clients in turn, in an order of the seed's. A run's score is the"
    " mean over levels of its token goodput over the oracle's, so that every level counts the same. Of the distance"
    " between the best constant K in hindsight (K 0 to 7, the best for that seed) and the oracle, the share that"
    " Outrider covers.",
    "gain_vs_best_fixed_shift_percent": "The same with acceptance stepping in the middle, once down and once up: the"
    " score over the best constant K's score in hindsight, less 1; median over seeds, the smaller of the two"
    " directions.",
    "worst_vs_no_drafter_percent": "Steady cases, those of hopeless acceptance included: how much less token goodput"
    " than the same engine running K = 0 throughout, at the worst level; 0 if nowhere less. K = 0 is what an engine"
    " with a drafter can fall back to without a restart.",
    "k0_tax_percent": "How much less token goodput an engine with a drafter yields at K = 0 than one without, at the"
    " worst level: the part of the distance to no drafter that no choice of K can recover.",
    "low_load_loss_percent": f"Steady cases up to {LOW} clients: how much less token goodput than the best constant K"
    " there, at the worst level; negative where Outrider is above it.",
    "adapt_seconds_p95": "Time from a step of acceptance to the moment from which the schedule in force yields, for"
    " good, at least 95 % of the best token goodput at the present batch by the true rows; 95th percentile over levels,"
    " directions and seeds, without the cases in which the old schedule is within 5 % of the new best.",
    "changes_in_6h_max": "Deliberate changes of schedule in six hours of steady Poisson load with three classes of"
    " acceptance, after five minutes of warm-up; the most of the loads played. A probe and its return are not counted.",
    "mape_heldout_load_percent": "Step-time error with one inner batch size left out (python -m benchmarks.fit).",
    "mape_heldout_k_percent": "Step-time error with one K left out (python -m benchmarks.fit).",
    "mape_extrapolated_percent": "Step-time error at batch 128 to 256 of a fit to batches up to 96"
    " (python -m benchmarks.fit).",
    "decision_ms_p99": "Processor time of one control pass (observe, learn, decide) of a service on one engine, 99th"
    " percentile over all passes of the benchmark.",
    "trace_misses_ratio_worst": "Autoscaled fleets on traces: Outrider's share of requests that miss TPOT or TTFT or"
    " are not answered, over the best baseline's at the replica-hours that Outrider took; the worst trace. A baseline's"
    " share is read off between its fixed targets, on a logarithmic scale.",
}


class Table:
    """Outcomes by case, arm and seed."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.outcomes = list(outcomes)
        self._by_key = {(one.case, one.arm, one.seed): one for one in self.outcomes}

    def groups(self, *groups: str) -> list[str]:
        """Names of the cases of some groups, or of all, by group and level."""
        found = {one.case: one.group for one in self.outcomes if not groups or one.group in groups}
        return sorted(found, key=lambda case: (found[case], self.level(case), case))

    @staticmethod
    def level(case: str) -> float:
        """The number at the end of a case's name, 0 without one."""
        last = case.rsplit("-", 1)[-1]
        return float(last) if last.replace(".", "").isdigit() else 0.0

    def seeds(self, case: str) -> list[int]:
        """Seeds that a case was played with."""
        return sorted({one.seed for one in self.outcomes if one.case == case})

    def at(self, case: str, arm: str, seed: int) -> Outcome:
        """One outcome."""
        return self._by_key[case, arm, seed]

    def arms(self, case: str) -> list[str]:
        """Arms of a case, as first met."""
        return list(dict.fromkeys(one.arm for one in self.outcomes if one.case == case))

    def ratio(self, case: str, arm: str, base: str) -> list[float]:
        """Token goodput of one arm over another's, mean over segments, one value a seed."""
        return [score(self.at(case, arm, seed), self.at(case, base, seed)) for seed in self.seeds(case)]

    def best_constant(self, case: str, seed: int) -> float:
        """Score of the best constant K in hindsight."""
        oracle = self.at(case, "oracle", seed)
        return max(score(self.at(case, arm, seed), oracle) for arm in self.arms(case) if arm in CONSTANTS)

    def best_single_constant(self, cases: Sequence[str]) -> str:
        """The constant K with the highest mean over some cases."""
        known = [arm for arm in self.arms(cases[0]) if arm in CONSTANTS]
        return max(known, key=lambda arm: sum(median(self.ratio(case, arm, "oracle")) for case in cases))


def score(one: Outcome, base: Outcome) -> float:
    """Mean over the segments of the ratio of token goodputs."""
    ratios = [
        mine.token_goodput_tps / other.token_goodput_tps
        for mine, other in zip(one.segments, base.segments, strict=True)
    ]
    return sum(ratios) / len(ratios)


def headline(table: Table, traces: Frontiers) -> dict[str, Figure]:
    """All figures that come from replays."""
    steady = table.groups("steady")
    low = [case for case in steady if table.level(case) <= LOW]
    passes = [seconds for one in table.outcomes for seconds in one.decisions_s]
    return {
        "share_of_oracle_min": _worst(steady, lambda case: table.ratio(case, "outrider", "oracle"), min),
        "headroom_captured_percent": _worst(["mixed-measured"], lambda case: _captured(table, case), min),
        "gain_vs_best_fixed_shift_percent": _worst(table.groups("shift"), lambda case: _gain(table, case), min),
        "worst_vs_no_drafter_percent": _not_below_zero(
            _worst([*steady, *table.groups("hostile")], lambda case: _loss(table.ratio(case, "outrider", "k0")), max)
        ),
        "k0_tax_percent": _worst(
            [*steady, *table.groups("hostile")], lambda case: _loss(table.ratio(case, "k0", "no-drafter")), max
        ),
        "low_load_loss_percent": _worst(low, lambda case: _loss_to_best_constant(table, case), max),
        "adapt_seconds_p95": _adapt(table, "outrider"),
        "changes_in_6h_max": _most([one for one in table.outcomes if one.group == "still"]),
        **_fit(),
        "decision_ms_p99": Figure(1e3 * float(np.quantile(passes, 0.99)) if passes else None),
        "trace_misses_ratio_worst": _worst(
            traces.traces, lambda name: [traces.ratio(name, seed) for seed in traces.seeds(name)], max
        ),
        f"cpu_s_of_{SERVICES}_services": Figure(SERVICES * sum(passes) / len(passes) if passes else None),
    }


def _fit() -> dict[str, Figure]:
    errors = measured.errors()
    shares = {"heldout_load": errors.batch, "heldout_k": errors.k, "extrapolated": errors.load}
    return {f"mape_{key}_percent": Figure(None if one is None else 100.0 * one) for key, one in shares.items()}


def _worst(cases: Sequence[str], values: Callable[[str], list[float]], worst: Callable[..., Figure]) -> Figure:
    figures = [Figure.of(values(case), case) for case in cases]
    return worst(figures, key=lambda figure: figure.value)


def _not_below_zero(figure: Figure) -> Figure:
    assert figure.value is not None
    return figure if figure.value > 0 else Figure(0.0, figure.lowest, figure.highest, figure.where)


def _captured(table: Table, case: str) -> list[float]:
    shares = []
    for seed, mine in zip(table.seeds(case), table.ratio(case, "outrider", "oracle"), strict=True):
        best = table.best_constant(case, seed)
        shares.append(100.0 * (mine - best) / (1.0 - best))
    return shares


def _gain(table: Table, case: str) -> list[float]:
    mine = table.ratio(case, "outrider", "oracle")
    return [
        100.0 * (own / table.best_constant(case, seed) - 1.0) for seed, own in zip(table.seeds(case), mine, strict=True)
    ]


def _loss(ratios: Sequence[float]) -> list[float]:
    return [100.0 * (1.0 - ratio) for ratio in ratios]


def _loss_to_best_constant(table: Table, case: str) -> list[float]:
    mine = table.ratio(case, "outrider", "oracle")
    return [
        100.0 * (1.0 - own / table.best_constant(case, seed)) for seed, own in zip(table.seeds(case), mine, strict=True)
    ]


def _adapt(table: Table, arm: str) -> Figure:
    seconds = [one.adapt_s for one in table.outcomes if one.arm == arm and one.adapt_s is not None]
    if not seconds:
        return Figure(None)
    slowest = max((one for one in table.outcomes if one.arm == arm), key=lambda one: one.adapt_s or 0.0)
    return Figure(float(np.quantile(seconds, 0.95)), min(seconds), max(seconds), slowest.case)


def _most(outcomes: Sequence[Outcome]) -> Figure:
    counts = [one.changes for one in outcomes]
    where = max(outcomes, key=lambda one: one.changes).case
    return Figure(max(counts), min(counts), max(counts), where)
