"""The speculation schedule: how many speculative tokens (K) at which batch size.

Standard library only: the runtime plugin imports this module inside a vLLM image, where nothing else of ours is
installed. The rules are those of vLLM 0.33 (`v1/spec_decode/dynamic/utils.py`), and stricter where vLLM corrects in
silence: it clamps K to the ceiling and carries K across holes, so a typing mistake would run unseen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

_ROW = re.compile(r"(\d+)-(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class Row:
    """One range of batch sizes, both ends inclusive, and its number of speculative tokens."""

    first: int
    last: int
    num_speculative_tokens: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}:{self.num_speculative_tokens}"


class InvalidSchedule(ValueError):
    """A schedule that no engine may be given; ``faults`` names every reason, each with the row and the remedy."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Rows in ascending order without holes or overlap, the first one starting at batch size 1.

    Build it with `parse_rows`, `parse_text` or `constant`, which check; the constructor trusts its caller.
    """

    rows: tuple[Row, ...]

    def __str__(self) -> str:
        return " ".join(map(str, self.rows))

    @property
    def in_words(self) -> str:
        """For people: ``K 5 up to batch 24, 3 up to 64, 1 beyond``, or ``K 3`` where it is the same at every batch."""
        *most, last = self.rows
        if not most:
            return f"K {last.num_speculative_tokens}"
        parts = [f"{row.num_speculative_tokens} up to batch {row.last}" for row in most[:1]]
        parts += [f"{row.num_speculative_tokens} up to {row.last}" for row in most[1:]]
        return f"K {', '.join(parts)}, {last.num_speculative_tokens} beyond"

    @property
    def max_batch_size(self) -> int:
        """The largest batch size with a row of its own; larger batches keep the last row's K, as in vLLM."""
        return self.rows[-1].last

    @property
    def values(self) -> tuple[int, ...]:
        """The distinct K in use, ascending."""
        return tuple(sorted({row.num_speculative_tokens for row in self.rows}))

    def at(self, batch_size: float) -> int:
        """K for a step of ``batch_size`` requests; below 1 the first row's K, above the last row the last one's."""
        for row in self.rows:
            if batch_size < row.last + 1:
                return row.num_speculative_tokens
        return self.rows[-1].num_speculative_tokens

    def as_lists(self) -> list[list[int]]:
        """The form of vLLM's configuration and of the admin port: ``[[first, last, K], ...]``."""
        return [[row.first, row.last, row.num_speculative_tokens] for row in self.rows]

    def lookup(self, max_batch_size: int) -> list[int]:
        """K by batch size, ``max_batch_size + 1`` long; index 0 is unused and repeats index 1, as in vLLM."""
        found = [self.rows[0].num_speculative_tokens]
        for row in self.rows:
            found += [row.num_speculative_tokens] * (min(row.last, max_batch_size) - len(found) + 1)
        return found + [self.rows[-1].num_speculative_tokens] * (max_batch_size + 1 - len(found))


def constant(num_speculative_tokens: int, max_batch_size: int) -> Schedule:
    """One K for every batch size."""
    return Schedule((Row(1, max_batch_size, num_speculative_tokens),))


def from_lookup(lookup: Sequence[int]) -> Schedule:
    """The shortest schedule that equals a list of K for batch sizes 1, 2, 3, …"""
    rows: list[Row] = []
    for k, run in groupby(lookup):
        first = rows[-1].last + 1 if rows else 1
        rows.append(Row(first, first + len(list(run)) - 1, k))
    return Schedule(tuple(rows))


def parse_rows(
    rows: Any,
    *,
    ceiling: int,
    max_batch_size: int | None = None,
    allowed: Iterable[int] | None = None,
) -> Schedule:
    """Check ``[[first, last, K], ...]`` and return it as a `Schedule` without holes.

    ``ceiling`` is the engine's ``num_speculative_tokens``; ``allowed`` are the K with captured CUDA graphs, if known;
    ``max_batch_size`` is the engine's ``max_num_seqs``. A hole keeps the K of the row before it, as vLLM does.

    Raises:
        InvalidSchedule: with every fault found, not only the first.
    """
    triples, faults = _triples(rows)
    if not faults:
        faults = _order_faults(triples) + _value_faults(triples, ceiling, max_batch_size, allowed)
    if faults:
        raise InvalidSchedule(faults)
    filled = [
        Row(this.first, following.first - 1, this.num_speculative_tokens) for this, following in pairwise(triples)
    ]
    return from_rows([*filled, triples[-1]])


def parse_text(text: str) -> Schedule:
    """Read the form ``1-24:5 25-64:3`` that `Schedule` prints.

    Raises:
        InvalidSchedule: the text has another form, or its rows have holes or overlap.
    """
    rows = []
    for part in text.split():
        match = _ROW.fullmatch(part)
        if match is None:
            raise InvalidSchedule([f"'{part}' is not of the form first-last:K, such as 1-24:5"])
        rows.append([int(number) for number in match.groups()])
    return parse_rows(rows, ceiling=max((row[2] for row in rows), default=0))


def from_rows(rows: Iterable[Row]) -> Schedule:
    """Join neighbours of equal K; the rows must already be in order."""
    merged: list[Row] = []
    for row in rows:
        if merged and merged[-1].num_speculative_tokens == row.num_speculative_tokens:
            merged[-1] = Row(merged[-1].first, row.last, row.num_speculative_tokens)
        else:
            merged.append(row)
    return Schedule(tuple(merged))


def _triples(rows: Any) -> tuple[list[Row], list[str]]:
    if not isinstance(rows, list | tuple) or not rows:
        return [], ["a schedule is a list of [first, last, K] rows, for example [[1, 16, 3], [17, 64, 1]]"]
    triples, faults = [], []
    for number, row in enumerate(rows, start=1):
        whole = isinstance(row, list | tuple) and len(row) == 3
        if whole and all(type(item) is int for item in row):
            triples.append(Row(*row))
        else:
            faults.append(f"row {number} is {row!r}; it must be three integers, [first, last, K]")
    return triples, faults


def _order_faults(rows: Sequence[Row]) -> list[str]:
    faults = []
    if rows[0].first != 1:
        faults.append(f"row {rows[0]} must start at 1: the first row covers the smallest batch")
    faults += [f"row {row} ends before it starts" for row in rows if row.last < row.first]
    for before, after in pairwise(rows):
        if after.first <= before.last:
            faults.append(
                f"rows {before} and {after} overlap or are out of order; start the second after {before.last}"
            )
    return faults


def _value_faults(
    rows: Sequence[Row], ceiling: int, max_batch_size: int | None, allowed: Iterable[int] | None
) -> list[str]:
    faults = []
    choices = None if allowed is None else sorted(allowed)
    for row in rows:
        k = row.num_speculative_tokens
        if k < 0:
            faults.append(f"row {row}: K must be 0 or more")
        elif k > ceiling:
            faults.append(f"row {row}: {k} is above the ceiling {ceiling}; the engine would clamp it in silence")
        elif choices is not None and k not in choices:
            faults.append(f"row {row}: {k} has no CUDA graphs; choose from {', '.join(map(str, choices))}")
        if max_batch_size is not None and row.last > max_batch_size:
            faults.append(f"row {row} goes past the engine's largest batch, {max_batch_size}")
    return faults
