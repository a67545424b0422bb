"""The command line's entry: ``outrider``, and ``kubectl outrider`` by name."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

from outrider import __version__
from outrider.cli import explain as explain_command
from outrider.cli import predict as predict_command
from outrider.cli import preflight as preflight_command
from outrider.cli import report as report_command
from outrider.cli import run as run_command
from outrider.cli import simulate as simulate_command
from outrider.cli import status as status_command
from outrider.cli import support_bundle as support_bundle_command
from outrider.cli import top as top_command

LOOK, PLAN, SERVE = "Look at services", "Plan", "Serve"
app = typer.Typer(
    name="outrider",
    help="Speculative-decoding inference services on Kubernetes, steered while they serve.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _name, _panel, _help, _run in (
    ("status", LOOK, status_command.HELP, status_command.status),
    ("explain", LOOK, explain_command.HELP, explain_command.explain),
    ("top", LOOK, top_command.HELP, top_command.top),
    ("report", LOOK, report_command.HELP, report_command.report),
    ("support-bundle", LOOK, support_bundle_command.HELP, support_bundle_command.support_bundle),
    ("preflight", PLAN, preflight_command.HELP, preflight_command.preflight),
    ("simulate", PLAN, simulate_command.HELP, simulate_command.simulate),
    ("predict", PLAN, predict_command.HELP, predict_command.predict),
):
    app.command(_name, help=_help, rich_help_panel=_panel)(_run)
app.command("run", cls=run_command.RunCommand, help=run_command.HELP, rich_help_panel=SERVE)(run_command.run)


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
    """Run the command line; help speaks of it by the name that it was called by."""
    plugin = Path(sys.argv[0]).name.startswith("kubectl-")
    app(prog_name="kubectl outrider" if plugin and "_OUTRIDER_COMPLETE" not in os.environ else "outrider")


def complete() -> None:
    """``kubectl_complete-outrider``: what may follow, as kubectl asks its plugins.

    kubectl gives the words after ``kubectl outrider``, the last one unfinished, and reads a line a word; the last line
    is a directive: 4, no file names.
    """
    words = ["outrider", *sys.argv[1:]]
    os.environ |= {
        "_OUTRIDER_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    try:
        app(prog_name="outrider", args=[])
    except SystemExit:
        typer.echo(":4")
