"""docs/reference/conditions.md against the code: every reason that a condition can have is described, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "conditions.md"
SOURCES = ROOT / "operator" / "outrider"
PARTS = ("adapters", "api", "core", "manifests", "reconcile")
"""Layers of the operator whose errors and findings reach a condition."""
REASON = re.compile(r"[A-Z][A-Za-z]+")
POSITIONS = {"condition": 2, "Trouble": 0, "Missing": 0} | dict.fromkeys(
    (
        "InvalidSpec", "NotReady", "OperatorError", "KubeError", "Conflict", "Forbidden", "NotFound", "Unavailable",
        "MetricsError", "Unreachable", "AccessDenied", "Malformed",
    ),
    0,
)  # fmt: skip
"""Calls that take a reason, and which argument it is."""
CAUGHT = {"NotFound", "NotActive", "NoTraffic"}
"""What never reaches a status: the one who asks takes the first for an answer, whom the second stops may not write one,
and a window without traffic is left out of a comparison."""


def rows() -> set[tuple[str, str, str]]:
    """Type, status and reason of each row; the type is the heading that the table stands under."""
    found, type_ = set(), ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            type_ = line.removeprefix("## ").strip()
        match = re.match(r"\| (True|False|Unknown) \| `(\w+)` \| .+ \| .+ \|$", line)
        if match:
            found.add((type_, match[1], match[2]))
    return found


def constants(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and REASON.fullmatch(part.value):
            yield part.value


def assigned(tree: ast.Module) -> set[str]:
    """Reasons that are given the name ``reason`` before they are used."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            names = {part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)}
            found |= set(constants(node.value)) if "reason" in names else set()
    return found


def reasons_in_code() -> set[str]:
    """Literal reasons of every call in `POSITIONS`; checks of admission have names of their own."""
    found: set[str] = set()
    for source in (path for part in PARTS for path in sorted((SOURCES / part).rglob("*.py"))):
        tree = ast.parse(source.read_text())
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            position = POSITIONS.get(called)
            if position is not None and len(node.args) > position:
                reason = node.args[position]
                found |= assigned(tree) if isinstance(reason, ast.Name) else set(constants(reason))
    return found - CAUGHT


def test_every_reason_that_the_code_sets_is_described_and_no_other() -> None:
    described = {reason for _, _, reason in rows()}
    assert sorted(reasons_in_code()) == sorted(described)
