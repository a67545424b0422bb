"""The result of `outrider simulate` on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from outrider.replay.words import clock


def show(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the inputs in a line, a table of the policies, and where each loses."""
    console = console or Console()
    console.print(headline(document), highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True)
    for title in (
        "tokens/s",
        "good/s",
        "TPOT p50\nms",
        "p95\nms",
        "met\n%",
        "TTFT p95\nms",
        "met\n%",
        "engines",
        "changes",
    ):
        table.add_column(title, justify="right", no_wrap=True)
    duration_s = document["inputs"]["duration_s"]
    for policy in document["policies"]:
        totals = policy["totals"]
        table.add_row(
            policy["name"],
            f"{totals['tokens_tps']:,.0f}",
            f"{totals['goodput_tps']:,.0f}",
            _times(1e3, totals["tpot_s"]["p50"]),
            _times(1e3, totals["tpot_s"]["p95"]),
            _times(100, totals["tpot_met"]),
            _times(1e3, totals["ttft_s"]["p95"]),
            _times(100, totals["ttft_met"]),
            f"{totals['replica_seconds'] / duration_s:.1f}",
            str(totals["schedule_changes"]),
        )
    console.print(table)
    if document["inputs"]["replicas"]["fixed"] is None:
        console.print(_replicas(document))
    for note in document["notes"]:
        console.print(f"[bold]note[/bold]: {note}", highlight=False)
    console.print("\n[bold]where each loses[/bold], good tokens by the interval of the request's arrival")
    for row in document["losses"]:
        console.print(f"{row['name']}: {100 * row['lost_share']:.1f} % lost; {row['sentence']}", highlight=False)


def _replicas(document: Mapping[str, Any]) -> Table:
    """What an autoscaled service took, and what its users got for it."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True)
    for title in (
        "requests\nmet %",
        "replica-\nhours",
        "GPU-\nhours",
        "most\nreplicas",
        "short\n% of time",
        "target\nchanges",
    ):
        table.add_column(title, justify="right", no_wrap=True)
    for policy in document["policies"]:
        totals = policy["totals"]
        table.add_row(
            policy["name"],
            f"{100 * totals['requests_met']:.1f}",
            f"{totals['replica_seconds'] / 3600.0:.2f}",
            f"{totals['gpu_seconds'] / 3600.0:.2f}",
            str(totals["most_replicas"]),
            _times(100, totals["short_share"]),
            str(totals["target_changes"]),
        )
    return table


def headline(document: Mapping[str, Any]) -> str:
    """What was replayed, in a sentence."""
    inputs = document["inputs"]
    objectives = inputs["objectives"]
    bounds = [
        f"{name} {1e3 * objectives[key]:g} ms"
        for name, key in (("TPOT", "tpot_s"), ("TTFT", "ttft_s"))
        if objectives[key] is not None
    ]
    fixed = inputs["replicas"]["fixed"]
    engines = (
        f"{inputs['replicas']['min']} to {inputs['replicas']['max']} engines, autoscaled,"
        f" {inputs['replicas']['cold_start_s']:g} s to start,"
        if fixed is None
        else f"{fixed} engine{'s' if fixed > 1 else ''}"
    )
    service = inputs["service"]
    return (
        f"{service['namespace']}/{service['name']} on {engines} over {clock(inputs['duration_s'])} of"
        f" {inputs['trace']} at {inputs['rate_factor']:g} times its rate; good tokens are those of requests within"
        f" {' and '.join(bounds) or 'no objective at all'}"
    )


def _times(factor: float, value: float | None) -> str:
    return "–" if value is None else f"{factor * value:,.1f}"
