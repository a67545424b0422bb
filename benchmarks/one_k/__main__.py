"""``python -m benchmarks.one_k``: the day by roll-out and with each K, then the figures and the page."""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from benchmarks.figures import told
from benchmarks.one_k import page
from benchmarks.one_k.day import DAY_S, ROLLED, arms, play
from benchmarks.one_k.headline import headline
from benchmarks.pool import play_all

OUTPUT = Path("docs/benchmarks")
SEEDS = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one_k", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--hours", type=float, default=24.0, help="of the day")
    parser.add_argument(
        "--arms", nargs="*", choices=list(arms()), help="play these alone, and take the others from the last run"
    )
    parser.add_argument("--jobs", type=int, default=min(2, multiprocessing.cpu_count()), help="processes")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder for one_k.json and one_k.md")
    chosen = parser.parse_args(arguments)
    names = list(arms()) if chosen.arms is None else chosen.arms
    jobs = [
        partial(play, name, arms()[name], seed, rolls=name == ROLLED, day_s=DAY_S * chosen.hours / 24.0)
        for seed in range(chosen.seeds)
        for name in names
    ]
    played = {(one.name, one.seed): one for one in play_all(jobs, chosen.jobs)} if jobs else {}
    kept = page.read(chosen.output) if chosen.arms is not None else {}
    found = list((kept | played).values())
    figures = headline(found)
    about = {
        "command": f"python -m benchmarks.one_k --seeds {chosen.seeds}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "hours": chosen.hours,
        "processor_minutes": round(sum(one.took_s for one in found) / 60.0, 1),
    }
    page.write(found, figures, about, chosen.output)
    print(told(figures))


if __name__ == "__main__":
    main()
