"""The result of `outrider simulate --gpu-quota` on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from outrider.core.words import count
from outrider.replay.html import number
from outrider.replay.words import clock

Document = Mapping[str, Any]


def show(document: Document, console: Console | None = None) -> None:
    """Print the inputs in a line, a table of the services, their replicas over time, and what was shared out when."""
    console = console or Console()
    console.print(headline(document), highlight=False)
    console.print(_services(document))
    for sentence in document["verdict"]:
        console.print(sentence, highlight=False)
    for note in document["notes"]:
        console.print(f"[bold]note[/bold]: {note}", highlight=False)
    console.print("\n[bold]replicas over time[/bold], each number from its time on")
    for one in document["services"]:
        console.print(f"{one['name']}: {replicas(one)}", highlight=False)
    console.print("\n[bold]who was limited when[/bold] (CapacityLimited)")
    limited = [(span["from_s"], one["name"], span) for one in document["services"] for span in one["limited"]]
    for _, name, span in sorted(limited, key=lambda row: row[:2]):
        console.print(
            f"{clock(span['from_s'])} to {clock(span['to_s'])} {name}: {span['message']}", highlight=False, markup=False
        )
    if not limited:
        console.print("nobody")
    if document["moves"]:
        console.print("\n[bold]moves[/bold]")
        for move in document["moves"]:
            console.print(f"{clock(move['at_s'])} {move['reason']}", highlight=False, markup=False)


def headline(document: Document) -> str:
    """What was replayed, in a sentence."""
    inputs = document["inputs"]
    return (
        f"{count(len(document['services']), 'service')} of {inputs['namespace']} on {inputs['gpu_quota']}"
        f" {inputs['gpu_resource']} over {clock(inputs['duration_s'])}; good tokens are those of requests within the"
        " objectives of their service"
    )


def replicas(service: Mapping[str, Any]) -> str:
    """The course of a service's replicas: ``00:00 1, 02:15 3``."""
    return ", ".join(f"{clock(one['at_s'])} {one['replicas']}" for one in service["replica_changes"])


TITLES = (
    "priority", "requests\nmet %", "good\ntokens/s", "TPOT p95\nms", "TTFT p95\nms", "mean\nreplicas", "most\nreplicas",
    "GPU-\nhours", "short\n% of time", "below\nits share",
)  # fmt: skip


def rows(document: Document) -> list[tuple[str, ...]]:
    """A row a service under ``service`` and `TITLES`, and one for all together; what cannot be added up stays out."""
    found = [
        (
            one["name"], str(one["priority"]), number(one["totals"]["requests_met"], 1, 100),
            number(one["totals"]["goodput_tps"], 0), number(one["totals"]["tpot_s"]["p95"], 1, 1e3),
            number(one["totals"]["ttft_s"]["p95"], 0, 1e3), number(one["totals"]["mean_replicas"], 2),
            str(one["totals"]["most_replicas"]), number(one["totals"]["gpu_seconds"] / 3600.0, 2),
            number(one["totals"]["short_share"], 1, 100), clock(one["totals"]["longest_below_share_s"]),
        )
        for one in document["services"]
    ]  # fmt: skip
    totals = document["together"]["totals"]
    return [
        *found,
        (
            "together", "", number(totals["requests_met"], 1, 100), number(totals["goodput_tps"], 0), "", "", "", "",
            number(totals["gpu_seconds"] / 3600.0, 2), "", "",
        ),
    ]  # fmt: skip


def _services(document: Document) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("service", no_wrap=True)
    for title in TITLES:
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows(document):
        table.add_row(*row)
    return table
