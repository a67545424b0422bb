"""``python -m benchmarks.policy``: all arms on all cases, then the figures, the page and its plots."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.policy import cases, outcome, page
from benchmarks.policy.cases import Case
from benchmarks.policy.headline import Table, headline
from benchmarks.policy.outcome import Outcome

Job = tuple[Case, str]
OUTPUT = Path("docs/benchmarks")
QUICK_OUTPUT = Path("build/benchmarks")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policy", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer seeds, levels and minutes: under a minute")
    parser.add_argument("--jobs", type=int, default=min(2, multiprocessing.cpu_count()), help="processes")
    parser.add_argument("--output", type=Path, help="folder for policy.json, policy.md and the plots")
    parser.add_argument("--only", default="", help="run only cases whose name begins so, and print their decisions")
    parser.add_argument("--seed", type=int, default=0, help="the seed that --only plays")
    chosen = parser.parse_args(arguments)
    every = cases.cases(cases.QUICK if chosen.quick else cases.FULL)
    if chosen.only:
        explain([case for case in every if case.name.startswith(chosen.only) and case.seed == chosen.seed])
        return
    began_s = time.perf_counter()
    outcomes = play_all([(case, arm) for case in every for arm in case.arms], chosen.jobs)
    wall_s = time.perf_counter() - began_s
    table = Table(outcomes)
    figures = headline(table)
    page.write(
        table,
        figures,
        chosen.output or (QUICK_OUTPUT if chosen.quick else OUTPUT),
        {
            "command": "make bench-policy" + (" QUICK=1" if chosen.quick else ""),
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "replayed_hours": round(sum(case.duration_s * len(case.arms) for case in every) / 3600.0, 1),
            "wall_minutes": round(wall_s / 60.0, 1),
            "processes": chosen.jobs,
            "seeds": len({case.seed for case in every}),
            "quick": chosen.quick,
        },
    )
    for key, figure in figures.items():
        print(f"{key:<36} {'not measured' if figure.value is None else f'{figure.value:.4g}':>12}  {figure.where}")


def play_all(jobs: Sequence[Job], processes: int) -> list[Outcome]:
    """Every job; progress goes to stderr."""
    began_s, last_s, found = time.perf_counter(), 0.0, []
    with multiprocessing.Pool(processes) as pool:
        for one in pool.imap_unordered(_play, jobs):
            found.append(one)
            passed_s = time.perf_counter() - began_s
            if passed_s > last_s + 5.0 or len(found) == len(jobs):
                last_s = passed_s
                print(f"{len(found)} of {len(jobs)} replays, {passed_s:.0f} s", file=sys.stderr, flush=True)
    order = {(case.name, arm, case.seed): number for number, (case, arm) in enumerate(jobs)}
    return sorted(found, key=lambda one: order[one.case, one.arm, one.seed])


def explain(chosen: Iterable[Case]) -> None:
    """Outrider's decisions in some cases, with their reasons: where does it lose?"""
    for case in chosen:
        found, _, arm = outcome.run(case, "outrider")
        print(f"\n{case.name}, seed {case.seed}")
        bound = outcome.run(case, "oracle")[0] if "oracle" in case.arms else found
        for mine, best in zip(found.segments, bound.segments, strict=True):
            share = mine.token_goodput_tps / best.token_goodput_tps
            print(f"  level {mine.level:g}: {mine.token_goodput_tps:.0f} tokens/s, {share:.3f} of the oracle")
        if case.shift_s is not None:
            print(f"  step at {case.shift_s:.0f} s, followed after {found.adapt_s} s")
        for change in getattr(arm.controller, "changes", ()):
            print(f"  {change.at_s:6.0f} s {change.kind} {change.before} → {change.after}: {change.reason}")


def _play(job: Job) -> Outcome:
    return outcome.run(*job)[0]


if __name__ == "__main__":
    main()
