"""What is known of step times as JSON values, for the memory document; numbers rounded to what they are worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from outrider.core.interference import Interference, Spread
from outrider.core.latency import LatencyState
from outrider.core.step_cells import DEFAULT_CONTEXT, Cell, CellKey, band
from outrider.core.step_time_shift import Side, Watch

MAX_CELLS = 120
"""Seventeen bands of batch size to 256 by the six K of the largest set, with room to spare."""


def to_document(state: LatencyState) -> dict[str, Any]:
    """The state's keys of the memory document."""
    prefill = state.interference
    return {
        "stepTimes": _rows(state.cells),
        "mixedSteps": _rows(prefill.mixed),
        "generatedTokens": round(prefill.tokens, 1),
        "tpotSpread": [round(value, 5) for value in prefill.spread.sums],
        "stepTimeWatch": [_side(state.watch.slower), _side(state.watch.faster), round(state.watch.deviation, 5)],
    }


def from_document(document: Mapping[str, Any]) -> LatencyState:
    """The remembered state; keys that an older version did not write may be absent.

    Raises:
        KeyError, TypeError, ValueError: the document is damaged.
    """
    slower, faster, deviation = document.get("stepTimeWatch") or ((), (), Watch().deviation)
    dd, di, ii, d, i = (float(value) for value in document.get("tpotSpread", Spread().sums))
    return LatencyState(
        cells=_cells(document["stepTimes"]),
        interference=Interference(
            mixed=_cells(document.get("mixedSteps", ())),
            tokens=float(document.get("generatedTokens", 0.0)),
            spread=Spread((dd, di, ii, d, i)),
        ),
        watch=Watch(_read_side(slower), _read_side(faster), float(deviation)),
    )


def _side(side: Side) -> list[float]:
    return [round(side.sum, 4), side.windows, round(side.excess, 4), round(side.total, 5)]


def _read_side(values: Iterable[Any]) -> Side:
    numbers = [float(value) for value in values]
    return Side() if not numbers else Side(numbers[0], int(numbers[1]), *numbers[2:])


def _rows(cells: Mapping[CellKey, Cell]) -> list[list[float]]:
    return [
        [number, k, round(cell.steps, 1), round(cell.seconds, 6), round(cell.requests, 1), round(cell.context)]
        for (number, k), cell in list(cells.items())[:MAX_CELLS]
    ]


def _cells(rows: Iterable[Iterable[float]]) -> dict[CellKey, Cell]:
    cells = {}
    for row in rows:
        _, k, steps, seconds, requests, *context = row
        of = float(context[0]) if context else DEFAULT_CONTEXT
        cell = Cell(float(steps), float(seconds), float(requests), of)
        if cell.steps <= 0 or cell.requests <= 0:  # so little was left of it that it was rounded away
            continue
        if cell.seconds <= 0 or cell.context < 0:
            raise ValueError("steps that took no time")
        cells[band(cell.mean_batch), int(k)] = cell
    return cells
