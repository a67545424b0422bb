"""docs/control.md against the code: every link leads to what it names, and every word of a hold is explained."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "control.md"
TEXT = PAGE.read_text()
SOURCES = ROOT / "operator" / "outrider"
LINKS = re.findall(r"\[([^\]]+)\]\(([^)#]+)(?:#[^)]*)?\)", TEXT)
ROWS = dict(re.findall(r"^\| `([A-Z]\w+)` \| (.*?) \|", TEXT, flags=re.MULTILINE))
"""Sentence by word, of the table of holds."""


def names_of(source: Path) -> set[str]:
    """All functions, methods and classes that a file defines, and its constants."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def nodes() -> Iterator[ast.AST]:
    """Of all files that may hold a schedule, or tell why there are no metrics."""
    store = (SOURCES / "adapters").glob("prometheus*.py")
    asked = [*(SOURCES / "core").glob("*.py"), SOURCES / "reconcile" / "control.py", *store]
    for source in asked:
        yield from ast.walk(ast.parse(source.read_text()))


def words_in_code() -> set[str]:
    """First constant text that a hold, a `Missing` or an error of Prometheus is given."""
    makers = {"hold", "Missing", "MetricsError", "Unreachable", "AccessDenied", "Malformed"}
    found = set()
    for node in nodes():
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            words = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if name in makers and words:
                found.add(words[0])
    return found


@pytest.mark.parametrize(("text", "target"), sorted(set(LINKS)))
def test_links_lead_to_what_they_name(text: str, target: str) -> None:
    found = (PAGE.parent / target).resolve()
    assert found.is_file()
    if found.suffix == ".py":
        assert text.startswith("`"), "a link into the code names a function"
        assert text.strip("`") in names_of(found)


def test_the_page_links_to_the_code_at_all() -> None:
    assert sum(target.endswith(".py") for _, target in LINKS) > 30


def test_every_word_of_a_hold_is_explained_and_none_that_no_code_says() -> None:
    assert words_in_code() == set(ROWS)


OURS = sorted((word, sentence) for word, sentence in ROWS.items() if not sentence.startswith("("))
"""Without those that repeat a neighbour's own words."""


@pytest.mark.parametrize(("word", "sentence"), OURS)
def test_sentences_are_those_of_the_code(word: str, sentence: str) -> None:
    said = [node.value for node in nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    for part in re.split(r"…| / ", sentence):
        assert any(part.strip() in one for one in said), f"{word}: nobody says {part.strip()!r}"


def test_guards_stand_in_the_order_in_which_they_are_asked() -> None:
    tree = ast.parse((SOURCES / "core" / "controller.py").read_text())
    chains = next(node for node in tree.body if isinstance(node, ast.AnnAssign) and node.value is not None
                  and getattr(node.target, "id", "") == "CHAINS")  # fmt: skip
    assert isinstance(chains.value, ast.Dict)
    first = chains.value.values[0]
    assert isinstance(first, ast.Tuple)
    asked = [guard.attr for guard in first.elts if isinstance(guard, ast.Attribute)]
    assert re.findall(r"^\| \[`(\w+)`\]", TEXT, flags=re.MULTILINE) == asked
