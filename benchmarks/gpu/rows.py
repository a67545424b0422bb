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


def read_all(folder: Path) -> list[Results]:
    """Every boot whose rows are in a folder, the calibrated ones first.

    Raises:
        ValueError: none of them was calibrated.
    """
    boots = sorted((read(path) for path in sorted(folder.glob("results-*.jsonl"))), key=lambda boot: not boot.cells)
    if not (boots and boots[0].cells):
        raise ValueError(f"no rows of a calibration in {folder}/results-*.jsonl; run the calibrate command first")
    return boots
