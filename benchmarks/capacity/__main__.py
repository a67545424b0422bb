"""``python -m benchmarks.capacity``: all arms on all cases, then the figures, the page and its plots."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.capacity import cases, page
from benchmarks.capacity.headline import Table, headline
from benchmarks.capacity.replays import replays
from benchmarks.figures import told
from benchmarks.pool import play_all

OUTPUT = Path("docs/benchmarks")
QUICK_OUTPUT = Path("build/benchmarks")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capacity", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer loads, settings and minutes: under a minute")
    parser.add_argument("--jobs", type=int, default=min(2, multiprocessing.cpu_count()), help="processes")
    parser.add_argument("--seeds", type=int, default=1, help="of each case; recorded traces only differ in noise")
    parser.add_argument("--cold-starts", type=float, nargs="+", metavar="SECONDS", help="instead of the usual ones")
    parser.add_argument("--output", type=Path, help="folder for capacity.json, capacity.md and the plots")
    parser.add_argument("--only", default="", help="play only cases whose name begins so, print them, write nothing")
    chosen = parser.parse_args(arguments)
    extent = replace(cases.QUICK if chosen.quick else cases.FULL, seeds=chosen.seeds)
    if chosen.cold_starts:
        extent = replace(extent, cold_starts_s=tuple(chosen.cold_starts))
    if chosen.only:
        extent = replace(extent, cases=tuple(one for one in extent.cases if one.name.startswith(chosen.only)))
    jobs, began_s = list(replays(extent)), time.perf_counter()
    if not jobs:
        sys.exit(f"--only {chosen.only}: no case's name begins so")
    found = play_all(jobs, chosen.jobs)
    if chosen.only:
        for one in found:
            print(
                f"{one.case:24} cold start {one.cold_start_s:3.0f} s {one.arm:13} {one.setting:6g}:"
                f" {one.replica_hours:6.2f} replica-hours, {100 * one.misses:6.2f} % missed, {one.reversals} reversals,"
                f" {one.patches} patches, at most {one.most_replicas} replicas"
            )
        return
    table = Table(found)
    figures = headline(table)
    page.write(
        table,
        figures,
        chosen.output or (QUICK_OUTPUT if chosen.quick else OUTPUT),
        {
            "command": _command(chosen),
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "replays": len(jobs),
            "replayed_hours": round(sum(job.args[0].source.duration_s for job in jobs) / 3600.0, 1),
            "wall_minutes": round((time.perf_counter() - began_s) / 60.0, 1),
            "processes": chosen.jobs,
            "seeds": chosen.seeds,
            "quick": chosen.quick,
        },
    )
    print(told(figures))


def _command(chosen: argparse.Namespace) -> str:
    if chosen.cold_starts or chosen.seeds > 1:
        cold_starts = "".join(f" {one:g}" for one in chosen.cold_starts or ())
        return (
            "python -m benchmarks.capacity"
            + (" --quick" if chosen.quick else "")
            + (f" --seeds {chosen.seeds}" if chosen.seeds > 1 else "")
            + (f" --cold-starts{cold_starts}" if cold_starts else "")
        )
    return "make bench-capacity" + (" QUICK=1" if chosen.quick else "")


if __name__ == "__main__":
    main()
