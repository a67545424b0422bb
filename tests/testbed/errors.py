"""The one error that the local cluster raises to its users: what went wrong, and what to do about it."""

from __future__ import annotations

from pathlib import Path

LINES_SHOWN = 15  # Enough for a Go compiler error or the fatal line of a server with its context, still one screen.


class ClusterError(RuntimeError):
    """Something the reader can act on; ``remedy`` is a sentence that says how, empty where the message says it all."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}\n{remedy}" if remedy else message)
        self.message = message
        self.remedy = remedy


def last_lines(log: Path, count: int = LINES_SHOWN) -> str:
    """The last ``count`` lines of a log, indented to be quoted in a message; says so where there is none."""
    try:
        lines = log.read_text(errors="replace").splitlines()[-count:]
    except OSError as error:
        return f"    (no log: {error})"
    return "\n".join(f"    {line}" for line in lines) or "    (the log is empty)"
