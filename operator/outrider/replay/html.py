"""What the pages of this project have in common: one file that needs nothing but itself, its style, and tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any


def whole(title: str, body: Iterable[str], document: Mapping[str, Any]) -> str:
    """A page that carries the document behind its plots; ``body`` is HTML already."""
    script = (files(__package__) / "data" / "page.js").read_text("utf-8")
    # "<" only stands in strings of the document: escaped there, nothing in it can end the element.
    carried = json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title>"
        f"<style>{style_sheet()}</style></head>\n<body>"
        + "\n".join(body)
        + f'\n<script type="application/json" id="result">{carried}</script>'
        f"<script>{script}</script></body></html>\n"
    )


def style_sheet() -> str:
    """The pages' style, with a class and a colour for each policy."""
    return (files(__package__) / "data" / "page.css").read_text("utf-8")


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already; columns whose title begins with ``n:`` hold numbers."""
    kinds = [' class="n"' if title.startswith("n:") else "" for title in titles]
    head = "".join(
        f"<th{kind}>{escape(title.removeprefix('n:'))}</th>" for kind, title in zip(kinds, titles, strict=True)
    )
    lines = [
        f'<tr><th scope="row"{kinds[0]}>{row[0]}</th>'
        + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds[1:], row[1:], strict=True))
        + "</tr>"
        for row in rows
    ]
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def number(value: float | None, digits: int, factor: float = 1.0) -> str:
    """With so many digits behind the point; a dash for None."""
    return "–" if value is None else f"{factor * value:,.{digits}f}"
