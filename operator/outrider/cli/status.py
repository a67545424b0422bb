"""``outrider status``: whether services are as they should be."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import typer

from outrider.cli.connection import (
    ContextOption,
    EverywhereOption,
    KubeconfigOption,
    MaybeName,
    NamespaceOption,
    Reach,
    connected,
    services,
)
from outrider.cli.exits import NO, told
from outrider.cli.output import Output, OutputOption, emit

if TYPE_CHECKING:
    from outrider.cli.seen import Seen

HELP = """Say how services are: a line each, or everything about one.

Exit status: 0 when every service that was asked for is ready, 1 when one is not, 2 when the command cannot be carried
out, 3 when there is no service of that name.

For example: outrider status -A; outrider status chat -n ml -o json"""


def status(
    name: MaybeName = None,
    namespace: NamespaceOption = None,
    everywhere: EverywhereOption = False,
    output: OutputOption = Output.TABLE,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Run the command; `HELP` is what the command line says of it."""
    # Here and not above: pydantic would slow every other command down.
    from outrider.cli import status_view

    with told():
        found = asyncio.run(_look(Reach(namespace, everywhere, context, kubeconfig), name))
    now_s = time.time()
    emit(
        status_view.document(found),
        output,
        lambda: status_view.show(found, now_s, whole=name is not None, everywhere=everywhere),
    )
    if not all(one.ready for one in found):
        raise typer.Exit(NO)


async def _look(reach: Reach, name: str | None) -> list[Seen]:
    from outrider.cli.seen import see

    async with connected(reach) as (kube, of_context):
        return [see(body) for body in await services(kube, reach, of_context, name)]
