"""The result of ``outrider preflight``: as a document and for people.

The document has the shape

    {"version": 1, "verdict": …, "resources": [{"source", "namespace", "name", "verdict", "checks": [
        {"name", "group", "state", "findings": [{"state", "field", "code", "message"}], "why", "remedy", "reference"}
    ]}]}

where a verdict is ``ok``, ``warning`` or ``refused``, a state may be ``notChecked`` as well, a group is ``form``,
``admission``, ``deployment`` or ``cluster``, and a finding's code is that of the condition the operator would set, or
empty. Fields may be added; none changes its meaning within a version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from outrider.cli.preflight_outcome import Outcome, State, worst

VERSION = 1
WORDS: dict[State, str] = {"ok": "ok", "warning": "warning", "refused": "refused", "notChecked": "not checked"}
STYLES: dict[State, str] = {"ok": "green", "warning": "yellow", "refused": "bold red", "notChecked": "dim"}
NARROW = 72
"""Columns below which the third column of a table has no room for words."""
Group = Literal["form", "admission", "deployment", "cluster"]


@dataclass(frozen=True, slots=True)
class Row:
    """One finding as it is shown."""

    state: State
    check: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that was said of one resource."""

    source: str
    namespace: str
    name: str
    outcomes: tuple[tuple[Group, Outcome], ...]

    @property
    def verdict(self) -> State:
        """The worst of all; what was not checked counts for nothing."""
        found = worst([outcome.state for _, outcome in self.outcomes])
        return "ok" if found == "notChecked" else found


def document(reports: Sequence[Report]) -> dict[str, Any]:
    """The stable form, as the module describes it."""
    return {
        "version": VERSION,
        "verdict": worst([report.verdict for report in reports]),
        "resources": [
            {
                "source": report.source,
                "namespace": report.namespace,
                "name": report.name,
                "verdict": report.verdict,
                "checks": [_check(group, outcome) for group, outcome in report.outcomes],
            }
            for report in reports
        ],
    }


def _check(group: Group, outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.name,
        "group": group,
        "state": outcome.state,
        "findings": [
            {"state": said.state, "field": said.field, "code": said.code, "message": said.message}
            for said in outcome.verdicts
        ],
        "why": outcome.why,
        "remedy": outcome.remedy,
        "reference": outcome.source,
    }


def show(reports: Sequence[Report], *, everything: bool) -> None:
    """Print what was found; of admission only what it has to say, unless ``everything`` is asked for.

    A table on a terminal that has room for one; a line a finding where another program reads; else findings one below
    the other.
    """
    console = Console(highlight=False)
    for report in reports:
        title = f"{report.namespace}/{report.name} ({report.source})"
        rows = _rows(report, everything=everything)
        if not console.is_terminal:
            _print_lines(console, title, rows)
        elif console.width < NARROW:
            _print_paragraphs(console, title, rows)
        else:
            _print_table(console, title, rows)
    console.print(_summary(reports))


def _rows(report: Report, *, everything: bool) -> list[Row]:
    """The findings in order; a check's name stands with its first alone."""
    rows: list[Row] = []
    repeated = {said.code for group, one in report.outcomes if group == "deployment" for said in one.verdicts}
    for group, outcome in report.outcomes:
        speaks = outcome.state in ("warning", "refused") and outcome.name not in repeated
        if everything or group != "admission" or speaks:
            rows += [Row(said.state, outcome.name, said.message) for said in outcome.verdicts]
    return rows if everything else [*rows, *_rest(report)]


def _rest(report: Report) -> list[Row]:
    """One row for the checks of admission that have nothing to say, and one for those that could not be made."""
    quiet = [outcome for group, outcome in report.outcomes if group == "admission"]
    passed = [outcome.name for outcome in quiet if outcome.state == "ok"]
    rows = [Row("ok", "admission", f"{len(passed)} rules (--all names them)")] if passed else []
    reasons: dict[str, list[str]] = {}
    for outcome in (outcome for outcome in quiet if outcome.state == "notChecked"):
        reasons.setdefault(outcome.verdicts[0].message, []).append(outcome.name)
    return rows + [Row("notChecked", "admission", f"{reason}: {', '.join(them)}") for reason, them in reasons.items()]


def _print_table(console: Console, title: str, rows: Sequence[Row]) -> None:
    table = Table(title=Text(title), title_justify="left", expand=True)
    table.add_column("state", no_wrap=True)
    table.add_column("check", no_wrap=True)
    table.add_column("what", ratio=1, overflow="fold")
    before = ""
    for row in rows:
        name = "" if row.check == before else row.check
        table.add_row(Text(WORDS[row.state], style=STYLES[row.state]), name, Text(row.message))
        before = row.check
    console.print(table)


def _print_lines(console: Console, title: str, rows: Sequence[Row]) -> None:
    states, names = (max(map(len, words), default=0) for words in (WORDS.values(), [row.check for row in rows]))
    console.print(Text(title), soft_wrap=True)
    for row in rows:
        line = f"  {WORDS[row.state]:{states}}  {row.check:{names}}  {row.message}"
        console.print(Text(line), soft_wrap=True)


def _print_paragraphs(console: Console, title: str, rows: Sequence[Row]) -> None:
    console.print(Text(title))
    for row in rows:
        console.print(Text.assemble((WORDS[row.state], STYLES[row.state]), f" {row.check}"))
        console.print(Padding(Text(row.message), (0, 0, 0, 2)))


def _summary(reports: Sequence[Report]) -> Text:
    counts = Counter(outcome.state for report in reports for _, outcome in report.outcomes)
    parts = [f"{counts[state]} {WORDS[state]}" for state in WORDS if counts[state]]
    verdict = worst([report.verdict for report in reports])
    return Text.assemble((WORDS[verdict], STYLES[verdict]), f": {', '.join(parts)}")
