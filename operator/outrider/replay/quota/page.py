"""The result of `outrider simulate --gpu-quota` as one HTML page: services side by side, then each for itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from outrider.replay.charts import Line, Panel
from outrider.replay.html import table, whole
from outrider.replay.page import decided, legend, mark_of, replayed
from outrider.replay.quota.table import TITLES, headline, replicas, rows
from outrider.replay.words import clock

STYLES = 6
"""Looks of lines that the style sheet has for services; a seventh service looks as the first."""

Document = Mapping[str, Any]


def render(document: Document, command: str) -> str:
    """The page; ``command`` is what made it."""
    body = [
        f"<p class=soft>outrider simulate {escape(document['outrider'])}</p>",
        f"<h1>{escape(_title(document))}</h1>",
        f"<p>{escape(headline(document))}.</p>",
        *(f"<p><strong>{escape(sentence)}</strong></p>" for sentence in document["verdict"]),
        *(f"<p>{escape(note)}</p>" for note in document["notes"]),
        _totals(document),
        "<h2>Over time</h2>",
        "<p class=soft>Latencies and good tokens are those of the requests that arrived in an interval; K and replicas"
        " are means over its scrapes; GPUs are the most at one of them, draining pods included. Names switch lines off"
        " and on.</p>",
        legend("Services shown", [(one["name"], f"priority {one['priority']}", _style(document, one["name"]))
                                  for one in document["services"]]),
        *(panel.render() for panel in _panels(document)),
        "<h2>What was moved</h2>",
        _moves(document),
        *(part for one in document["services"] for part in _service(one)),
        f"<p>Made by</p><pre>{escape(command)}</pre>",
    ]  # fmt: skip
    return whole(_title(document), body, document)


def _title(document: Document) -> str:
    inputs = document["inputs"]
    return f"{len(document['services'])} services of {inputs['namespace']} under a quota of {inputs['gpu_quota']} GPUs"


def _totals(document: Document) -> str:
    titles = [" ".join(title.split("\n")).replace("- ", "-") for title in TITLES]
    return table(
        ["service", *(f"n:{title}" for title in titles)], [[escape(cell) for cell in row] for row in rows(document)]
    )


def _style(document: Document, name: str) -> str:
    names = [one["name"] for one in document["services"]]
    return f"service-{names.index(name) % STYLES}"


def _panels(document: Document) -> list[Panel]:
    edges, inputs, services = document["edges_s"], document["inputs"], document["services"]

    def lines(key: str) -> list[Line]:
        return [Line(one["name"], one["timeline"][key], _style(document, one["name"])) for one in services]

    def panel(key: str, title: str, unit: str, **more: Any) -> Panel:
        return Panel(key, title, unit, lines(key), edges, **more)

    def shared(key: str) -> tuple[float, str] | None:
        values = {one["inputs"]["objectives"][key] for one in services}
        return mark_of(values.pop()) if len(values) == 1 else None  # marked where it is the same for all

    load = [Line(one["name"], one["load"]["requests_rps"], _style(document, one["name"])) for one in services]
    together = Line("together", document["together"]["timeline"]["gpus"], "asked")
    return [
        Panel("requests_rps", "Load: requests that arrive", "requests/s", load, edges, height=170),
        Panel(
            "gpus", "GPUs held; dotted: together", "GPUs", [together, *lines("gpus")], edges, steps=True, integer=True,
            bound=(inputs["gpu_quota"], f"quota {inputs['gpu_quota']}"), height=244,
        ),
        panel("replicas", "Replicas", "replicas", steps=True, integer=True),
        panel("most", "Share: the most replicas that each may have", "replicas", steps=True, integer=True),
        panel("wanted", "Replicas that the load needs", "replicas", steps=True, integer=True),
        panel("goodput_tps", "Goodput: output tokens of requests within the objectives", "tokens/s"),
        panel("tpot_p95_s", "Time per output token, 95th percentile", "ms", factor=1e3, log=True,
              bound=shared("tpot_s")),
        panel("ttft_p95_s", "Time to first token, 95th percentile", "ms", factor=1e3, log=True,
              bound=shared("ttft_s")),
        panel("speculative_tokens", "K at the present batch", "speculative tokens", steps=True, integer=True),
    ]  # fmt: skip


def _moves(document: Document) -> str:
    if not document["moves"]:
        return "<p>No running replica was given up for another service.</p>"
    return table(("n:time", "move"), [(clock(one["at_s"]), escape(one["reason"])) for one in document["moves"]])


def _service(service: Mapping[str, Any]) -> Iterable[str]:
    yield f"<h2>{escape(service['name'])}</h2>"
    yield f"<p>Replicas from each time on: {escape(replicas(service))}.</p>"
    if service["limited"]:
        spans = [
            (clock(one["from_s"]), clock(one["to_s"]), escape(one["reason"]), escape(one["message"]))
            for one in service["limited"]
        ]
        yield table(("n:from", "n:to", "limited by", "CapacityLimited said"), spans)
    else:
        yield "<p>It was never limited.</p>"
    if service["decisions"]:
        yield "<p class=soft>What Outrider decided for it:</p>"
        yield decided(service["decisions"])
    yield "<p class=soft>What was replayed:</p>"
    yield replayed(service["inputs"])
