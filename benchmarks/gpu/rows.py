"""What a run on a GPU left: its file of rows, by kind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Results:
    """The rows of one engine, in the order they were measured."""

    start: Row
    prefill: Sequence[Row]
    cells: Sequence[Row]
    """Of held batches; some may have no decode step."""
    levels: Sequence[Row]
    traces: Sequence[Row]
    """One for each arm and round that came to its end."""

    @property
    def card(self) -> str:
        """The card's name, without driver and memory."""
        return str(self.start["card"]).partition(",")[0]

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Results:
        """Sort rows by kind.

        Raises:
            ValueError: the engine's start is missing, or there is more than one: cards must not be mixed.
        """
        kinds: dict[str, list[Row]] = {}
        for row in rows:
            kinds.setdefault(row["kind"], []).append(row)
        starts = kinds.get("start", [])
        if len(starts) != 1:
            raise ValueError(f"the rows hold {len(starts)} starts of an engine; give the rows of one boot")
        return cls(
            starts[0], kinds.get("prefill", []), kinds.get("cell", []), kinds.get("level", []), kinds.get("trace", [])
        )


def read(path: Path) -> Results:
    """The rows of a file, one a line."""
    return Results.of(json.loads(line) for line in path.read_text().splitlines())


def read_all(folder: Path) -> list[list[Results]]:
    """The boots whose rows are in a folder, card by card: rows of two cards are never put together.

    The card that was measured last comes first, and of each card the calibrated boot.

    Raises:
        ValueError: there are no rows, or a card was not calibrated.
    """
    cards: dict[str, list[Results]] = {}
    for boot in sorted((read(path) for path in folder.glob("results-*.jsonl")), key=lambda boot: -boot.start["at"]):
        cards.setdefault(boot.card, []).append(boot)
    found = [sorted(boots, key=lambda boot: not boot.cells) for boots in cards.values()]
    missing = [boots[0].card for boots in found if not boots[0].cells]
    if missing or not found:
        raise ValueError(
            f"no rows of a calibration of {missing or 'any card'} in {folder}/results-*.jsonl; run the calibrate"
            " command first"
        )
    return found
