"""``python -m benchmarks.gpu``: the runs on a GPU machine, and the page about them."""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path

from benchmarks.gpu import engine, runs


def main() -> None:
    """One command, on the machine with the GPU; all but ``start`` and ``stop`` need a running engine."""
    parser = argparse.ArgumentParser(prog="benchmarks.gpu", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("gpu-results"), help="of results.jsonl, logs and models")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start", help="start an engine by the rendered command line")
    start.add_argument("--tuning", default="Adaptive", choices=["Adaptive", "Off"], help="Off: without a drafter")
    commands.add_parser("calibrate", help="step times by batch and K")
    trace = commands.add_parser("trace", help="the mixed load under each arm")
    trace.add_argument("arms", help="such as k1,k3,k5,outrider,threshold; none for an engine without a drafter")
    trace.add_argument("--rounds", type=int, default=3)
    changes = commands.add_parser("changes", help="random schedules under load")
    changes.add_argument("--seconds", type=float, default=60.0)
    commands.add_parser("stop", help="end the engine")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    book = runs.Book(options.folder / "results.jsonl", partial(print, flush=True))
    if options.command == "start":
        seconds = engine.start(options.folder.resolve(), options.tuning)
        book.add("start", tuning=options.tuning, seconds=round(seconds, 1), **_machine())
    elif options.command == "stop":
        engine.stop(options.folder.resolve())
    elif options.command == "calibrate":
        asyncio.run(runs.calibrate(book, engine.rendered("Adaptive")[2].values))
    elif options.command == "changes":
        asyncio.run(runs.changes(book, options.seconds, engine.rendered("Adaptive")[2].values))
    else:
        tuning = "Off" if options.arms == "none" else "Adaptive"
        asyncio.run(runs.trace(book, options.arms.split(","), options.rounds, tuning))


def _machine() -> dict[str, str]:
    """Card, driver and versions of what ran."""
    card = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = {"card": card.stdout.strip() or "unknown", "python": sys.version.split()[0]}
    return found | {name: version(name) for name in ("vllm", "torch", "triton")}


if __name__ == "__main__":
    main()
