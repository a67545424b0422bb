"""What is remembered of a service's one K as JSON values of numbers, a part of its memory document."""

from __future__ import annotations

from typing import Any

from outrider.core.one_k_evidence import Evidence
from outrider.core.one_k_state import Barred, OneK
from outrider.core.step_cells import Cell
from outrider.core.survival import Counts

MAX_K = 64
MOST = 512
"""Entries of any list; a state has far fewer."""


def to_document(state: OneK) -> dict[str, Any]:
    """The state, numbers rounded to what they are worth."""
    seen = state.evidence
    cells = [
        [size, k, *(round(one, 6) for one in (cell.steps, cell.seconds, cell.requests))]
        for (size, k), cell in seen.cells.items()
    ]
    return {
        "subject": state.subject,
        "toldOf": state.told_of,
        "chosen": state.chosen,
        "rolling": int(state.rolling),
        "before": state.before,
        "chosenAt": None if state.chosen_at is None else [round(one, 4) for one in state.chosen_at],
        "delivered": None if state.delivered is None else round(state.delivered, 4),
        "moves": list(state.moves),
        "wish": None if state.wish is None else list(state.wish),
        "bars": [[bar.num_speculative_tokens, bar.until_s, bar.times] for bar in state.bars],
        "tries": state.tries,
        "cells": cells,
        "drafted": [round(one, 3) for one in seen.counts.drafted],
        "accepted": [round(one, 3) for one in seen.counts.accepted],
        "load": [[size, round(seconds, 1)] for size, seconds in seen.load.items()],
        "seen": [round(seen.watched_s, 1), round(seen.blind_s, 1), seen.until_s],
    }


def from_document(document: Any) -> OneK | None:
    """The state; None where there is none, or it is damaged: the resource's own K is the one then, and what was learnt
    is learnt again."""
    try:
        return _read(document)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return None


def _read(document: Any) -> OneK:
    cells = {}
    for size, k, *sums in document["cells"][:MOST]:
        steps, seconds, requests = map(_positive, sums)
        cells[(_whole(size, MOST), _whole(k, MAX_K))] = Cell(steps, seconds, requests)
    drafted, accepted = (tuple(map(_number, document[name][:MAX_K])) for name in ("drafted", "accepted"))
    watched_s, blind_s, until_s = document["seen"]
    wish, delivered, chosen_at = document["wish"], document["delivered"], document["chosenAt"]
    return OneK(
        subject=int(document["subject"]),
        told_of=int(document["toldOf"]),
        chosen=_k(document["chosen"]),
        rolling=document["rolling"] == 1,
        before=_k(document["before"]),
        chosen_at=None if chosen_at is None else (_positive(chosen_at[0]), _number(chosen_at[1])),
        delivered=None if delivered is None else float(delivered),
        moves=tuple(map(_number, document["moves"][:MOST])),
        wish=None if wish is None else (_whole(wish[0], MAX_K), _number(wish[1])),
        bars=tuple(
            Barred(_whole(k, MAX_K), _number(until), _whole(times, MOST)) for k, until, times in document["bars"]
        ),
        tries=_whole(document["tries"], MOST),
        evidence=Evidence(
            cells=cells,
            counts=Counts(drafted, tuple(min(pair) for pair in zip(drafted, accepted, strict=True))),
            load={_whole(size, MOST): _number(seconds) for size, seconds in document["load"][:MOST]},
            watched_s=_number(watched_s),
            blind_s=_number(blind_s),
            until_s=None if until_s is None else _number(until_s),
        ),
    )


def _k(value: Any) -> int | None:
    return None if value is None else _whole(value, MAX_K)


def _whole(value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError("a number that no state has")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1e12:
        raise ValueError("a number that no state has")
    return float(value)


def _positive(value: Any) -> float:
    number = _number(value)
    if number <= 0.0:
        raise ValueError("a cell without steps")
    return number
