"""The page of ``outrider report``: plots, sums and decisions of a service in a period, in one file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from outrider.cli.report_data import MEASURED, WANTED
from outrider.cli.status_view import in_words
from outrider.replay.charts import Line, Panel
from outrider.replay.html import number, table, whole
from outrider.replay.words import time_of_day

STYLES: Mapping[str, str] = {MEASURED: "outrider", WANTED: "oracle"}
Document = Mapping[str, Any]


def render(document: Document, command: str) -> str:
    """The page; ``command`` is what made it."""
    title = f"{document['service']['namespace']}/{document['service']['name']}: speculation and replicas"
    body = [
        f"<p class=soft>outrider report {escape(document['outrider'])}</p>",
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(document['model'])}, {escape(_period(document))}. At the end: {escape(document['state'])}"
        + (f", {escape(in_words(document['schedule']))}" if document["schedule"] else "")
        + ".</p>",
        *(f"<p><strong>{escape(sentence)}</strong></p>" for sentence in headline(document)),
        _totals(document),
        *_saved(document),
        "<h2>Over time</h2>",
        "<p class=soft>Solid: measured, over a minute or two points of a plot if that is longer. Dashed: what the"
        " operator wants or estimates. Dotted uprights are decisions that status keeps.</p>",
        *(panel.render() for panel in _panels(document)),
        *_steps(document),
        *_decisions(document),
        *_events(document),
        f"<p class=soft>From {escape(document['store'])}. Made by</p><pre>{escape(command)}</pre>",
    ]
    return whole(title, body, document)


def headline(document: Document) -> Iterator[str]:
    """What most readers want to know, in a sentence or two."""
    totals, saved = document["totals"], document["saved"]
    if not totals["output_tokens"]:
        yield "No token was generated in this period, as far as the metrics store knows."
        return
    words = f"{totals['output_tokens']:,.0f} output tokens"
    if totals["acceptance_length"] is not None:
        words += f", {totals['acceptance_length']:.2f} of them a step with drafts"
    met, percentile = totals["tpot_met"], document["objectives"]["percentile"]
    if met is not None:
        verdict = "met" if met >= percentile else "missed"
        asked = f"{100 * percentile:g} % of the requests are asked for, {100 * met:.1f} % were within it"
        words += f"; the TPOT objective was {verdict}: {asked}"
    yield words + "."
    if saved is not None and saved["gpu_hours"] >= 0:
        yield (
            f"Speculation saved about {saved['gpu_hours']:,.2f} GPU-hours, {100 * saved['share']:.0f} % of what"
            " decoding would have taken without a drafter."
        )
    elif saved is not None:
        yield f"Speculation cost about {-saved['gpu_hours']:,.2f} GPU-hours more than it gave."


def _period(document: Document) -> str:
    from datetime import UTC, datetime

    begin_s, length_s = document["begins_at_s"], document["edges_s"][-1]
    first, last = (datetime.fromtimestamp(one, UTC) for one in (begin_s, begin_s + length_s))
    return f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"


def _totals(document: Document) -> str:
    totals, objectives = document["totals"], document["objectives"]
    drafted, accepted = totals["drafted_tokens"], totals["accepted_tokens"]
    kept = accepted / drafted if drafted and accepted is not None else None
    rows = [
        ("Output tokens", number(totals["output_tokens"], 0)),
        ("Prompt tokens", number(totals["prompt_tokens"], 0)),
        ("Drafted tokens", number(drafted, 0)),
        ("Accepted of them", f"{number(accepted, 0)} ({number(kept, 1, 100)} %)"),
        ("Tokens a step with drafts", number(totals["acceptance_length"], 2)),
        ("GPU-hours of scraped engines", number(totals["gpu_hours"], 2)),
        (
            "Schedule changes, target changes",
            f"{_count(totals, 'schedule_changes')}, {_count(totals, 'target_changes')}",
        ),
    ]
    for name, key in (("TPOT", "tpot"), ("TTFT", "ttft")):
        if objectives[f"{key}_s"] is not None:
            share = (
                f"{number(totals[f'{key}_met'], 1, 100)} % of the requests, {100 * objectives['percentile']:g} % asked"
            )
            rows.append((f"{name} within {1e3 * objectives[f'{key}_s']:g} ms", share))
    return table(("", "n:"), [(escape(name), value) for name, value in rows])


def _count(totals: Mapping[str, Any], key: str) -> str:
    return number(totals[key], 0)


def _saved(document: Document) -> Iterator[str]:
    saved = document["saved"]
    yield "<h2>GPU-hours saved</h2>"
    if saved is None:
        yield (
            "<p>Not known: it takes steps counted by the runtime plugin, drafts, and step times without drafts, either"
            " measured at K = 0 or from the operator's memory.</p>"
        )
        return
    rows = [
        ("Decoding, as it was", number(saved["busy_gpu_hours"], 3)),
        ("Without a drafter, estimated", number(saved["busy_gpu_hours"] + saved["gpu_hours"], 3)),
        ("Saved", number(saved["gpu_hours"], 3)),
    ]
    yield table(("decode-only steps", "n:GPU-hours"), rows)
    covered = "" if saved["covered"] > 0.995 else f" {100 * saved['covered']:.0f} % of the steps could be compared."
    yield f"<p class=soft>Assumed: {escape(saved['assumption'])}{covered}</p>"


def _panels(document: Document) -> list[Panel]:
    edges, objectives = document["edges_s"], document["objectives"]
    marks = [(one["at_s"], "") for one in document["decisions"]]
    share = f"{100 * objectives['percentile']:g}th percentile"

    def panel(key: str, title: str, unit: str, **more: Any) -> Panel:
        lines = [
            Line(one["name"], one["timeline"][key], STYLES[one["name"]])
            for one in reversed(document["policies"])
            if key in one["timeline"]
        ]
        return Panel(key, title, unit, lines, edges, marks=marks, begins_at_s=document["begins_at_s"], **more)

    def bound(objective_s: float | None) -> tuple[float, str] | None:
        return None if objective_s is None else (1e3 * objective_s, f"objective {1e3 * objective_s:g} ms")

    panels = [
        panel("tokens_tps", "Output tokens", "tokens/s"),
        panel("speculative_tokens", "K: drafted tokens a draft; dashed: of the schedule at the median batch", "tokens"),
        panel("acceptance_length", "Tokens a step with drafts; dashed: the operator's estimate", "tokens"),
        panel("tpot_s", f"Time per output token, {share}", "ms", factor=1e3, bound=bound(objectives["tpot_s"])),
        panel("ttft_s", f"Time to first token, {share}", "ms", factor=1e3, bound=bound(objectives["ttft_s"])),
        panel("in_flight", "Requests in flight a replica; dashed: the autoscaler's target", "requests"),
        panel("replicas", "Engines that were scraped; dashed: replicas wanted", "replicas", steps=True, integer=True),
    ]
    # A plot without a single point says less than none.
    return [one for one in panels if any(value is not None for line in one.lines for value in line.values)]


def _steps(document: Document) -> Iterator[str]:
    steps = document["steps"]
    total = sum(one["steps"] for one in steps)
    if total:
        yield "<h2>Which K ran</h2>"
        rows = [
            (
                str(one["speculative_tokens"]), number(one["steps"], 0), number(one["steps"] / total, 1, 100),
                number(one["seconds"] / one["steps"], 2, 1e3), number(one["requests"] / one["steps"], 1),
            )
            for one in steps
        ]  # fmt: skip
        yield table(("n:K", "n:decode-only steps", "n:%", "n:mean step, ms", "n:mean batch"), rows)


def _decisions(document: Document) -> Iterable[str]:
    yield "<h2>Decisions</h2>"
    if not document["decisions"]:
        yield "<p>Of the last five, which status keeps, none falls into this period.</p>"
        return
    yield table(
        ("n:time, UTC", "what", "change", "reason"),
        [
            (
                _clock(document, one["at_s"]),
                escape(one["kind"]),
                escape(f"{one['before']} → {one['after']}"),
                escape(one["reason"]),
            )
            for one in document["decisions"]
        ],
    )


def _events(document: Document) -> Iterable[str]:
    if document["events"]:
        yield "<h2>Events</h2><p class=soft>Of the service, as long as the cluster keeps them: an hour by default.</p>"
        rows = [
            (_clock(document, one["at_s"]), escape(one["type"]), escape(one["reason"]), escape(one["message"]))
            for one in document["events"]
        ]
        yield table(("n:time, UTC", "type", "reason", "message"), rows)


def _clock(document: Document, at_s: float) -> str:
    return time_of_day(document["begins_at_s"] + at_s, seconds=True)
