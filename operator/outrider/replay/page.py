"""The result of `outrider simulate` as one HTML page that needs nothing but itself.

It carries the whole document, so that whoever has the page has the numbers behind its plots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from outrider.replay.charts import Line, Panel, Strips
from outrider.replay.html import number, table, whole
from outrider.replay.table import headline
from outrider.replay.words import clock, milliseconds

AS_MUCH = 0.005
"""A smaller difference in good tokens is not worth a ranking: another seed may turn it."""

ON_TOP = {"outrider": 1, "oracle": 2}
"""Lines drawn later than the others, in this order."""

Document = Mapping[str, Any]


def render(document: Document, command: str) -> str:
    """The page; ``command`` is what made it."""
    body = [
        f"<p class=soft>outrider simulate {escape(document['outrider'])}</p>",
        f"<h1>{escape(_title(document))}</h1>",
        f"<p>{escape(headline(document))}.</p>",
        f"<p><strong>{escape(verdict(document))}</strong></p>",
        *(f"<p>{escape(note)}</p>" for note in document["notes"]),
        _totals(document),
        "<h2>Over time</h2>",
        "<p class=soft>Latencies and good tokens are those of the requests that arrived in an interval; K, batch and"
        " replicas are means over its scrapes. Dotted uprights are shifts of acceptance. Names switch lines off"
        " and on.</p>",
        _legend(document),
        *(panel.render() for panel in _panels(document)),
        "<h2>Where each loses</h2>",
        _losses(document),
        *_decisions(document),
        "<h2>What was replayed</h2>",
        replayed(document["inputs"]),
        f"<p>Made by</p><pre>{escape(command)}</pre>",
    ]
    return whole(_title(document), body, document)


def verdict(document: Document) -> str:
    """Who yielded most good tokens, and how far the others are from it, in a sentence."""
    ranked = sorted(document["policies"], key=lambda one: -one["totals"]["goodput_tps"])
    best = ranked[0]["totals"]["goodput_tps"]
    less = {one["name"]: 1 - one["totals"]["goodput_tps"] / best if best else 0.0 for one in ranked[1:]}
    level = [name for name, share in less.items() if share < AS_MUCH]
    behind = [f"{name} {100 * share:.1f} % less" for name, share in less.items() if share >= AS_MUCH]
    words = [f"Most good tokens: {ranked[0]['name']}, {best:,.0f} a second"]
    words += [f"as many, within {100 * AS_MUCH:g} %: {', '.join(level)}"] if level else []
    timed = [(one["totals"]["tpot_s"]["p50"], one["name"]) for one in ranked]
    known = sorted((value, name) for value, name in timed if value is not None)
    fastest = f" Shortest median time per token: {known[0][1]}, {milliseconds(known[0][0])}." if known else ""
    return "; ".join(words + behind) + "." + fastest


def _title(document: Document) -> str:
    service = document["inputs"]["service"]
    return f"Speculation policies for {service['namespace']}/{service['name']}, replayed"


def _totals(document: Document) -> str:
    percentile, duration_s = document["inputs"]["objectives"]["percentile"], document["inputs"]["duration_s"]
    titles = (
        "policy", "n:tokens/s", "n:good tokens/s", "n:TPOT p50, ms", "n:TPOT p95, ms",
        f"n:TPOT met, % ({100 * percentile:g} asked)", "n:TTFT p95, ms", "n:TTFT met, %", "n:mean replicas",
        "n:good tokens a replica-second", "n:schedule changes", "n:target changes",
    )  # fmt: skip
    rows = []
    for policy in document["policies"]:
        totals = policy["totals"]
        rows.append((
            f"<span title=\"{escape(policy['description'])}\">{escape(policy['name'])}</span>",
            number(totals["tokens_tps"], 0), number(totals["goodput_tps"], 0),
            number(totals["tpot_s"]["p50"], 1, 1e3), number(totals["tpot_s"]["p95"], 1, 1e3),
            number(totals["tpot_met"], 1, 100), number(totals["ttft_s"]["p95"], 0, 1e3),
            number(totals["ttft_met"], 1, 100), number(totals["replica_seconds"] / duration_s, 2),
            number(totals["goodput_per_replica_tps"], 0), str(totals["schedule_changes"]),
            str(totals["target_changes"]),
        ))  # fmt: skip
    return table(titles, rows)


def _legend(document: Document) -> str:
    return legend("Policies shown", [(one["name"], one["description"], one["name"]) for one in document["policies"]])


def legend(label: str, lines: Iterable[tuple[str, str, str]]) -> str:
    """Buttons that switch lines off and on, by name, description and style."""
    buttons = "".join(
        f'<button type="button" aria-pressed="true" data-name="{escape(name)}" title="{escape(description)}">'
        f'<svg viewBox="0 0 26 8" aria-hidden="true"><path class="line {escape(style)}" d="M1 4H25"/></svg>'
        f"{escape(name)}</button>"
        for name, description, style in lines
    )
    return f'<div class="legend" role="group" aria-label="{label}">{buttons}</div>'


def _panels(document: Document) -> list[Panel | Strips]:
    edges, inputs = document["edges_s"], document["inputs"]
    named = [(one["at_s"], _shifted(one)) for one in inputs["shifts"]]
    marks = [(time_s, "") for time_s, _ in named]
    tpot_s, ttft_s = inputs["objectives"]["tpot_s"], inputs["objectives"]["ttft_s"]

    def panel(key: str, title: str, unit: str, **more: Any) -> Panel:
        return Panel(key, title, unit, _lines(document, key), edges, marks=marks, **more)

    asked = Line("asked for", document["load"]["tokens_tps"], "asked")
    goodput = panel("goodput_tps", "Goodput: output tokens of requests within the objectives", "tokens/s", height=244)
    requests = [Line("arrivals", document["load"]["requests_rps"], "")]
    panels: list[Panel | Strips] = [
        Panel("requests_rps", "Load: requests that arrive", "requests/s", requests, edges, marks=named, height=150),
        panel("speculative_tokens", "K at the present batch", "speculative tokens", steps=True, integer=True),
        panel("batch", "Batch: requests running in an engine", "requests"),
        panel(
            "tpot_p95_s", "Time per output token, 95th percentile", "ms", factor=1e3, log=True, height=244,
            bound=mark_of(tpot_s),
        ),
        panel("tpot_p50_s", "Time per output token, median", "ms", factor=1e3, log=True, bound=mark_of(tpot_s)),
        panel("ttft_p95_s", "Time to first token, 95th percentile", "ms", factor=1e3, log=True, bound=mark_of(ttft_s)),
        Panel(
            goodput.key, goodput.title + "; dotted: asked for", goodput.unit, [asked, *goodput.lines], edges,
            marks=marks, height=244,
        ),
        Strips("behind_tps", "Good tokens behind the best policy of each interval: darker is a larger part of them",
               _behind(document), edges, marks),
    ]  # fmt: skip
    if inputs["replicas"]["fixed"] is None:
        panels += [
            panel("replicas", "Replicas wanted", "replicas", steps=True, integer=True),
            panel("target", "Target of the autoscaler", "in flight a replica", steps=True),
        ]
    return panels


def _shifted(shift: Mapping[str, Any]) -> str:
    whose = f"{shift['class']}: " if shift["class"] else ""
    return f"{whose}first draft token now accepted with {shift['curve'][0]:.2g}"


def _lines(document: Document, key: str) -> list[Line]:
    """Outrider on top of the others, and the dashes of the oracle on top of it."""
    ordered = sorted(document["policies"], key=lambda one: ON_TOP.get(one["name"], 0))
    return [Line(one["name"], one["timeline"][key], one["name"]) for one in ordered]


def _behind(document: Document) -> list[Line]:
    rows = [
        (one["name"], one["timeline"]["behind_tps"], one["timeline"]["goodput_tps"]) for one in document["policies"]
    ]
    return [
        Line(
            name, [lost / (lost + kept) if lost + kept else 0.0 for lost, kept in zip(behind, good, strict=True)], name
        )
        for name, behind, good in rows
    ]


def mark_of(objective_s: float | None) -> tuple[float, str] | None:
    """The mark of an objective in a plot of milliseconds."""
    return None if objective_s is None else (1e3 * objective_s, f"objective {1e3 * objective_s:g} ms")


def _losses(document: Document) -> str:
    rows = [
        (escape(one["name"]), f"{100 * one['lost_share']:.1f}", escape(one["sentence"])) for one in document["losses"]
    ]
    return table(("policy", "n:good tokens lost, %", "where, and against whom"), rows)


def _decisions(document: Document) -> Iterable[str]:
    for policy in document["policies"]:
        if policy["decisions"]:
            yield f"<h2>What {escape(policy['name'])} decided</h2>"
            if document["inputs"]["replicas"]["fixed"] is not None:
                yield "<p class=soft>Replicas were fixed in this replay: a target had no autoscaler to go to.</p>"
            yield decided(policy["decisions"])


def decided(decisions: Iterable[Document]) -> str:
    """A table of what a controller decided."""
    rows = [
        (
            clock(one["at_s"]),
            escape(one["kind"]),
            escape(f"{one['before']} → {one['after']}"),
            escape(one["reason"]),
        )
        for one in decisions
    ]
    return table(("n:time", "what", "change", "reason"), rows)


def replayed(inputs: Document) -> str:
    """A table of what went into the replay of a service."""
    noise = inputs["noise"]
    classes = "; ".join(
        f"{one['class']} {100 * one['share']:g} %: {_curve(one['curve'])}" for one in inputs["acceptance"]
    )
    shifts = "; ".join(
        f"{clock(one['at_s'])} {one['class'] or 'all requests'}: {_curve(one['curve'])}" for one in inputs["shifts"]
    )
    rows = [
        ("Model", inputs["model"]),
        ("Engines", f"simulated from the measured profile {inputs['profile']}"),
        (
            "Noise of step times",
            f"{100 * noise['step_cv']:g} % a step, correlated over {noise['correlation_s']:g} s;"
            f" {100 * noise['boot_cv']:g} % from engine to engine",
        ),
        ("Speculative tokens", ", ".join(map(str, inputs["speculative_tokens"]))),
        ("Trace", f"{inputs['trace']}, begun {inputs['laps']} times" if inputs["laps"] > 1 else inputs["trace"]),
        ("Rate factor", f"{inputs['rate_factor']:g}"),
        ("Acceptance by position", classes),
        ("Shifts", shifts or "none"),
        ("Scrapes, control period", f"{inputs['scrape_s']:g} s, {inputs['control_s']:g} s"),
        ("Seed", str(inputs["seed"])),
    ]
    return table(("", ""), [(escape(name), escape(value)) for name, value in rows])


def _curve(curve: Sequence[float]) -> str:
    return ", ".join(f"{one:.3g}" for one in curve[:8]) + (", …" if len(curve) > 8 else "")
