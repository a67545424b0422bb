"""The command line's entry."""

from __future__ import annotations

import typer

from outrider import __version__
from outrider.cli import predict as predict_command
from outrider.cli import preflight as preflight_command
from outrider.cli import run as run_command
from outrider.cli import simulate as simulate_command

app = typer.Typer(
    name="outrider",
    help="Speculative-decoding inference services on Kubernetes, steered while they serve.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("run", help=run_command.HELP)(run_command.run)
app.command("predict", help=predict_command.HELP)(predict_command.predict)
app.command("preflight", help=preflight_command.HELP)(preflight_command.preflight)
app.command("simulate", help=simulate_command.HELP)(simulate_command.simulate)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"outrider {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Options before the subcommand."""


def main() -> None:
    """Run the command line."""
    app()
