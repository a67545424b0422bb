"""Writes what was found: `scale.json` for programs, `scale.md` and the flame graph for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.markdown import rounded, table_lines, text
from benchmarks.scale import flame
from benchmarks.scale.found import STATUS, Run
from benchmarks.scale.headline import DEFINITIONS, TARGETS, headline, met, quantile

NOTES = Path(__file__).parent / "notes.md"
"""What people wrote about the last full run; it follows the figures."""
SETTING = (
    "The local cluster of [tests/testbed](../../tests/testbed/README.md): etcd, the API server and Prometheus as real"
    " processes, and one real operator beside them with a control period of {period} s. Every service is as in"
    " `examples/01-minimal.yaml` (adaptive tuning, autoscaling) and has one pod. All of it shares the cores named above"
    " with the client that plays users and with the engines.",
    "Engines are emulated: one process gives out a page of metrics for each hundred services, which Prometheus scrapes"
    " every {scrape} s, and answers on the admin port of every pod. A page has the families that the operator asks for,"
    " about ninety series an engine under constant load, each under the labels of our PodMonitor. An engine carries"
    " 6 to 28 requests with 3 % of noise from scrape to scrape, steps by a law of batch size and K, and follows the"
    " schedule that is delivered to it.",
    "Left out: KEDA and ScaledObjects, so no targets are patched; controllers, scheduler and kubelets, which the client"
    " stands for by making each Deployment's pod and both statuses, while the operator is away between its cold start"
    " and its restart; the series of an engine that the operator does not ask for, some 350, which would load"
    " Prometheus alone; PodMonitors, whose kind is not installed. Above {many} services the pods are there before the"
    " operator, so that its cold start is its only one, and statuses of Deployments are left out.",
)
PHASES = (
    ("resources written by the client, s", lambda run: run.created_s),
    ("cold start: all of them reconciled, s", lambda run: run.cold_start_s),
    ("restart: all looked at again, s", lambda run: run.restart_s),
    ("control pass at rest, p50, s", lambda run: quantile(run.passes_s, 0.5)),
    ("control pass at rest, p99, s", lambda run: quantile(run.passes_s, 0.99)),
    ("control passes seen at rest", lambda run: len(run.passes_s)),
    ("control pass under moving load, slowest, s", lambda run: quantile(run.passes_moving_s, 1.0)),
    ("control pass alone, without writes, p50, s", lambda run: quantile(run.passes_alone_s, 0.5)),
    ("control pass alone, slowest, s", lambda run: quantile(run.passes_alone_s, 1.0)),
    ("services with metrics in its last pass", lambda run: run.alone_with_metrics or None),
    ("processor time of all such passes, s", lambda run: run.alone_cpu_s),
    ("memory of that process, most, MiB", lambda run: run.alone_peak_rss_mib),
    ("one change to applied, others idle, p50, s", lambda run: quantile(run.single_s, 0.5)),
    ("one change to applied, others idle, p99, s", lambda run: quantile(run.single_s, 0.99)),
    ("changes of that kind", lambda run: len(run.single_s)),
    ("many changes at once, p50, s", lambda run: quantile(run.burst_s, 0.5)),
    ("many changes at once, p99, s", lambda run: quantile(run.burst_s, 0.99)),
    ("changes at once", lambda run: len(run.burst_s)),
    ("Prometheus queries a minute", lambda run: run.queries_per_minute if run.rest_minutes else None),
    ("API reads a minute at rest", lambda run: run.rest_reads / run.rest_minutes if run.rest_minutes else None),
    ("CPU at rest, cores", lambda run: run.rest_cpu_cores),
    ("memory at rest, MiB", lambda run: run.rest_rss_mib),
    ("memory, most, MiB", lambda run: run.peak_rss_mib),
    ("series in Prometheus", lambda run: run.series or None),
)  # fmt: skip
"""Rows of the table of phases."""


def write(runs: Sequence[Run], folder: Path, about: Mapping[str, Any]) -> None:
    """All three files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scale.json").write_text(json.dumps(document(runs, about), indent=1) + "\n")
    fresh = [run for run in runs if run.profile]
    if fresh and _hottest(fresh) is _hottest([run for run in runs if run.shares]):
        (folder / "scale-flame.svg").write_text(flame.svg(flame.read(_hottest(fresh).profile)))
    (folder / "scale.md").write_text("\n".join(page(runs, about)))


def document(runs: Sequence[Run], about: Mapping[str, Any]) -> dict[str, Any]:
    """What `scale.json` holds."""
    return {
        "headline": {str(run.services): {key: rounded(value) for key, value in headline(run).items()} for run in runs},
        "run": dict(about),
        "sizes": {str(run.services): _details(run) for run in runs},
    }


def _details(run: Run) -> dict[str, Any]:
    found = {key: rounded(value) for key, value in asdict(run).items() if key not in ("services", "profile", "shares")}
    for key in ("passes_s", "passes_moving_s", "passes_alone_s", "single_s", "burst_s"):
        found[key] = [rounded(value) for value in found[key]]
    found["profile"] = {part: rounded(share) for part, share in run.shares.items()}
    return found


def kept(folder: Path, sizes: Sequence[int]) -> list[Run]:
    """What an earlier run wrote there of sizes other than these."""
    try:
        earlier = json.loads((folder / "scale.json").read_text())
    except FileNotFoundError:
        return []
    return [
        Run(int(size), shares=details.pop("profile"), **details)
        for size, details in earlier["sizes"].items()
        if int(size) not in sizes
    ]


def page(runs: Sequence[Run], about: Mapping[str, Any]) -> list[str]:
    """The lines of `scale.md`."""
    hardware, versions = about["hardware"], about["versions"]
    return [
        "# The scale benchmark",
        "",
        f"Written by `{' && '.join(dict.fromkeys(run.command for run in runs))}`, the last of it on"
        f" {about['date']} in {about['wall_minutes']} minutes, on {hardware['cores']}"
        f" cores ({hardware['processor']}) and {hardware['memory_gib']} GiB of memory, with "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + ". Do not edit; what the figures mean for the reader is in the last section, which comes from"
        " `benchmarks/scale/notes.md`.",
        "",
        *(line for one in SETTING for line in (one.format(**about["settings"]), "")),
        *_figures(runs),
        *_phases(runs),
        *_writes(runs),
        *_profile(runs),
        *NOTES.read_text().splitlines(),
        "",
    ]


def _figures(runs: Sequence[Run]) -> list[str]:
    body = []
    for figure in DEFINITIONS:
        row = [f"`{figure}`"]
        for run in runs:
            size, value = str(run.services), headline(run)[figure]
            target, reached = TARGETS.get(size, {}).get(figure), met(size, figure, value)
            verdict = "" if reached is None else f" ({target}: {'met' if reached else '**missed**'})"
            row.append(text(value) + verdict)
        body.append(row)
    return [
        "## Figures", "",
        *table_lines(["figure", *(f"{run.services:,} services" for run in runs)], body), "",
        *(f"- `{figure}`: {words}" for figure, words in DEFINITIONS.items()), "",
        *(f"- At {run.services:,} services the run ended early, at {run.ended_at}." for run in runs if run.ended_at),
        *([""] if any(run.ended_at for run in runs) else []),
    ]  # fmt: skip


def _phases(runs: Sequence[Run]) -> list[str]:
    measured = [(what, [value(run) for run in runs]) for what, value in PHASES]
    body = [[what, *map(_cell, values)] for what, values in measured if values != [None] * len(runs)]
    return ["## Phases", "", *table_lines(["", *(f"{run.services:,}" for run in runs)], body), ""]


def _cell(value: float | None) -> str:
    return str(value) if isinstance(value, int) else text(value)


def _writes(runs: Sequence[Run]) -> list[str]:
    """Writes a minute by resource, at rest and under load that moves."""
    cells = {
        (run.services, when): {resource: number / minutes for resource, number in found.items()}
        for run in runs
        for when, found, minutes in (
            ("at rest", run.rest_writes, run.rest_minutes),
            ("moving", run.moving_writes, run.moving_minutes),
        )
        if minutes
    }
    resources = sorted({resource for found in cells.values() for resource in found} - {STATUS})
    body = [[f"`{one}`", *(text(found.get(one, 0.0)) for found in cells.values())] for one in (STATUS, *resources)]
    warned = {f"{run.services:,}": run.warnings for run in runs if run.warnings}
    changed = {f"{run.services:,}": run.rest_changes for run in runs if run.rest_changes}
    return [
        "## Writes to the API server, a minute", "",
        "From its audit log. Leases are the operator's own, renewed every two seconds. ConfigMaps are schedules and"
        " memory documents: one of each when a schedule changes, and the memory of every service every five minutes."
        " Moving: load and acceptance of every service rise and fall within two minutes.", "",
        *table_lines(["resource", *(f"{size:,}, {when}" for size, when in cells)], body), "",
        *(f"Decisions at rest with {size} services: {_counted(found)}." for size, found in changed.items()),
        *(["", *(f"The operator's warnings with {size} services: {_counted(found)}." for size, found in warned.items())]
          if warned else []), "",
    ]  # fmt: skip


def _counted(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name or 'no reason'} {number}" for name, number in found.items())


def _profile(runs: Sequence[Run]) -> list[str]:
    profiled = [run for run in runs if run.shares]
    if not profiled:
        return []
    columns = [run.shares for run in profiled]
    body = [[part, *(f"{100 * column[part]:.0f} %" for column in columns)] for part in (*flame.PARTS, "other")]
    return [
        "## Where the operator's time goes", "",
        "Shares of the stacks of running threads, sampled a hundred times a second under constant load with Python's"
        " own means, after the figures above were taken.", "",
        *table_lines(["part", *(f"{run.services:,}" for run in profiled)], body), "",
        f"![Flame graph of the operator with {_hottest(profiled).services} services](scale-flame.svg)", "",
        f"Flame graph of the operator with {_hottest(profiled).services:,} services: calls from the event loop and the"
        " threads down, as wide as their share; our own modules in orange.", "",
    ]  # fmt: skip


def _hottest(profiled: Sequence[Run]) -> Run:
    return max(profiled, key=lambda run: run.services)
