"""``python -m benchmarks.policy``: all arms on all cases, then the figures, the page and its plots."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from benchmarks.figures import told
from benchmarks.policy import cases, outcome, page, traces
from benchmarks.policy.cases import Case
from benchmarks.policy.headline import Table, headline
from benchmarks.policy.outcome import Outcome
from benchmarks.policy.traces import Frontiers, Replay
from benchmarks.pool import play_all

Job = Callable[[], Outcome | Replay]
OUTPUT = Path("docs/benchmarks")
MOST_SEEDS = max(cases.FULL.seeds.values())
QUICK_OUTPUT = Path("build/benchmarks")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policy", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer seeds, levels and minutes: under a minute")
    parser.add_argument(
        "--seeds", type=int, default=MOST_SEEDS, help="at most so many of each group; the page says how many"
    )
    parser.add_argument("--jobs", type=int, default=min(2, multiprocessing.cpu_count()), help="processes")
    parser.add_argument("--output", type=Path, help="folder for policy.json, policy.md and the plots")
    parser.add_argument("--only", default="", help="run only cases whose name begins so, and print their decisions")
    parser.add_argument("--seed", type=int, default=0, help="the seed that --only plays")
    chosen = parser.parse_args(arguments)
    size = cases.QUICK if chosen.quick else cases.FULL
    size = replace(size, seeds={group: min(seeds, chosen.seeds) for group, seeds in size.seeds.items()})
    every = cases.cases(size)
    if chosen.only:
        explain([case for case in every if case.name.startswith(chosen.only) and case.seed == chosen.seed])
        return
    began_s = time.perf_counter()
    extent = traces.QUICK if chosen.quick else traces.FULL
    # The traces first: they are long, and the last jobs should be short so that the workers end together.
    jobs: list[Callable[[], Replay | Outcome]] = [*traces.replays(extent)]
    jobs += [partial(_play, case, arm) for case in every for arm in case.arms]
    found = play_all(jobs, chosen.jobs)
    wall_s = time.perf_counter() - began_s
    table = Table(one for one in found if isinstance(one, Outcome))
    frontiers = Frontiers([one for one in found if isinstance(one, Replay)])
    figures = headline(table, frontiers)
    page.write(
        table,
        frontiers,
        figures,
        chosen.output or (QUICK_OUTPUT if chosen.quick else OUTPUT),
        {
            "command": _command(chosen),
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "replayed_hours": round(sum(case.duration_s * len(case.arms) for case in every) / 3600.0, 1),
            "wall_minutes": round(wall_s / 60.0, 1),
            "processes": chosen.jobs,
            "seeds": {**size.seeds, "trace": extent.seeds},
            "quick": chosen.quick,
        },
    )
    print(told(figures))


def _command(chosen: argparse.Namespace) -> str:
    if chosen.seeds < MOST_SEEDS:
        return f"python -m benchmarks.policy --seeds {chosen.seeds}" + (" --quick" if chosen.quick else "")
    return "make bench-policy" + (" QUICK=1" if chosen.quick else "")


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


def _play(case: Case, arm: str) -> Outcome:
    return outcome.run(case, arm)[0]


if __name__ == "__main__":
    main()
