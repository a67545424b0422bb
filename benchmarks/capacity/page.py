"""Writes what was found: `capacity.json` for programs, `capacity.md` and its plots for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.capacity import plots
from benchmarks.capacity.cases import STATED_S
from benchmarks.capacity.headline import DEFINITIONS, TARGETS, Table
from benchmarks.capacity.replays import ARMS, BASELINES, Replay
from benchmarks.figures import Figure
from benchmarks.frontier import floored
from benchmarks.markdown import figures_section, rounded, table_lines, text

NOTES = Path(__file__).parent / "notes.md"
"""What people wrote about the last full run; it follows the figures."""
ABSENT = frozenset({"case", "group", "missed", "replicas"})
"""Fields of a replay that the document leaves out: they are its keys, or fill plots."""


def write(table: Table, figures: Mapping[str, Figure], folder: Path, about: Mapping[str, Any]) -> None:
    """All three kinds of file."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "headline": {key: rounded(figure.value) for key, figure in figures.items()},
        "spread": {key: {k: rounded(v) for k, v in asdict(figure).items()} for key, figure in figures.items()},
        "run": dict(about),
        "cases": {
            case: [_replay(one) for one in table.found if one.case == case]
            for case in table.cases("trace", "day", "constant")
        },
    }
    (folder / "capacity.json").write_text(json.dumps(document, indent=1) + "\n")
    plots.write(table, folder)
    (folder / "capacity.md").write_text("\n".join(_page(table, figures, about)))


def _replay(one: Replay) -> dict[str, Any]:
    return {key: rounded(getattr(one, key)) for key in Replay.__dataclass_fields__ if key not in ABSENT}


def _page(table: Table, figures: Mapping[str, Figure], about: Mapping[str, Any]) -> list[str]:
    return [
        "# The capacity benchmark",
        "",
        f"Written by `{about['command']}` on {about['date']}: {about['replays']} replays, {about['replayed_hours']}"
        f" hours of a service, in {about['wall_minutes']} minutes by {about['processes']} processes. Do not edit; what"
        " the figures mean for the reader is in the last section, which comes from `benchmarks/capacity/notes.md`.",
        "",
        *SETTING,
        "",
        *figures_section(figures, TARGETS, DEFINITIONS),
        "## Arms",
        "",
        *(f"- `{name}`: {words}." for name, words in ARMS.items()),
        "",
        "## Plots",
        "",
        *(f"![{caption}]({name}.svg)\n\n{caption}.\n" for name, caption in plots.CAPTIONS.items()),
        *_misses(table),
        *_costs(table),
        *_causes(table),
        *_constant(table),
        NOTES.read_text() if NOTES.exists() else "",
    ]


SETTING = (
    "A fleet of one to twelve replicas with the measured rows of one H100 (`operator/outrider/simulator/data`), a"
    " drafter with K up to 7, scrapes every 5 s, control passes and turns of the HPA every 15 s. Requests must be"
    " within 2 s to the first token and within a TPOT by case; where that is 60 or 90 ms, engines are four or six"
    " times slower than the measured card, as with a larger model. Every arm starts with the same replicas; the"
    " first ten minutes are not measured. Every arm but the oracle runs Outrider's schedules of K, so that they"
    " differ by replicas alone, and every HPA has the rendered behaviour: a tolerance of a tenth; up by four pods a"
    " minute, or by as many again; down by one pod a minute after looking back five minutes. Replica-hours count a"
    " pod from its creation, start-up and drain included.",
    "",
    "Traces are played in their own time (mooncake-conversation at 0.4 of its rate, servegen-small at 0.01), half"
    " an hour of each measured, with acceptance stepping between 0.85 and 0.4 in the middle of it. The day takes"
    " three hours: load moves eight times faster than in a real one, so that a cold start of five minutes weighs as"
    " much as one of forty would. Drafts fit badly (0.4 instead of 0.85) from 13:00 to 20:00.",
)


def _misses(table: Table) -> list[str]:
    lines = [
        "## Percent of requests that miss an objective, at Outrider's replica-hours", "",
        "Baselines and the oracle are read off between their settings. \\* the settings do not reach these"
        " replica-hours: the share of the dearest stands. – every setting costs more.", "",
    ]  # fmt: skip
    head = ["case", "cold start, s", "replica-hours", "outrider", *BASELINES, "oracle"]
    body = []
    for case in table.cases("trace", "day"):
        for cold_s in table.cold_starts(case):
            mine = table.outrider(case, cold_s, 0)
            cells = [_cell(table, case, cold_s, arm) for arm in (*BASELINES, "oracle")]
            body.append([case, f"{cold_s:g}", f"{mine.replica_hours:.2f}", f"{100 * mine.misses:.2f}", *cells])
    return [*lines, *table_lines(head, body), ""]


def _cell(table: Table, case: str, cold_s: float, arm: str) -> str:
    if not table.of(case, cold_s, arm, 0):
        return ""
    misses = table.misses(case, cold_s, arm, 0)
    if misses is None:
        return "–"
    spanned = table.frontier(case, cold_s, arm, 0).spans(table.outrider(case, cold_s, 0).replica_hours)
    return f"{100 * misses:.2f}{'' if spanned else ' *'}"


def _costs(table: Table) -> list[str]:
    head = ["case", "cold start, s", "outrider", *BASELINES, "oracle"]
    body = []
    for case in table.cases("trace", "day"):
        for cold_s in table.cold_starts(case):
            mine = table.outrider(case, cold_s, 0)
            cells = [_cost(table, case, cold_s, arm) for arm in (*BASELINES, "oracle")]
            body.append([case, f"{cold_s:g}", f"{mine.replica_hours:.2f}", *cells])
    return [
        "## Replica-hours for Outrider's attainment", "",
        "≥ no setting of the baseline misses as little: the replica-hours of its dearest stand, where they are more"
        " than Outrider's; – where they are fewer.", "",
        *table_lines(head, body), "",
    ]  # fmt: skip


def _cost(table: Table, case: str, cold_s: float, arm: str) -> str:
    if not table.of(case, cold_s, arm, 0):
        return ""
    hours, mine = table.hours(case, cold_s, arm, 0), table.outrider(case, cold_s, 0)
    if hours is None:
        return "–"
    reached = floored(mine.misses, mine.num_requests) >= table.frontier(case, cold_s, arm, 0).misses[-1]
    return f"{'' if reached else '≥ '}{hours:.2f}"


def _causes(table: Table) -> list[str]:
    head = ["case", "cold start, s", "TPOT, ms", "missed", "of it TTFT", "while a replica starts", "the oracle's too"]
    head += ["most replicas", "patches an hour"]
    body = []
    for case in table.cases("trace", "day"):
        for cold_s in table.cold_starts(case):
            mine, rich = table.outrider(case, cold_s, 0), table.of(case, cold_s, "oracle", 0)
            shares = [f"{100 * share:.2f}" for share in (mine.misses, mine.late, mine.starting)]
            shares += [f"{100 * len(mine.missed & rich[-1].missed) / mine.num_requests:.2f}" if rich else ""]
            counts = [str(mine.most_replicas), f"{mine.patches / mine.hours:.1f}"]
            body.append([case, f"{cold_s:g}", str(mine.tpot_ms), *shares, *counts])
    return [
        "## Where Outrider misses, percent of all requests", "",
        "TTFT: late, or not answered; the rest missed TPOT. While a replica starts: the request arrived when more"
        " replicas were asked for than were ready. The oracle's too: the oracle with the most replicas missed the same"
        " request.", "",
        *table_lines(head, body), "",
    ]  # fmt: skip


def _constant(table: Table) -> list[str]:
    body = []
    for case in table.cases("constant"):
        one = table.outrider(case, STATED_S, 0)
        counts = sorted({replicas for _, replicas, _ in one.replicas})
        body.append(
            [case, f"{100 * one.misses:.2f}", text(one.replica_hours / one.hours), ", ".join(map(str, counts)),
             str(one.reversals), str(one.patches)]
        )  # fmt: skip
    return [
        "## Constant load, two hours after the warm-up", "",
        "Poisson arrivals at so many requests a second, three classes of acceptance, TPOT within 90 ms.", "",
        *table_lines(["case", "missed, %", "mean replicas", "numbers seen", "reversals", "patches"], body), "",
    ]  # fmt: skip
