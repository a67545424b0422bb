"""``python -m benchmarks.canary``: all comparisons, then the figures and the page."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from benchmarks.canary import page
from benchmarks.canary.cases import cases
from benchmarks.canary.comparisons import joined, parts, play
from benchmarks.canary.headline import Table, headline
from benchmarks.figures import told
from benchmarks.pool import play_all

OUTPUT = Path("docs/benchmarks")
QUICK_OUTPUT = Path("build/benchmarks")
COMPARISONS, OTHERS = 2000, 250
QUICK, QUICK_OTHERS = 60, 20


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.canary", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few comparisons of each kind: a minute or two")
    parser.add_argument("--jobs", type=int, default=min(2, multiprocessing.cpu_count()), help="processes")
    parser.add_argument("--output", type=Path, help="folder for canary.json and canary.md")
    parser.add_argument(
        "--comparisons", type=int, help="of each kind where boots differ as published; the page says it"
    )
    parser.add_argument("--others", type=int, help="of each kind of other arrangements; 0 leaves them out")
    chosen = parser.parse_args(arguments)
    usual = (QUICK, QUICK_OTHERS) if chosen.quick else (COMPARISONS, OTHERS)
    sizes = [chosen.comparisons or usual[0], usual[1] if chosen.others is None else chosen.others]
    every = cases(*sizes)
    began_s = time.perf_counter()
    outcomes = joined(play_all([partial(play, part) for case in every for part in parts(case)], chosen.jobs))
    table = Table(outcomes)
    figures = headline(table)
    page.write(
        table,
        figures,
        chosen.output or (QUICK_OUTPUT if chosen.quick else OUTPUT),
        {
            "command": _command(chosen),
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "comparisons": sum(len(one.verdicts) for one in outcomes),
            "wall_minutes": round((time.perf_counter() - began_s) / 60.0, 1),
            "processes": chosen.jobs,
            "quick": chosen.quick,
        },
    )
    print(told(figures))


def _command(chosen: argparse.Namespace) -> str:
    if chosen.comparisons is None and chosen.others is None:
        return "make bench-canary" + (" QUICK=1" if chosen.quick else "")
    named = {"comparisons": chosen.comparisons, "others": chosen.others}
    options = "".join(f" --{name} {value}" for name, value in named.items() if value is not None)
    return "python -m benchmarks.canary" + (" --quick" if chosen.quick else "") + options


if __name__ == "__main__":
    main()
