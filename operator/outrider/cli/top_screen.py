"""The picture of ``outrider top``: one row a service, and what is the matter below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from outrider.cli.measured import NOTHING, Now
from outrider.cli.seen import Seen
from outrider.cli.status_view import DASH, STYLES, number, ready_of


@dataclass(frozen=True, slots=True)
class Row:
    """One service."""

    seen: Seen
    now: Now = NOTHING

    @property
    def tpot_ms(self) -> float | None:
        """TPOT at the percentile of the service's objectives."""
        tpot_s = self.now.tpot_s(self.seen.percentile)
        return None if tpot_s is None else 1e3 * tpot_s

    @property
    def headroom(self) -> float:
        """Objective over TPOT; below 1 it is missed. Services without either come last."""
        tpot_ms = self.tpot_ms
        return self.seen.tpot_ms / tpot_ms if self.seen.tpot_ms and tpot_ms else float("inf")


SORTS: Mapping[str, Callable[[Row], Any]] = {
    "name": lambda row: row.seen.title,
    "load": lambda row: -(row.now.in_flight or 0.0),
    "tokens": lambda row: -(row.now.tokens_per_second or 0.0),
    "headroom": lambda row: row.headroom,
}
COLUMNS: tuple[tuple[str, JustifyMethod], ...] = (
    ("SERVICE", "left"), ("K", "right"), ("TOKENS/STEP", "right"), ("IN FLIGHT", "right"), ("READY", "right"),
    ("TARGET", "right"), ("TPOT/OBJECTIVE ms", "right"), ("TOKENS/s", "right"), ("STATE", "left"),
)  # fmt: skip
LEAST_WIDTH = 78
"""Columns that the table needs; a narrower terminal gets it without those in `SPARED`."""
SPARED = ("TARGET", "TOKENS/STEP", "TOKENS/s")
LEGEND: Mapping[str, str] = {
    "K": "K: tokens drafted a step",
    "TOKENS/STEP": "TOKENS/STEP: tokens that a request gains in a step",
    "TARGET": "TARGET: requests in flight that a replica may carry",
    "TPOT/OBJECTIVE ms": "TPOT: time an output token takes; at p95, 95 % of the requests take no longer",
    "": f"{DASH}: not known, without traffic for example",
}
"""What the columns mean that do not say so themselves, and what stands where nothing is known."""


def picture(rows: Sequence[Row], *, width: int, height: int, title: str, notes: Sequence[str]) -> RenderableType:
    """Everything on the screen, cut to its size: services that have no place are counted, not silently left out; the
    legend gives way to them."""
    left_out = SPARED if width < LEAST_WIDTH else ()
    told = [line for sentence in notes for line in wrap(sentence, width)]
    room = max(1, height - 4 - len(told))
    shown = list(rows)[:room]
    table = Table(box=None, pad_edge=False, expand=True, header_style="bold")
    for name, align in COLUMNS:
        if name not in left_out:
            share = 3 if name == "STATE" else None
            table.add_column(name, justify=align, no_wrap=True, overflow="ellipsis", ratio=share)
    for row in shown:
        table.add_row(*(cell for (name, _), cell in zip(COLUMNS, _cells(row), strict=True) if name not in left_out))
    hidden = len(rows) - len(shown)
    more = [Text(f"and {hidden} more: a taller terminal shows them", style="dim")] if hidden else []
    legend = _legend(width, left_out)
    below = ["", *legend] if rows and len(shown) + 1 + len(legend) <= room else []
    return Group(
        Text(title, style="dim", no_wrap=True, overflow="ellipsis"),
        table,
        *more,
        *(Text(line, style="yellow") for line in told),
        *(Text(line, style="dim") for line in below),
    )


def _legend(width: int, left_out: Sequence[str]) -> list[str]:
    """What is needed to read the columns that are shown, in lines of this width."""
    lines: list[str] = []
    for text in (text for column, text in LEGEND.items() if column not in left_out):
        joined = f"{lines[-1]}   {text}" if lines else text
        if lines and len(joined) <= width:
            lines[-1] = joined
        else:
            lines += wrap(text, width)
    return lines


def document(rows: Sequence[Row]) -> dict[str, Any]:
    """The stable form: numbers of the last minute; None is not known."""
    return {
        "version": 1,
        "services": [
            {
                "namespace": row.seen.namespace,
                "name": row.seen.name,
                "state": row.seen.state[1],
                "ready": row.seen.ready,
                "speculativeTokens": row.seen.tuning.speculative_tokens,
                "acceptanceLength": row.seen.tuning.acceptance_length,
                "inFlight": row.now.in_flight,
                "replicas": {"ready": row.seen.replicas.ready, "desired": row.seen.replicas.desired},
                "requestsPerReplica": row.seen.capacity.requests_per_replica,
                "tpotMilliseconds": None if row.tpot_ms is None else round(row.tpot_ms, 2),
                "tpotObjectiveMilliseconds": row.seen.tpot_ms,
                "percentile": row.seen.percentile,
                "revisions": row.seen.revisions_document,
                "tokensPerSecond": row.now.tokens_per_second,
            }
            for row in rows
        ],
    }


def _cells(row: Row) -> tuple[Text | str, ...]:
    seen, now = row.seen, row.now
    weight, state = seen.state
    return (
        seen.title,
        number(seen.tuning.speculative_tokens),
        seen.tuning.acceptance_length or DASH,
        _whole(now.in_flight),
        Text(ready_of(seen), style="" if seen.replicas.ready >= seen.replicas.desired else "yellow"),
        number(seen.capacity.requests_per_replica),
        _tpot(row),
        _whole(now.tokens_per_second),
        Text(state, STYLES[weight]),
    )


def _tpot(row: Row) -> Text:
    shown = DASH if row.tpot_ms is None else f"{row.tpot_ms:.1f}"
    if row.seen.tpot_ms is None:
        return Text(shown)
    return Text(f"{shown}/{row.seen.tpot_ms} p{row.seen.percentile}", style="bold red" if row.headroom < 1 else "")


def _whole(value: float | None) -> str:
    return DASH if value is None else f"{value:,.0f}"
