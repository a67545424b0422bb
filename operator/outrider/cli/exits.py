"""How commands end: the statuses that scripts may rely on, and what went wrong in a sentence instead of a traceback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import typer

from outrider.errors import OperatorError

WELL, NO, FAILED, ABSENT, REPLACED, INTERRUPTED = 0, 1, 2, 3, 4, 130
MEANINGS: Mapping[int, str] = {
    WELL: "done, and the answer is yes: ready, or nothing refused",
    NO: "done, and the answer is no: a service is not ready, or a resource is refused",
    FAILED: "the command could not be carried out: an option or a file is wrong, or nobody answered",
    ABSENT: "what is needed is not there: a service of that name, or a definition of the resource for this version",
    REPLACED: "the operator has lost its lease, and ended so that never two are active",
    INTERRUPTED: "ended by Ctrl-C before the end",
}
"""Of every command; statuses may be added, none changes its meaning."""


class Unusable(Exception):
    """The command ends here; the message says what is wrong and what to do about it."""

    def __init__(self, sentence: str, status: int = FAILED) -> None:
        super().__init__(sentence)
        self.sentence, self.status = sentence, status


@contextmanager
def told() -> Iterator[None]:
    """End the command with a sentence on standard error and the status that belongs to it."""
    try:
        yield
    except Unusable as error:
        typer.echo(f"outrider: {error.sentence}", err=True)
        raise typer.Exit(error.status) from error
    except OperatorError as error:
        typer.echo(f"outrider: {error.message}", err=True)
        raise typer.Exit(FAILED) from error
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
