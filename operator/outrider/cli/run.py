"""``outrider run``: the operator."""

from __future__ import annotations

import asyncio
import logging

import kopf
import typer
from prometheus_client import start_http_server
from pydantic import ValidationError

from outrider import handlers, telemetry
from outrider.adapters.kube import Kube
from outrider.cli.exits import ABSENT, FAILED
from outrider.reconcile import definition
from outrider.settings import Settings, described, fault_sentence

logger = logging.getLogger(__name__)


HELP = "Run the operator until it is stopped. Settings come from the environment:\n\n" + "\n\n".join(described())


def run() -> None:
    """Run the operator; `HELP` is what the command line says of it."""
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
    kube = await Kube.connect()
    try:
        fault = await definition.fault(kube)
    finally:
        await kube.close()
    if fault is not None:
        logger.critical("%s", fault, extra={"reason": "DefinitionTooOld"})
        raise typer.Exit(ABSENT)
