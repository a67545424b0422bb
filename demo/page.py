"""The demo's result as one HTML page that needs nothing but itself."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #212529; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
td, th { padding: .3rem .7rem; border-bottom: 1px solid #dee2e6; text-align: left; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { background: #f1f3f5; padding: .1rem .3rem; } img { max-width: 100%; }
.good { color: #2b8a3e; } .bad { color: #c92a2a; } .note { color: #495057; }
"""
ARM_TITLES = {
    "outrider": "Outrider, live",
    "outrider_virtual": "Outrider, virtual time",
    "best_fixed": "best fixed K",
    "worst_fixed": "worst fixed K",
}
FACTS = (
    ("engine_pods_replaced_by_tuning", "Engine pods replaced by tuning"),
    ("schedule_changes", "Schedule changes"),
    ("ack_ms_p50", "Acknowledged by all pods, median, ms"),
    ("ack_ms_max", "Acknowledged by all pods, slowest, ms"),
    ("seconds_from_drop_to_change", "From the drop in acceptance to engines with another K, s"),
    ("target_patches", "Patches of the autoscaler's target, in place"),
    ("replicas_min", "Fewest replicas"),
    ("replicas_max", "Most replicas"),
    ("replicas_end", "Replicas at the end"),
)


def arm_title(name: str, arm: Mapping[str, Any]) -> str:
    """How an arm is called wherever it is shown."""
    k = arm.get("speculative_tokens")
    return ARM_TITLES[name] + ("" if k is None else f" = {k}")


def write(path: Path, document: Mapping[str, Any], picture: Path, command: str) -> None:
    """Write the page."""
    data = base64.b64encode(picture.read_bytes()).decode()
    verdict = "<p class=good>Everything that the demo promises was seen.</p>"
    if document["missed"]:
        verdict = "<p class=bad>Not seen in this run:</p>" + _list(document["missed"])
    story = document["scenario"]
    body = [
        "<h1>Outrider: speculation and replicas steered while a service serves</h1>",
        verdict,
        f'<img alt="Load, acceptance, K, time per token and replicas over time" src="data:image/png;base64,{data}">',
        "<h2>In numbers</h2>",
        _table(("", "n:"), [(title, document[key]) for key, title in FACTS]),
        f"<p class=note>Acknowledgement: {escape(document['ack_measured'])}.</p>",
        "<h2>Beside a fixed K</h2>",
        _arms(document),
        *(f"<p>{escape(sentence)}</p>" for sentence in document["comparison"]),
        f"<p class=note>{escape(document['arms_note'])}</p>",
        "<h2>Decisions</h2>",
        _decisions(document["decisions"]),
        "<h2>What is simulated</h2>",
        f"<p>Engines are {escape(story['engines'])}. API server, controllers, scheduler, KEDA, autoscaler, Prometheus"
        " and the operator under its service account are real and run as processes of one machine.</p>",
        f"<p>Load: {escape(story['trace'])}, its time warped to"
        f" {escape(_shape(story['requests_per_second_by_time']))} requests a second. Acceptance of each draft token:"
        f" {story['acceptance_per_token']['before']:g}, from {document['drop_s']:g} s on"
        f" {story['acceptance_per_token']['after_drop']:g}. Control period {story['control_period_s']:g} s, scrape"
        f" interval {story['scrape_interval_s']:g} s.</p>",
        f"<p>Made by <code>{escape(command)}</code>.</p>",
    ]
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>Outrider demo</title><style>{STYLE}</style>"
    path.write_text(head + "\n".join(body) + "</html>\n")


def _arms(document: Mapping[str, Any]) -> str:
    ranked_by = document["arms_ranked_by"]
    rows = [
        (
            arm_title(name, arm), arm["tokens_per_second"], arm["tpot_attainment_percent"], arm["replica_seconds"],
            arm[ranked_by], arm.get("target", "steered"),
        )
        for name in ARM_TITLES
        if (arm := document["arms"].get(name))
    ]  # fmt: skip
    titles = (
        "",
        "n:tokens a second",
        f"n:TPOT met, % ({document['percentile_asked']} asked)",
        "n:replica-seconds",
        "n:tokens within the objective a replica-second",
        "n:target",
    )
    return _table(titles, rows)


def _decisions(decisions: Iterable[Mapping[str, Any]]) -> str:
    rows = [
        (one["time_s"], one["service"], one["kind"], f"{one['from']} → {one['to']}", one["reason"]) for one in decisions
    ]
    return _table(("n:s", "service", "what", "change", "reason"), rows)


def _table(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; columns whose title begins with ``n:`` hold numbers."""
    kinds = [" class=n" if title.startswith("n:") else "" for title in titles]
    head = "".join(
        f"<th{kind}>{escape(title.removeprefix('n:'))}</th>" for kind, title in zip(kinds, titles, strict=True)
    )
    lines = [
        "<tr>"
        + "".join(f"<td{kind}>{escape(_text(cell))}</td>" for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    ]
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def _list(sentences: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences) + "</ul>"


def _text(cell: Any) -> str:
    return "–" if cell is None else str(cell)


def _shape(points: Iterable[Sequence[float]]) -> str:
    return ", ".join(f"{rate:g} at {time_s:.0f} s" for time_s, rate in points)
