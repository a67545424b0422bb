"""``python -m benchmarks.gpu``: the runs on a GPU machine, and the page about them."""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

from benchmarks.gpu import engine, page, runs, session, shipped
from benchmarks.gpu.rows import read_all


def main(arguments: Sequence[str] | None = None) -> None:
    """One command: ``compare`` and ``profile`` anywhere, the others on the machine with the GPU and an engine."""
    parser = argparse.ArgumentParser(prog="benchmarks.gpu", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("gpu-results"), help="of rows, logs and models")
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
    sitting = commands.add_parser("session", help="all that is missing, most telling first")
    sitting.add_argument("--seconds", type=float, default=1400.0, help="the time there is")
    compare = commands.add_parser("compare", help="write the page from the rows: without a GPU")
    compare.add_argument("--output", type=Path, default=page.FOLDER, help="folder for gpu.json, gpu.md and the plot")
    commands.add_parser("profile", help="write the shipped profile of the card measured last: without a GPU")
    options = parser.parse_args(arguments)
    if options.command == "compare":
        page.write(page.Findings.of(), options.output)
    elif options.command == "profile":
        shipped.write(read_all(page.FOLDER / "gpu")[0][0], engine.rendered("Adaptive")[2].capture_size)
    else:
        options.folder.mkdir(exist_ok=True)
        _on_the_machine(options)


def _on_the_machine(options: argparse.Namespace) -> None:
    tuning = "Off" if "none" in vars(options).get("arms", "") else vars(options).get("tuning", "Adaptive")
    book = runs.Book(options.folder / f"results-{tuning.lower()}.jsonl", partial(print, flush=True))
    if options.command == "session":
        played = session.play(options.seconds, partial(_command, options.folder), time.monotonic)
        print("left out:", ", ".join(played.left_out) or "nothing", flush=True)
        print("failed:", ", ".join(played.failed) or "nothing", flush=True)
    elif options.command == "start":
        seconds = engine.start(options.folder.resolve(), tuning)
        book.add("start", tuning=tuning, seconds=round(seconds, 1), **_machine())
    elif options.command == "stop":
        engine.stop(options.folder.resolve())
    elif options.command == "calibrate":
        asyncio.run(runs.calibrate(book, engine.rendered("Adaptive")[2].values))
    elif options.command == "changes":
        asyncio.run(runs.changes(book, options.seconds, engine.rendered("Adaptive")[2].values))
    else:
        asyncio.run(runs.trace(book, options.arms.split(","), options.rounds, tuning))


def _command(folder: Path, words: Sequence[str], limit_s: float) -> bool:
    """One command in a process of its own, ended after so many seconds; whether it went well."""
    print("#", *words, flush=True)
    whole = [sys.executable, "-m", "benchmarks.gpu", "--folder", str(folder), *words]
    try:
        return subprocess.run(whole, timeout=limit_s, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


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
