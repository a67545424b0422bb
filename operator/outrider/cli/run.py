"""``outrider run``: the operator."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from outrider.cli.exits import ABSENT, FAILED

if TYPE_CHECKING:
    from outrider.cli.leading import Leadership
    from outrider.settings import Settings

logger = logging.getLogger(__name__)
HELP = "Run the operator until it is stopped. Settings come from the environment; run --help lists them."


class RunCommand(TyperCommand):
    """The command, whose help lists every setting: pydantic knows them, and would slow every other command down."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Add the settings to the text, and show it."""
        self.help = full_help()
        super().format_help(ctx, formatter)


def full_help() -> str:
    """`HELP`, with a paragraph for each setting."""
    from outrider.settings import described

    return "\n\n".join((HELP.removesuffix("; run --help lists them.") + ":", *described()))


def run() -> None:
    """Run the operator; `full_help` is what the command line says of it."""
    # Here and not above, as in the functions below: they would slow every other command down.
    from prometheus_client import start_http_server
    from pydantic import ValidationError

    from outrider import telemetry
    from outrider.cli.leading import Leadership
    from outrider.settings import Settings, fault_sentence

    try:
        settings = Settings()  # type: ignore[call-arg]  # pydantic-settings fills fields from the environment
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            typer.echo(f"outrider: {fault_sentence(fault)}", err=True)
        raise typer.Exit(FAILED) from None
    telemetry.configure_logging(settings.log_level)
    collect_rarely()
    take_turns()
    if settings.metrics_port:
        start_http_server(settings.metrics_port, addr=settings.bind_address)
    leadership = Leadership(settings)
    try:
        asyncio.run(_serve(settings, leadership))
    finally:
        leadership.close()  # last of all: whoever waits acts from now on


def collect_rarely() -> None:
    """Look for garbage less often than Python does by itself.

    Every control pass makes millions of objects that live until its end, none of them in a cycle. At the usual pace the
    collector walks over all of them again and again, and takes a third of the pass.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def take_turns() -> None:
    """Let threads give way to one another ten times as often as Python does by itself.

    Whoever sends, hashes or sorts lets another thread go on meanwhile, and waits for its turn afterwards: 5 ms, while
    answers of Prometheus are read or the page of metrics is made. That is more than a whole call takes.
    """
    sys.setswitchinterval(0.0005)


async def _serve(settings: Settings, leadership: Leadership) -> None:
    import kopf

    from outrider import handlers
    from outrider.cli.waiting import PATH, probes_answered

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):  # until Kopf puts its own in their place
        loop.add_signal_handler(number, stop.set)
    async with probes_answered(settings.bind_address, settings.health_port, leadership.sentence):
        if not await _until(stop, _wait(leadership)):
            return
    probe = f"http://{settings.bind_address}:{settings.health_port}{PATH}" if settings.health_port else None
    await kopf.operator(
        registry=handlers.register(handlers.Operator(settings, leadership)),
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        liveness_endpoint=probe,
        stop_flag=stop,
    )


async def _wait(leadership: Leadership) -> None:
    """Return when this operator may act.

    The definition is compared before: of two versions, the one that the cluster is not ready for must not take over.
    """
    await _examine_definition()
    leadership.start()
    await leadership.won()


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether the work was done before the signal came."""
    done, signalled = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((done, signalled), return_when=asyncio.FIRST_COMPLETED)
        if done.done():
            done.result()  # raises what the work has raised
        return done.done()
    finally:
        done.cancel()
        signalled.cancel()


async def _examine_definition() -> None:
    """End before anything is written when the cluster's definition of the resource is not for this version."""
    from outrider.adapters.kube import Kube
    from outrider.reconcile import definition

    kube = await Kube.connect()
    try:
        fault = await definition.fault(kube)
    finally:
        await kube.close()
    if fault is not None:
        logger.critical("%s", fault, extra={"reason": "DefinitionTooOld"})
        raise typer.Exit(ABSENT)
