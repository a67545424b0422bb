"""Parts that the pages of benchmarks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import Figure, Target


def table_lines(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(row) + " |" for row in body),
    ]


def figures_section(
    figures: Mapping[str, Figure], targets: Mapping[str, Target], definitions: Mapping[str, str], single: str = "seeds"
) -> list[str]:
    """The lines of a page's figures and of what they mean; ``single`` is what spreads are of."""
    return [
        "## Figures",
        "",
        *table_lines(["figure", "reach", "found", f"single {single}", "worst at", "met"], _rows(figures, targets)),
        "",
        "## Definitions",
        "",
        *(f"- `{key}`: {words}" for key, words in definitions.items()),
        "",
    ]


def _rows(figures: Mapping[str, Figure], targets: Mapping[str, Target]) -> list[list[str]]:
    """Each figure, what is asked of it, how far single values lie apart, where it comes from, and whether it is met."""
    found = []
    for key, figure in figures.items():
        target = targets.get(key)
        met = "" if target is None or figure.value is None else "yes" if target.met(figure.value) else "**no**"
        spread = "" if figure.lowest is None else f"{text(figure.lowest)} to {text(figure.highest)}"
        found.append([f"`{key}`", str(target or ""), text(figure.value), spread, figure.where, met])
    return found


def rounded(value: Any) -> Any:
    """A float to four digits, as JSON files show it; anything else as it is."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def text(value: float | None) -> str:
    """A number as tables show it."""
    return "not measured" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
