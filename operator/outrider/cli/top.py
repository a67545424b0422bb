"""``outrider top``: the fleet at a look, for as long as one looks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.cli.connection import (
    ContextOption,
    EverywhereOption,
    KubeconfigOption,
    NamespaceOption,
    PrometheusOption,
    Reach,
    connected,
    services,
    store,
)
from outrider.cli.exits import Unusable, told
from outrider.cli.output import Output, OutputOption, emit
from outrider.errors import KubeError

if TYPE_CHECKING:
    from outrider.cli.top_screen import Row

HELP = """Show the fleet live, a row a service: K, what it yields, load, replicas, time a token against the objective.

Numbers of load and time are those of the last minute. q or Ctrl-C leave. Where standard output is no terminal, and with
--once, it is shown once.

Exit status: 0 when it was shown, 2 when the command cannot be carried out.

For example: outrider top -A --sort headroom; outrider top --once -o json"""
LEAVE = ("q", "Q", "\x03", "\x04")


class Sort(StrEnum):
    """What comes first."""

    NAME = "name"
    LOAD = "load"
    TOKENS = "tokens"
    HEADROOM = "headroom"


def top(
    namespace: NamespaceOption = None,
    everywhere: EverywhereOption = False,
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="Between two looks.", min=1.0, max=60.0)] = 3.0,
    sort: Annotated[
        Sort, typer.Option(help="First: by name, most in flight, most tokens a second, or nearest to its objective.")
    ] = Sort.NAME,
    output: OutputOption = Output.TABLE,
    prometheus: PrometheusOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Run the command; `HELP` is what the command line says of it."""
    reach = Reach(namespace, everywhere, context, kubeconfig, prometheus)
    live = not once and output is Output.TABLE and sys.stdout.isatty()
    with told():
        if live:
            with contextlib.suppress(KeyboardInterrupt):  # one of the two ways out
                asyncio.run(_live(reach, sort, every))
        else:
            _print(*asyncio.run(_once(reach, sort)), output)


async def _once(reach: Reach, sort: Sort) -> tuple[list[Row], list[str]]:
    async with connected(reach) as (kube, of_context):
        return await Fleet(kube, reach, of_context, sort).look()


class Fleet:
    """Looks at all services, again and again over the same connections."""

    def __init__(self, kube: Any, reach: Reach, of_context: str, sort: Sort) -> None:
        self._kube, self._reach, self._of_context, self._sort = kube, reach, of_context, sort
        self._store: Any = None

    async def look(self) -> tuple[list[Row], list[str]]:
        """A row a service, and what could not be looked at."""
        # Here and not above: pydantic would slow every other command down.
        from outrider.cli import questions
        from outrider.cli.measured import Measured, ask
        from outrider.cli.seen import see
        from outrider.cli.top_screen import SORTS, Row

        bodies = await services(self._kube, self._reach, self._of_context)
        measured = Measured({})
        try:
            if bodies:
                self._store = self._store or await store(self._kube, self._reach, bodies)
                measured = await ask(self._store, questions.selector(self._reach.within(self._of_context)))
        except Unusable as error:
            measured = Measured({}, fault=error.sentence)
        rows = [Row(one, measured.of((one.namespace, one.name))) for one in map(see, bodies)]
        return sorted(rows, key=SORTS[self._sort]), [measured.fault] if measured.fault else []


def _print(rows: list[Row], notes: list[str], output: Output) -> None:
    from rich.console import Console

    from outrider.cli.top_screen import document, picture

    def show() -> None:
        console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)
        console.print(picture(rows, width=console.width, height=len(rows) + TALL, title=_title(rows), notes=notes))

    emit(document(rows), output, show)


WIDE = 160
"""Columns where another program reads."""
TALL = 40
"""Lines for what stands around the rows where there is no screen to fit into: more than enough."""


async def _live(reach: Reach, sort: Sort, every_s: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from outrider.cli.top_screen import picture

    console = Console(highlight=False)
    async with connected(reach) as (kube, of_context):
        fleet = Fleet(kube, reach, of_context, sort)
        rows, notes = await fleet.look()  # a cluster that cannot be reached is said before the screen is taken
        with Live(console=console, screen=True, auto_refresh=False) as live, _keys() as keys:
            asked_s = time.monotonic()
            async for leave in _ticks(keys):
                if leave:
                    return
                if time.monotonic() >= asked_s + every_s:
                    asked_s = time.monotonic()
                    try:
                        rows, notes = await fleet.look()
                    except KubeError as error:  # the last picture stays, and says that it is old
                        notes = [error.message]
                size = console.size  # asked each time: the window may have been resized
                live.update(
                    picture(
                        rows, width=size.width, height=size.height, title=f"{_title(rows)}  (q leaves)", notes=notes
                    ),
                    refresh=True,
                )


def _title(rows: list[Row]) -> str:
    ready = sum(row.seen.ready for row in rows)
    return f"{time.strftime('%H:%M:%S')}  {ready} of {len(rows)} services ready"


async def _ticks(keys: int | None) -> AsyncIterator[bool]:
    """Several times a second, whether a key was pressed that leaves."""
    while True:
        pressed = os.read(keys, 16).decode(errors="replace") if keys is not None and _waiting(keys) else ""
        yield any(key in LEAVE for key in pressed)
        await asyncio.sleep(0.2)


def _waiting(descriptor: int) -> bool:
    import select

    return bool(select.select([descriptor], [], [], 0)[0])


@contextlib.contextmanager
def _keys() -> Iterator[int | None]:
    """The keyboard without line buffering and echo; None where standard input is no terminal."""
    if not sys.stdin.isatty():
        yield None
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)  # Ctrl-C still interrupts
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
