"""``outrider support-bundle``: everything that helps somebody else to help, without secrets."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.cli.connection import (
    ContextOption,
    EverywhereOption,
    KubeconfigOption,
    MaybeName,
    NamespaceOption,
    PrometheusOption,
    Reach,
    connected,
    services,
)
from outrider.cli.exits import Unusable, told
from outrider.cli.output import Output, OutputOption, emit

if TYPE_CHECKING:
    from outrider.cli.bundle import Bundle

HELP = """Gather what somebody else needs to find out what is wrong, and leave secrets out.

One archive: the resources and their children, events, the ends of the engines' and the operator's logs, metrics of this
moment, versions. CONTENTS.txt in it, and the answer, list every file and what could not be read. Secrets are not read;
values of environment variables are left out, and what looks like a key, a token or a password is masked everywhere:
look through it all the same before you hand it on.

Exit status: 0 when it was written, 2 when the command cannot be carried out, 3 when there is no such service.

For example: outrider support-bundle chat -n ml"""


def support_bundle(
    name: MaybeName = None,
    namespace: NamespaceOption = None,
    everywhere: EverywhereOption = False,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Archive to write. (default: outrider-support-TIME.tar.gz here)")
    ] = None,
    output: OutputOption = Output.TABLE,
    prometheus: PrometheusOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Run the command; `HELP` is what the command line says of it."""
    now_s = time.time()
    stem = f"outrider-support-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now_s))}"
    path = file or Path(f"{stem}.tar.gz")
    head = f"Outrider support bundle, {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(now_s))} UTC"
    with told():
        bundle = asyncio.run(_gather(Reach(namespace, everywhere, context, kubeconfig, prometheus), name))
        try:
            path.write_bytes(bundle.packed(stem, head, now_s))
            path.chmod(0o600)
        except OSError as error:
            raise Unusable(f"--file {path}: cannot be written: {error.strerror}; choose another place") from error
    emit(_document(bundle, path), output, lambda: _show(bundle, head, path))


async def _gather(reach: Reach, name: str | None) -> Bundle:
    from outrider.cli.bundle_gathering import Gathering

    async with connected(reach) as (kube, of_context):
        return await Gathering(kube, reach, await services(kube, reach, of_context, name)).everything()


def _document(bundle: Bundle, path: Path) -> dict[str, Any]:
    return {
        "version": 1,
        "file": str(path),
        "contents": [{"name": name, "bytes": len(text.encode())} for name, text in bundle.files.items()],
        "missing": list(bundle.missing),
    }


def _show(bundle: Bundle, head: str, path: Path) -> None:
    typer.echo(bundle.contents(head), nl=False)
    typer.echo(f"\nwrote {path}; look through it before you hand it on")
