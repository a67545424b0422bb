"""``make bench-footprint``: what the image adds to its base, and how long the command takes to start.

The image itself needs a Docker engine and a registry; what it installs does not. So its two lines of pip are carried
out here, into a folder of their own, and the folder is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.markdown import rounded, table_lines, text

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "docs/benchmarks"
RUNS = 9
SHOWN_MIB = 2.0
"""Smaller packages are told as one."""
STARTS = {
    "`python -c pass`": "pass",
    "`outrider --help`": "import outrider.cli.main",
    "`outrider explain`": "import outrider.cli.main, outrider.cli.explaining",
    "`outrider simulate`": "import outrider.cli.main, outrider.replay.runner",
    "`outrider run`": "import outrider.cli.main, outrider.handlers",
}
"""What a command imports before it does anything."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Install, measure, and write both files."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.footprint", description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder for footprint.json and footprint.md")
    chosen = parser.parse_args(arguments)
    with TemporaryDirectory() as name:
        folder = Path(name)
        print("installing what the image installs ...", file=sys.stderr, flush=True)
        install(folder / "installed", folder / "wheel")
        found = {
            "python": platform.python_version(),
            "processor": f"{platform.machine()}, {os.cpu_count()} cores",
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "installed_mib": sizes(folder / "installed"),
            "start_seconds": {what: start_seconds(folder / "installed", code) for what, code in STARTS.items()},
        }
    chosen.output.mkdir(parents=True, exist_ok=True)
    (chosen.output / "footprint.json").write_text(json.dumps(found, indent=1) + "\n")
    (chosen.output / "footprint.md").write_text(page(found))
    print(page(found))


def install(folder: Path, wheel: Path) -> None:
    """As `operator/Dockerfile` does."""
    options = "--quiet --disable-pip-version-check --upgrade --target"
    pip = [sys.executable, "-m", "pip", "install", *options.split(), str(folder)]
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheel)]
    subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pinned = str(ROOT / "requirements/operator.txt")
    subprocess.run([*pip, "--only-binary", ":all:", "--require-hashes", "-r", pinned], check=True)
    subprocess.run([*pip, "--no-index", "--no-deps", *map(str, wheel.glob("outrider-*.whl"))], check=True)


def sizes(folder: Path) -> dict[str, float]:
    """MiB by package, largest first; compiled modules count, for the image brings them too."""
    found: dict[str, float] = defaultdict(float)
    for one in distributions(path=[str(folder)]):
        found[one.metadata["Name"]] += sum(path.stat().st_size for path in _files(one, folder)) / 2**20
    return {name: rounded(size) for name, size in sorted(found.items(), key=lambda item: -item[1])}


def _files(package: Distribution, folder: Path) -> list[Path]:
    """Each once: the record lists a compiled module under a name of its own."""
    paths = {Path(str(one.locate())) for one in package.files or ()}
    compiled = {
        path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
        for path in paths
        if path.suffix == ".py"
    }
    return [path for path in paths | compiled if path.is_file() and folder in path.resolve().parents]


def start_seconds(folder: Path, code: str) -> float:
    """Median of the time that a new process takes."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    taken = []
    for _ in range(RUNS):
        began_s = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        taken.append(time.perf_counter() - began_s)
    return float(rounded(median(taken)))


def page(found: dict[str, Any]) -> str:
    """The page of the figures."""
    installed = found["installed_mib"]
    shown = {name: size for name, size in installed.items() if size >= SHOWN_MIB}
    rest = len(installed) - len(shown)
    rows = [*shown.items(), (f"{rest} others", sum(installed.values()) - sum(shown.values()))]
    lines = [
        "# What the operator's image holds, and how fast it starts",
        "",
        f"Written by `make bench-footprint` on {found['date']}, with Python {found['python']} on {found['processor']}."
        " Do not edit.",
        "",
        f"The image adds **{sum(installed.values()):.0f} MiB** to its base `python:3.11-slim`, before compression: the"
        " packages that `requirements/operator.txt` pins, and Outrider, each with its compiled modules. The image"
        " itself was not built: no Docker engine and no registry could be reached.",
        "",
        *table_lines(["package", "MiB"], [[name, text(size)] for name, size in rows]),
        "",
        "Kept although large: `kubernetes` has a module for every kind of every group, of which the operator imports"
        " the client alone; scipy and numpy carry the fit of step times and the quantiles of proofs, where own code"
        " would have to be proven first.",
        "",
        "## Starts",
        "",
        f"Median of {RUNS} new processes, with compiled modules on the disk: what a command imports before it does"
        " anything.",
        "",
        *table_lines(["command", "s"], [[what, text(seconds)] for what, seconds in found["start_seconds"].items()]),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
