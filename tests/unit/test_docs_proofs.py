"""Tables that name tests and code, against both: a row is shown by a test that exists, or is called open."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS, CODE = ROOT / "tests", (ROOT / "operator" / "outrider", ROOT / "runtime")
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text() for name in ("security", "failures")}
TEST_ID = re.compile(r"`((?:unit|testbed|fuzz|engine|golden|packaging)/[\w/]+\.py)(?:::([\w:]+))?`")
CODE_ID = re.compile(
    r"`((?:(?:adapters|api|cli|core|engine|manifests|reconcile|outrider_runtime)/[\w/]+|handlers)\.py):([\w.]+)`"
)


def names(path: Path) -> set[str]:
    """Everything that a file defines, members with their classes; a test of a class also goes by its own name."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        if isinstance(node, ast.ClassDef):
            inner = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
            found |= {f"{node.name}{separator}{one.name}" for one in inner for separator in ("::", ".")}
    return found


def rows(text: str) -> list[str]:
    """Rows of tables with a column of tests, without heads and headings."""
    found, proving = [], False
    for line in text.splitlines():
        if not line.startswith("|"):
            proving = False
        elif line.rstrip("| ").endswith("shown by"):
            proving = True
        elif proving and not line.startswith(("|---", "| **")):
            found.append(line)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_row_is_shown_by_a_test_or_called_open(page: str) -> None:
    assert len(rows(PAGES[page])) > 20
    for row in rows(PAGES[page]):
        last = row.rstrip("| ").rsplit("|", 1)[1]
        assert TEST_ID.search(last) or ("**open**" in row and last.strip() == "–"), row


@pytest.mark.parametrize(
    ("file", "test"), sorted({found for text in PAGES.values() for found in TEST_ID.findall(text)})
)
def test_every_test_that_is_named_exists(file: str, test: str) -> None:
    assert (TESTS / file).is_file()
    assert not test or test in names(TESTS / file)


@pytest.mark.parametrize(
    ("file", "name"), sorted({found for text in PAGES.values() for found in CODE_ID.findall(text)})
)
def test_every_guard_that_is_named_exists(file: str, name: str) -> None:
    (source,) = [root / file for root in CODE if (root / file).is_file()]
    assert name in names(source)
