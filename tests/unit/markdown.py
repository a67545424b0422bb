"""Markdown as readers meet it: code blocks, links and headings of the project's pages."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SKIPPED = {"build", "dist", "site"}
"""Folders of what is built; those whose name begins with a dot are skipped as well."""
_FENCE = re.compile(r"^( *)(```+|~~~+) *([\w-]*)")
_LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code."""

    language: str
    text: str
    line: int
    """Where it opens, counted from 1."""


def pages() -> list[Path]:
    """Every Markdown file of the project, in order of path."""
    found = ROOT.rglob("*.md")
    return sorted(path for path in found if not any(map(_skipped, path.relative_to(ROOT).parts)))


def _skipped(part: str) -> bool:
    return part in SKIPPED or part.startswith(".")


def blocks(text: str) -> Iterator[Block]:
    """Fenced blocks, those within lists too, without their indentation."""
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        opening = _FENCE.match(line)
        if opening is None:
            continue
        body: list[str] = []
        for _, inner in lines:
            if inner.strip() == opening[2]:
                break
            body.append(inner)
        yield Block(opening[3], textwrap.dedent("\n".join(body)) + "\n", number)


def prose(text: str) -> str:
    """The text without fenced blocks and code spans: what is left has no code that looks like a link."""
    kept, closing = [], ""
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if closing:
            closing = "" if line.strip() == closing else closing
        elif fence is not None:
            closing = fence[2]
        else:
            kept.append(line)
    return re.sub(r"`[^`\n]*`", "", "\n".join(kept))


def links(text: str) -> list[str]:
    """Where links of the text lead, inline ones and those by reference."""
    return [inline or reference for inline, reference in _LINK.findall(prose(text))]


def anchors(text: str) -> set[str]:
    """Names of the headings as GitHub and MkDocs make them."""
    found = set()
    for heading in re.findall(r"^#+ (.+?)\s*$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.M):
        plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading)
        found.add(re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-"))
    return found
