"""Failures, told beside the tests that show them, and the table of docs/failures.md made of them.

    @pytest.mark.failure(
        "Prometheus", "gone",
        k="held",
        conditions=["MetricsAvailable False PrometheusUnreachable"],
        alerts=["OutriderMetricsMissing"],
        guard="reconcile/control.py:ControlPass._fetch",
    )

A neighbour and a way to fail make a row. Where several tests show one row, the facts stand with one of them, and the
others bear the two words alone. A test reads its own facts through the fixture `failure`, so that none has to be typed
twice. ``python -m tests.failures`` writes the table; it reads the tests without running them, so facts are literals.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "failures.md"
ABOUT_MARKS = (Path(__file__), TESTS / "unit" / "test_failures.py")
BEGIN, END = "<!-- made by python -m tests.failures -->", "<!-- end of what is made -->"
NEIGHBOURS = (
    "Prometheus", "API server", "Engines", "KEDA and the HPA", "The cluster and its people", "Ourselves",
)  # fmt: skip
HEAD = ("what", "K", "replicas", "status", "alert", "ends", "guard", "shown by")


@dataclass(frozen=True, slots=True)
class Failure:
    """One way in which a neighbour fails, and what follows. What is not told does not change, or is not shown."""

    neighbour: str
    """One of `NEIGHBOURS`."""
    what: str
    k: str = ""
    replicas: str = ""
    conditions: Sequence[str] = ()
    """Those that tell of it, as ``Type Status`` or ``Type Status Reason``."""
    status: str = ""
    """More about status, in words."""
    alerts: Sequence[str] = ()
    ends: str = ""
    """What ends it, and in how long."""
    guard: str = ""
    """``folder/module.py:function`` without which the test fails."""
    shown_by: tuple[str, ...] = ()
    """Tests, by file and name."""
    alerted: bool = False
    """Its test asks a real Prometheus for the alerts while the fault lasts."""

    @property
    def told(self) -> bool:
        """Whether it has facts, and not the name of a row alone."""
        return bool(self.guard)

    def condition(self, type_: str) -> tuple[str, ...]:
        """Status of a condition, and its reason where one is given.

        Raises:
            KeyError: the failure does not tell of such a condition.
        """
        found = {name: tuple(rest) for name, *rest in (one.split() for one in self.conditions)}
        return found[type_]

    def cells(self) -> list[str]:
        """The row, in the order of `HEAD`."""
        code = [" ".join(_code(word, index != 1) for index, word in enumerate(one.split())) for one in self.conditions]
        status = "; ".join([*code, *filter(None, [self.status])])
        alerts = ", ".join(_code(one) for one in self.alerts) + (", seen" if self.alerted else "")
        tests = ", ".join(_code(one) for one in self.shown_by)
        cells = [self.what, self.k, self.replicas, status, alerts, self.ends, _code(self.guard), tests]
        return [cell or "–" for cell in cells]


def _code(text: str, quoted: bool = True) -> str:
    return f"`{text}`" if quoted else text


def read(tests: Path = TESTS) -> list[Failure]:
    """All rows, by neighbour and then by what fails.

    Raises:
        ValueError: facts that stand nowhere or twice, or at something that pytest does not collect.
    """
    rows: dict[tuple[str, str], Failure] = {}
    for path in sorted(tests.rglob("*.py")):
        text = path.read_text()
        if "mark.failure(" not in text or path in ABOUT_MARKS:
            continue
        for one in _marked(path, str(path.relative_to(tests))):
            before = rows.get((one.neighbour, one.what))
            if before is not None and before.told and one.told:
                raise ValueError(f"{one.shown_by[0]} and {before.shown_by[0]} both tell of {one.what!r}")
            shown_by = (*(before.shown_by if before is not None else ()), *one.shown_by)
            told = before if before is not None and before.told else one
            rows[one.neighbour, one.what] = replace(told, shown_by=shown_by)
    for one in rows.values():
        if not one.told or one.neighbour not in NEIGHBOURS:
            raise ValueError(f"{one.shown_by[0]}: {one.neighbour!r}, {one.what!r} has no guard, or no such neighbour")
    return sorted(rows.values(), key=lambda one: (NEIGHBOURS.index(one.neighbour), one.what.lower()))


def _marked(path: Path, where: str) -> Iterator[Failure]:
    """The marks of one file."""
    for node, name in _functions(ast.parse(path.read_text())):
        for mark in filter(_is_failure, node.decorator_list):
            assert isinstance(mark, ast.Call)
            parts = name.split("::")
            collected = parts[-1].startswith("test_") and all(part.startswith("Test") for part in parts[:-1])
            if not (collected and path.name.startswith("test_")):
                raise ValueError(f"{where}: {name} is no test that pytest collects")
            facts = {one.arg: ast.literal_eval(one.value) for one in mark.keywords if one.arg is not None}
            one = Failure(*map(ast.literal_eval, mark.args), **facts)
            asks = any(isinstance(part, ast.Name) and part.id == "alerted" for part in ast.walk(node))
            yield replace(one, shown_by=(f"{where}::{name}",), alerted=asks)


def _functions(
    tree: ast.Module | ast.ClassDef, within: str = ""
) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, within + node.name
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{within}{node.name}::")


def _is_failure(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.failure"


def table(rows: Sequence[Failure]) -> str:
    """The table."""
    lines: list[list[str]] = []
    neighbour = ""
    for one in rows:
        if one.neighbour != neighbour:
            neighbour = one.neighbour
            lines.append([f"**{neighbour}**", *[""] * (len(HEAD) - 1)])
        lines.append(one.cells())
    made = [f"| {' | '.join(line)} |" for line in (HEAD, *lines)]
    made.insert(1, "|---" * len(HEAD) + "|")
    return "\n".join(made)


def page(text: str, made: str) -> str:
    """The page with the table in its place."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"


@pytest.fixture
def failure(request: pytest.FixtureRequest) -> Failure:
    """The facts that stand with a test."""
    mark = next(mark for mark in request.node.iter_markers("failure") if mark.kwargs)
    return Failure(*mark.args, **mark.kwargs)


def pytest_configure(config: pytest.Config) -> None:
    """Know the mark."""
    config.addinivalue_line("markers", "failure(neighbour, what, ...): a row of docs/failures.md")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(), table(read())))
