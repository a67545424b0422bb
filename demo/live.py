"""The live view: a table that stays in place on a terminal, lines that are easy to search elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from demo.facts import Decision

LINE_EVERY_S = 5.0
DECISIONS_SHOWN = 5
REFRESH_PER_SECOND = 2.0


@dataclass(frozen=True, slots=True)
class Row:
    """One service as shown. None is shown as a dash."""

    service: str
    ready: int
    replicas: int
    in_flight: float | None
    target: int | None
    batch: float | None
    speculative_tokens: int | None
    schedule: str
    acknowledged: str
    acceptance_length: float | None
    tpot_p95_s: float | None
    objective_s: float | None
    tokens_per_second: float | None


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything on the screen at one moment."""

    title: str
    time_s: float
    seconds: float
    phase: str
    rows: Sequence[Row]
    decisions: Sequence[Decision]
    """Oldest first."""


class Screen(Protocol):
    """Where pictures go."""

    def show(self, picture: Picture) -> None:
        """Show how things are."""

    def close(self) -> None:
        """Leave the screen tidy."""


def open_screen(console: Console) -> Screen:
    """A table on a terminal, lines elsewhere."""
    return TableScreen(console) if console.is_terminal else LineScreen()


class TableScreen:
    """Redraws one table."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=REFRESH_PER_SECOND, transient=False)
        self._live.start()

    def show(self, picture: Picture) -> None:
        """Replace the picture."""
        self._live.update(render(picture))

    def close(self) -> None:
        """The last picture stays above what is printed next."""
        self._live.stop()


class LineScreen:
    """Prints a line a service every few seconds, and each decision once."""

    def __init__(self, label: str = "", every_s: float = LINE_EVERY_S) -> None:
        """``label`` begins every line; ``every_s`` is in the picture's own time."""
        self._every_s = every_s
        self._label = label and f"{label} "
        self._shown_s = 0.0
        self._due_s = 0.0
        self._told = 0

    def show(self, picture: Picture) -> None:
        """Print what is due."""
        if picture.time_s < self._shown_s:  # told from the beginning again
            self._due_s, self._told = 0.0, 0
        self._shown_s = picture.time_s
        for decision in picture.decisions[self._told :]:
            _print(
                f"{self._label}t={decision.time_s:.0f}s decision service={decision.service} kind={decision.kind}"
                f" from={decision.before!r} to={decision.after!r} reason={decision.reason!r}"
            )
        self._told = len(picture.decisions)
        if picture.time_s < self._due_s:
            return
        self._due_s = picture.time_s + self._every_s
        for row in picture.rows:
            _print(f"{self._label}t={picture.time_s:.0f}s {line(row)} phase={picture.phase!r}")

    def close(self) -> None:
        """Nothing to tidy."""


def line(row: Row) -> str:
    """One service in one line."""
    return (
        f"service={row.service} replicas={row.ready}/{row.replicas} in_flight={_number(row.in_flight)}"
        f" target={_number(row.target)} batch={_number(row.batch)} K={_number(row.speculative_tokens)}"
        f" schedule={row.schedule!r} acknowledged={row.acknowledged}"
        f" acceptance_length={_number(row.acceptance_length, 2)} tpot_p95_ms={_milliseconds(row.tpot_p95_s)}"
        f" objective_ms={_milliseconds(row.objective_s)} tokens_per_second={_number(row.tokens_per_second)}"
    )


def render(picture: Picture) -> RenderableType:
    """The whole screen."""
    share = min(1.0, picture.time_s / picture.seconds)
    width = 30
    bar = "━" * round(share * width) + "─" * (width - round(share * width))
    head = Text.assemble(
        (picture.title, "bold"),
        "  ",
        (bar, "cyan"),
        f" {picture.time_s:.0f} of {picture.seconds:.0f} s  ",
        (picture.phase, "italic"),
    )
    return Group(head, _services(picture.rows), _decisions(picture.decisions))


def _services(rows: Iterable[Row]) -> Table:
    table = Table(box=None, pad_edge=False, expand=False, header_style="bold")
    for title in (
        "service",
        "replicas",
        "in flight",
        "target",
        "batch",
        "K",
        "schedule (engines)",
        "acked",
        "accept. length",
        "TPOT p95",
        "tok/s",
    ):
        table.add_column(
            title,
            justify="left" if title.startswith(("service", "schedule")) else "right",
            no_wrap=not title.startswith("sched"),
        )
    for row in rows:
        table.add_row(
            row.service,
            f"{row.ready}/{row.replicas}",
            _number(row.in_flight),
            _number(row.target),
            _number(row.batch),
            _number(row.speculative_tokens),
            row.schedule,
            row.acknowledged,
            _number(row.acceptance_length, 2),
            _tpot(row),
            _number(row.tokens_per_second),
        )
    return table


def _tpot(row: Row) -> Text:
    text = f"{_milliseconds(row.tpot_p95_s)}/{_milliseconds(row.objective_s)} ms"
    if row.tpot_p95_s is None or row.objective_s is None:
        return Text(text)
    return Text(text, style="green" if row.tpot_p95_s <= row.objective_s else "red")


def _decisions(decisions: Sequence[Decision]) -> Panel:
    shown = decisions[-DECISIONS_SHOWN:][::-1]
    lines = [
        Text.assemble(
            (f"{one.time_s:4.0f} s ", "dim"),
            (f"{one.service} ", "bold"),
            f"{one.kind.lower()} {one.before} → {one.after}: ",
            (one.reason, "italic"),
        )
        for one in shown
    ]
    return Panel(
        Group(*lines) if lines else Text("none so far", style="dim"), title="last decisions", title_align="left"
    )


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.0f}"


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
