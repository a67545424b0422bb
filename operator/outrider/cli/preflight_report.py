"""The result of ``outrider preflight``: as a document and as tables.

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
from rich.table import Table
from rich.text import Text

from outrider.cli.preflight_outcome import Outcome, State, worst

VERSION = 1
WORDS: dict[State, str] = {"ok": "ok", "warning": "warning", "refused": "refused", "notChecked": "not checked"}
STYLES: dict[State, str] = {"ok": "green", "warning": "yellow", "refused": "bold red", "notChecked": "dim"}
Group = Literal["form", "admission", "deployment", "cluster"]


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
    """Print the tables; of admission only what it has to say, unless ``everything`` is asked for."""
    console = Console(highlight=False)
    for report in reports:
        table = Table(title=f"{report.namespace}/{report.name} ({report.source})", title_justify="left", expand=True)
        table.add_column("state", no_wrap=True)
        table.add_column("check", no_wrap=True)
        table.add_column("what", ratio=1, overflow="fold")
        repeated = {said.code for group, one in report.outcomes if group == "deployment" for said in one.verdicts}
        for group, outcome in report.outcomes:
            speaks = outcome.state in ("warning", "refused") and outcome.name not in repeated
            if everything or group != "admission" or speaks:
                _rows(table, outcome)
        if not everything:
            _rest(table, report)
        console.print(table)
    console.print(_summary(reports))


def _rows(table: Table, outcome: Outcome) -> None:
    name = outcome.name
    for said in outcome.verdicts:
        table.add_row(Text(WORDS[said.state], style=STYLES[said.state]), name, Text(said.message))
        name = ""


def _rest(table: Table, report: Report) -> None:
    """One row for the checks of admission that have nothing to say, and one for those that could not be made."""
    quiet = [outcome for group, outcome in report.outcomes if group == "admission"]
    passed = [outcome.name for outcome in quiet if outcome.state == "ok"]
    unmade = [outcome for outcome in quiet if outcome.state == "notChecked"]
    if passed:
        table.add_row(Text("ok", style=STYLES["ok"]), "admission", f"{len(passed)} rules (--all names them)")
    reasons: dict[str, list[str]] = {}
    for outcome in unmade:
        reasons.setdefault(outcome.verdicts[0].message, []).append(outcome.name)
    for reason, names in reasons.items():
        style = STYLES["notChecked"]
        table.add_row(Text(WORDS["notChecked"], style=style), "admission", Text(f"{reason}: {', '.join(names)}"))


def _summary(reports: Sequence[Report]) -> Text:
    counts = Counter(outcome.state for report in reports for _, outcome in report.outcomes)
    parts = [f"{counts[state]} {WORDS[state]}" for state in WORDS if counts[state]]
    verdict = worst([report.verdict for report in reports])
    return Text.assemble((WORDS[verdict], STYLES[verdict]), f": {', '.join(parts)}")
