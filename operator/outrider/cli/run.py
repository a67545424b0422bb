"""``outrider run``: the operator."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from outrider.cli.exits import ABSENT, FAILED

if TYPE_CHECKING:
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
    from outrider.settings import Settings, fault_sentence

    try:
        settings = Settings()  # type: ignore[call-arg]  # pydantic-settings fills fields from the environment
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            typer.echo(f"outrider: {fault_sentence(fault)}", err=True)
        raise typer.Exit(FAILED) from None
    telemetry.configure_logging(settings.log_level)
    if settings.metrics_port:
        start_http_server(settings.metrics_port, addr=settings.bind_address)
    asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    import kopf

    from outrider import handlers

    await _examine_definition()
    probe = f"http://{settings.bind_address}:{settings.health_port}/healthz" if settings.health_port else None
    await kopf.operator(
        registry=handlers.register(handlers.Operator(settings)),
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        liveness_endpoint=probe,
    )


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
