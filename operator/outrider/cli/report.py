"""``outrider report``: a service and a period as one page."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.cli.connection import (
    ContextOption,
    KubeconfigOption,
    NameArgument,
    NamespaceOption,
    PrometheusOption,
    Reach,
    connected,
    services,
    store,
)
from outrider.cli.exits import Unusable, told
from outrider.cli.output import Output, emit
from outrider.errors import KubeError

if TYPE_CHECKING:
    from outrider.cli.report_data import Period
    from outrider.cli.seen import Seen

SHORTEST_S = 60.0
HELP = """Write a page about a service and a period: plots, sums, decisions, and GPU-hours saved with what is assumed.

The page is one HTML file that loads nothing from elsewhere and carries its numbers as JSON. They come from the metrics
store; decisions from the resource's status, and events as long as the cluster keeps them.

Exit status: 0 when it was written, 2 when the command cannot be carried out, 3 when there is no such service.

For example: outrider report chat -n ml --since 2h --html chat.html"""


def report(
    name: NameArgument,
    namespace: NamespaceOption = None,
    since: Annotated[str, typer.Option(help="How far back, such as 30m or 2h.")] = "1h",
    until: Annotated[str, typer.Option(metavar="AGO", help="Where the period ends, so long ago.")] = "0s",
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Page to write. (default: NAMESPACE-NAME.html here)")
    ] = None,
    output: Annotated[
        Output | None,
        typer.Option(
            "--output", "-o", help="Print the numbers in this form; a page is then written with --html alone."
        ),
    ] = None,
    prometheus: PrometheusOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Run the command; `HELP` is what the command line says of it."""
    with told():
        document = asyncio.run(
            _gather(Reach(namespace, False, context, kubeconfig, prometheus), name, _period(since, until))
        )
        if html is not None or output is None:
            _write(html or Path(f"{document['service']['namespace']}-{document['service']['name']}.html"), document)
    emit(document, output or Output.TABLE, lambda: _say(document))


def _period(since: str, until: str) -> Period:
    from outrider.cli.report_data import Period
    from outrider.replay.notation import duration_s

    ends = []
    for option, text in (("--since", since), ("--until", until)):
        try:
            ends.append(time.time() - duration_s(text))
        except ValueError as error:
            raise Unusable(f"{option}: {error}") from error
    if ends[1] - ends[0] < SHORTEST_S:
        raise Unusable(f"--since {since}: must be {SHORTEST_S:.0f}s or more before --until ({until} ago)")
    return Period(*ends)


async def _gather(reach: Reach, name: str, period: Period) -> dict[str, Any]:
    from outrider.cli import report_data
    from outrider.cli.beliefs import recall
    from outrider.cli.seen import see

    async with connected(reach) as (kube, of_context):
        (body,) = await services(kube, reach, of_context, name)
        source, beliefs = await store(kube, reach, [body]), await recall(kube, body)
        seen = see(body)
        known = None if isinstance(beliefs, str) else beliefs
        return await report_data.gather(source, seen, period, known, await _events(kube, seen))


async def _events(kube: Any, seen: Seen) -> list[dict[str, Any]]:
    """Events of the resource itself; none where we may not look."""
    try:
        found = await kube.list("v1", "Event", seen.namespace)
    except KubeError:
        return []
    uid = seen.body["metadata"].get("uid")
    return [one for one in found if one.get("involvedObject", {}).get("uid") == uid]


def _write(path: Path, document: dict[str, Any]) -> None:
    from outrider.cli.report_page import render

    try:
        path.write_text(render(document, shlex.join(["outrider", *sys.argv[1:]])), encoding="utf-8")
    except OSError as error:
        raise Unusable(f"--html {path}: cannot be written: {error.strerror}; choose another place") from error
    typer.echo(f"wrote {path}", err=True)


def _say(document: dict[str, Any]) -> None:
    from outrider.cli.report_page import headline

    for sentence in headline(document):
        typer.echo(sentence)
