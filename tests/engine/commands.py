"""Run a command that takes minutes: its output in a log, a line of progress now and then, and ended when we are."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_PROGRESS_EVERY_S = 30.0
_POLL_S = 0.2
_LAST_LINES = 15

Report = Callable[[str], None]


class CommandFailed(Exception):
    """It ended with another status than 0; the message has the end of its log."""


def run(command: Sequence[str], log: Path, report: Report, *, name: str, keep_open: Sequence[int] = ()) -> None:
    """Run it to its end; ``keep_open`` are file descriptors that it inherits.

    Raises:
        CommandFailed: it failed.
    """
    with log.open("ab") as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=keep_open)
    try:
        _watch(child, report)
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()
    if child.returncode != 0:
        lines = log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        raise CommandFailed(f"{name} ended with status {child.returncode}:\n" + "\n".join(lines))


def _watch(child: subprocess.Popen[bytes], report: Report) -> None:
    began = told = time.monotonic()
    while child.poll() is None:
        time.sleep(_POLL_S)
        if time.monotonic() - told > _PROGRESS_EVERY_S:
            told = time.monotonic()
            report(f"still at it, for {told - began:.0f} s")
