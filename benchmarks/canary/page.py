"""Writes what was found: `canary.json` for programs, `canary.md` for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from benchmarks.canary.cases import WAYS
from benchmarks.canary.comparisons import Outcome
from benchmarks.canary.headline import DEFINITIONS, TARGETS, Table
from benchmarks.figures import Figure
from benchmarks.markdown import figures_section, rounded, table_lines, text
from outrider.core.revisions.analysis import Verdict

NOTES = Path(__file__).parent / "notes.md"
"""What people wrote about the last full run; it follows the figures."""

SETTING = (
    "One candidate pod beside three stable ones, unless a line says otherwise. Load wavers by a quarter with a memory"
    " of five minutes, requests come at random, acceptance and step times have noise with a memory of their own, and"
    " each boot has a pace of its own (`benchmarks/canary/traffic.py`). The engines are plain vLLM: the analysis sees"
    " TPOT and three samples of the batch size in 15 s, and nothing of the truth. A draft differs by its acceptance"
    " length, an image by its step times. A boot is heard for 40 windows at like load; a new start of the candidate"
    " takes three minutes."
)
ENDS: Mapping[str, Verdict] = {"promoted": "promote", "withdrawn": "withdraw", "inconclusive": "inconclusive"}


def write(table: Table, figures: Mapping[str, Figure], folder: Path, about: Mapping[str, Any]) -> None:
    """Both files."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "headline": {key: rounded(figure.value) for key, figure in figures.items()},
        "spread": {key: {k: rounded(v) for k, v in asdict(figure).items()} for key, figure in figures.items()},
        "run": dict(about),
        "cases": [_case(one) for one in table.outcomes],
    }
    (folder / "canary.json").write_text(json.dumps(document, indent=1) + "\n")
    (folder / "canary.md").write_text("\n".join(_page(table, figures, about)))


def _case(one: Outcome) -> dict[str, Any]:
    return {
        "arrangement": one.case.name,
        "question": one.case.plan.question,
        "true_difference_percent": rounded(100.0 * one.case.effect),
        "comparisons": len(one.verdicts),
        **{f"{name}_percent": rounded(one.percent(verdict)) for name, verdict in ENDS.items()},
        "withdrawn_for_a_fault": len(one.faults),
        "median_minutes_to_verdict": rounded(one.median_minutes),
        "estimated_difference_percent": rounded(100.0 * fmean(one.gains)) if one.gains else None,
        "its_standard_deviation_percent": rounded(100.0 * pstdev(one.gains)) if one.gains else None,
        "single_boot_alarm_percent": rounded(one.naive_percent),
    }


def _page(table: Table, figures: Mapping[str, Figure], about: Mapping[str, Any]) -> list[str]:
    return [
        "# The canary benchmark",
        "",
        f"Written by `{about['command']}` on {about['date']}: {about['comparisons']} comparisons of a candidate with a"
        f" stable revision, in {about['wall_minutes']} minutes by {about['processes']} processes. Do not edit; what the"
        " figures mean for the reader is in the last section, which comes from `benchmarks/canary/notes.md`.",
        "",
        SETTING,
        "",
        *figures_section(figures, TARGETS, DEFINITIONS, "cases"),
        "## Arrangements",
        "",
        *(f"- `{name}`: {way.words}." for name, way in WAYS.items() if table.of(name)),
        "",
        "## All cases, percent of comparisons",
        "",
        "`estimate` is the mean difference found at the end and its standard deviation; `one boot` is how many a"
        " comparison of a single boot would call different, with errors from the scatter in time alone.",
        "",
        *table_lines(
            ["arrangement", "question", "true", "comparisons", "promoted", "withdrawn", "no verdict", "minutes",
             "estimate", "one boot"],
            [_row(one) for one in table.outcomes],
        ),
        "",
        NOTES.read_text() if NOTES.exists() else "",
    ]  # fmt: skip


def _row(one: Outcome) -> list[str]:
    estimate = f"{100.0 * fmean(one.gains):+.1f} ± {100.0 * pstdev(one.gains):.1f}" if one.gains else ""
    return [
        one.case.name,
        one.case.plan.question,
        f"{100.0 * one.case.effect:+.0f} %",
        str(len(one.verdicts)),
        f"{one.percent('promote'):.1f}",
        f"{one.percent('withdraw'):.1f}",
        f"{one.percent('inconclusive'):.1f}",
        "" if one.median_minutes is None else text(one.median_minutes),
        estimate,
        f"{one.naive_percent:.1f}",
    ]
