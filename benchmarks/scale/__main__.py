"""``python -m benchmarks.scale``: every size on a cluster of its own, then the figures and the page."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.scale import page
from benchmarks.scale.alone import measure_alone
from benchmarks.scale.found import FULL, QUICK, Run
from benchmarks.scale.headline import headline
from benchmarks.scale.run import MANY, measure
from tests.testbed.build import ensure_tools
from tests.testbed.progress import line_reporter

OUTPUT = Path("docs/benchmarks")
QUICK_OUTPUT = Path("build/benchmarks")
SIZES, QUICK_SIZES = (100, 1000, 5000), (50,)
MINUTES = 60.0
PERIOD_S, SCRAPE_S = 15.0, 5.0
"""The operator's defaults."""
SETTINGS = {
    "OUTRIDER_CONTROL_PERIOD_S": f"{PERIOD_S:g}",
    "OUTRIDER_SCRAPE_INTERVAL_S": f"{SCRAPE_S:g}",
    "OUTRIDER_SCALE_DOWN_STABILIZATION_S": "300",
    "OUTRIDER_LOG_LEVEL": "INFO",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fifty services and short phases: three minutes")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help="numbers of services instead of the usual")
    parser.add_argument("--alone", action="store_true", help="control passes alone, without an API server's writes")
    parser.add_argument("--keep", action="store_true", help="keep other sizes that an earlier run wrote there")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for everything; what does not fit is left out")
    parser.add_argument("--output", type=Path, help="folder for scale.json, scale.md and the flame graph")
    chosen = parser.parse_args(arguments)
    began_s = time.monotonic()
    sizes = chosen.sizes or (QUICK_SIZES if chosen.quick else SIZES)
    folder = chosen.output or (QUICK_OUTPUT if chosen.quick else OUTPUT)
    runs = page.kept(folder, sizes) if chosen.keep else []
    for services in sizes:
        extent = QUICK if chosen.quick else FULL
        until_s = began_s + 60.0 * chosen.minutes
        if chosen.alone:
            run = Run(services, ended_at="its beginning: control passes alone were asked for")
        else:
            run = asyncio.run(measure(services, extent, SETTINGS, scrape_interval_s=SCRAPE_S, until_s=until_s))
        if not run.passes_s:
            alone = asyncio.run(measure_alone(services, SETTINGS, scrape_interval_s=SCRAPE_S))
            run.passes_alone_s, run.alone_with_metrics = alone.passes_alone_s, alone.alone_with_metrics
            run.alone_cpu_s, run.alone_peak_rss_mib = alone.alone_cpu_s, alone.alone_peak_rss_mib
        run.command = _command(chosen)
        runs.append(run)
        # After each size: whoever ends a run before its last one keeps what was found.
        page.write(sorted(runs, key=lambda run: run.services), folder, _about(chosen, began_s))
    for run in runs:
        print(f"{run.services} services")
        for figure, value in headline(run).items():
            print(f"  {figure:36} {'not measured' if value is None else f'{value:.4g}':>12}")


def _about(chosen: argparse.Namespace, began_s: float) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "wall_minutes": round((time.monotonic() - began_s) / 60.0, 1),
        "quick": chosen.quick,
        "hardware": {
            "cores": len(os.sched_getaffinity(0)),
            "processor": _processor(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        },
        "versions": _versions(),
        "settings": {"period": f"{PERIOD_S:g}", "scrape": f"{SCRAPE_S:g}", "many": f"{MANY:,}"},
    }


def _command(chosen: argparse.Namespace) -> str:
    if chosen.sizes or chosen.minutes != MINUTES:
        sizes = f" --sizes {' '.join(map(str, chosen.sizes))}" if chosen.sizes else ""
        minutes = f" --minutes {chosen.minutes:g}" if chosen.minutes != MINUTES else ""
        also = "".join(f" --{name}" for name in ("quick", "alone", "keep") if getattr(chosen, name))
        return f"python -m benchmarks.scale{also}{sizes}{minutes}"
    return "make bench-scale" + (" QUICK=1" if chosen.quick else "")


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "processor unknown"
    )


def _versions() -> dict[str, str]:
    tools = ensure_tools({"control", "prometheus"}, line_reporter())
    kubernetes = subprocess.run([tools["kube-apiserver"], "--version"], capture_output=True, text=True, check=True)
    return {
        "Outrider": version("outrider"),
        "Python": platform.python_version(),
        "Kubernetes": kubernetes.stdout.split()[-1].removeprefix("v"),
        "kopf": version("kopf"),
        "aiohttp": version("aiohttp"),
        "numpy": version("numpy"),
    }


if __name__ == "__main__":
    main()
