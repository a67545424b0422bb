"""Writes what was found: `policy.json` for programs, `policy.md` and its plots for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figures import Figure
from benchmarks.markdown import figures_section, rounded, table_lines, text
from benchmarks.policy import plots
from benchmarks.policy.headline import DEFINITIONS, TARGETS, Table
from benchmarks.policy.traces import BASELINES, TRACES, Frontiers
from outrider.replay.policies import POLICIES

NOTES = Path(__file__).parent / "notes.md"
"""What people wrote about the last full run; it follows the figures."""


def write(
    table: Table, traces: Frontiers, figures: Mapping[str, Figure], folder: Path, about: Mapping[str, Any]
) -> None:
    """All three kinds of file."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "headline": {key: rounded(figure.value) for key, figure in figures.items()},
        "spread": {key: {k: rounded(v) for k, v in asdict(figure).items()} for key, figure in figures.items()},
        "run": dict(about),
        "cases": {case: _case(table, case) for case in table.groups()},
        "traces": {name: _trace(traces, name) for name in traces.traces},
    }
    (folder / "policy.json").write_text(json.dumps(document, indent=1) + "\n")
    plots.write(table, traces, folder)
    (folder / "policy.md").write_text("\n".join(_page(table, traces, figures, about)))


def _case(table: Table, case: str) -> dict[str, Any]:
    """Medians over the seeds by arm."""
    found: dict[str, Any] = {}
    for arm in table.arms(case):
        seeds = [table.at(case, arm, seed) for seed in table.seeds(case)]
        levels: dict[float, list[Any]] = {}
        for one in seeds:
            for measured in one.segments:
                levels.setdefault(measured.level, []).append(measured)
        found[arm] = {
            "levels": {
                f"{level:g}": {
                    "token_goodput_tps": rounded(median(one.token_goodput_tps for one in many)),
                    "tpot_ms": rounded(_median([one.tpot_s and 1e3 * one.tpot_s for one in many])),
                    "within_objective": rounded(_median([one.within for one in many])),
                }
                for level, many in sorted(levels.items())
            },
            "adapt_s": [rounded(one.adapt_s) for one in seeds if one.adapt_s is not None],
            "changes": [one.changes for one in seeds],
            "probes": [one.probes for one in seeds],
        }
    return found


def _trace(traces: Frontiers, name: str) -> dict[str, Any]:
    """Every replay of a trace, by arm."""
    found: dict[str, Any] = {}
    for seed in traces.seeds(name):
        for arm in ("outrider", *BASELINES):
            found.setdefault(arm, []).extend(
                {key: rounded(value) for key, value in asdict(one).items() if key not in ("trace", "arm")}
                for one in traces.baseline(name, arm, seed)
            )
    return found


def _page(table: Table, traces: Frontiers, figures: Mapping[str, Figure], about: Mapping[str, Any]) -> list[str]:
    seeds = ", ".join(f"{group} {count}" for group, count in about["seeds"].items())
    return [
        "# The policy benchmark",
        "",
        f"Written by `{about['command']}` on {about['date']}: {about['replayed_hours']} hours of one engine, and the"
        f" fleets on traces, replayed in {about['wall_minutes']} minutes by {about['processes']} processes. Seeds by"
        f" group of cases: {seeds}. Do not edit; what the figures mean for the reader is in the last section, which"
        " comes from `benchmarks/policy/notes.md`.",
        "",
        *SETTING,
        "",
        *figures_section(figures, TARGETS, DEFINITIONS),
        "## Arms",
        "",
        *(f"- `{name}`: {text}." for name, text in POLICIES.items()),
        "",
        *_plots(),
        *_steady(table),
        *_scores(table),
        *_adapted(table),
        *_rates(table),
        *_starts(table),
        *_still(table),
        *_traces(traces),
        NOTES.read_text() if NOTES.exists() else "",
    ]


SETTING = (
    "One replica, the measured rows of one H100 (`operator/outrider/simulator/data`), a drafter with K up to 7, scrapes"
    " and control passes every 15 s. Clients ask again as soon as they are answered (prompts of 128 tokens, answers of"
    " 400 to 1200), so that the batch is what the level says; acceptance is 0.75 at every position unless a case says"
    " otherwise. Goodput is output tokens a second of the engine. Every arm of a case and seed sees the same noise.",
)


def _plots() -> list[str]:
    return [
        "## Plots",
        "",
        *(f"![{caption}]({name}.svg)\n\n{caption}.\n" for name, caption in plots.CAPTIONS.items()),
    ]


def _steady(table: Table) -> list[str]:
    lines = []
    for group, title in (("steady", "Steady load"), ("hostile", "Steady load that no draft fits")):
        found = table.groups(group)
        arms = table.arms(found[0])
        rows = [
            [f"`{arm}`", *(text(median(table.ratio(case, arm, "oracle"))) for case in found)]
            for arm in arms
            if arm != "oracle"
        ]
        levels = [case.rsplit("-", 1)[1] for case in found]
        lines += [
            f"## {title}: token goodput over the oracle's, by clients",
            "",
            *table_lines(["arm", *levels], rows),
            "",
        ]
    return lines


def _scores(table: Table) -> list[str]:
    found = table.groups("mixed", "shift")
    arms = list(dict.fromkeys(arm for case in found for arm in table.arms(case)))
    rows = []
    for arm in arms:
        cells = []
        for case in found:
            known = arm in table.arms(case)
            values = table.ratio(case, arm, "oracle") if known else []
            cells.append(f"{median(values):.3f} ({min(values):.3f} to {max(values):.3f})" if known else "")
        rows.append([f"`{arm}`", *cells])
    return [
        "## Mixed load: mean over levels of token goodput over the oracle's",
        "",
        *table_lines(["arm", *found], rows),
        "",
    ]


def _adapted(table: Table) -> list[str]:
    found = table.groups("adapt")
    rows = []
    for arm in table.arms(found[0]):
        cells = []
        for case in found:
            seconds = [
                one.adapt_s for seed in table.seeds(case) if (one := table.at(case, arm, seed)).adapt_s is not None
            ]
            cells.append(f"{median(seconds):.0f}" if seconds else "")
        rows.append([f"`{arm}`", *cells])
    return [
        "## Seconds from a step of acceptance to a schedule within 5 % of the best, median",
        "",
        "Empty where the old schedule is within 5 % already.",
        "",
        *table_lines(["arm", *found], rows),
        "",
    ]


def _rates(table: Table) -> list[str]:
    found = table.groups("rate")
    rows = []
    for arm in table.arms(found[0]):
        cells = []
        for case in found:
            many = [table.at(case, arm, seed).segments[0] for seed in table.seeds(case)]
            tpot_s, within = _median([one.tpot_s for one in many]), _median([one.within for one in many])
            cells.append("" if tpot_s is None or within is None else f"{1e3 * tpot_s:.1f} ({100 * within:.0f})")
        rows.append([f"`{arm}`", *cells])
    return [
        "## Constant rate: median TPOT in ms, and percent of answers within 15 ms, by requests a second",
        "",
        *table_lines(["arm", *(case.split("-", 1)[1] for case in found)], rows),
        "",
    ]


def _starts(table: Table) -> list[str]:
    rows = []
    for case in table.groups("start"):
        for index, name in enumerate(("first minute", "to the fifth", "after")):
            shares = [
                table.at(case, "outrider", seed).segments[index].token_goodput_tps
                / table.at(case, "oracle", seed).segments[index].token_goodput_tps
                for seed in table.seeds(case)
            ]
            rows.append([case, name, text(median(shares)), f"{text(min(shares))} to {text(max(shares))}"])
    return [
        "## A wrong start: Outrider over the oracle",
        "",
        *table_lines(["case", "stretch", "share", "seeds"], rows),
        "",
    ]


def _still(table: Table) -> list[str]:
    rows = []
    for case in table.groups("still"):
        for seed in table.seeds(case):
            one = table.at(case, "outrider", seed)
            rows.append([case, str(one.changes), str(one.probes)])
    head = ["case", "changes", "moves of probes"]
    return ["## Steady noisy load: changes after the warm-up", "", *table_lines(head, rows), ""]


def _traces(traces: Frontiers) -> list[str]:
    rows = []
    for arm in ("outrider", *BASELINES):
        cells = []
        for name in traces.traces:
            seeds = traces.seeds(name)
            share = median(traces.misses(name, arm, seed) for seed in seeds)
            spanned = all(arm == "outrider" or traces.within(name, arm, seed) for seed in seeds)
            cells.append(f"{100.0 * share:.2f}{'' if spanned else ' *'}")
        rows.append([f"`{arm}`", *cells])
    mine = {name: [traces.outrider(name, seed) for seed in traces.seeds(name)] for name in traces.traces}
    lines: tuple[tuple[str, Callable[[str], str]], ...] = (
        ("replica-hours", lambda name: f"{median(one.replica_hours for one in mine[name]):.2f}"),
        ("most replicas", lambda name: str(max(one.most_replicas for one in mine[name]))),
        ("requests", lambda name: str(mine[name][0].num_requests)),
        ("TPOT objective, ms", lambda name: str(next(one.tpot_ms for one in TRACES if one.trace == name))),
        ("Outrider over the best", lambda name: text(median(traces.ratio(name, seed) for seed in traces.seeds(name)))),
    )
    for label, of in lines:
        rows.append([label, *(of(name) for name in traces.traces)])
    return [
        "## Traces: percent of requests that miss an objective, at Outrider's replica-hours",
        "",
        "Twenty minutes of the busiest part, one to eight autoscaled replicas, TTFT within 2 s, acceptance stepping in"
        " the middle. Outrider sets its own target; the others are read off between fixed ones. \\* marks a baseline"
        " whose targets do not span these replica-hours: the nearest one's share stands.",
        "",
        *table_lines(["arm", *traces.traces], rows),
        "",
    ]


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
