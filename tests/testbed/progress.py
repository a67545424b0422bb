"""Tell the progress of builds and of a start as lines of text: the plain display, for terminals and log files alike."""

from __future__ import annotations

import sys
from typing import TextIO

from tests.testbed.build import BuildEvent, Report


def duration(seconds: float) -> str:
    """A time as a person says it: ``25 s``, ``5.5 min``."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} min"


def build_line(event: BuildEvent) -> str | None:
    """One line for an event; None where there is nothing worth a line."""
    name, usual = event.tool.name, duration(event.tool.usual_s)
    place = f"[{event.position}/{event.total}] "
    lines = {
        "waiting": f"{place}{name}: another process builds this module, waiting for it",
        "building": f"{place}{name}: building, usually {usual} on two cores; log: {event.log}",
        "still building": f"{place}{name}: building for {duration(event.elapsed_s)}, usually {usual}",
        "built": f"{place}{name}: built in {duration(event.elapsed_s)}",
        "failed": f"{place}{name}: failed after {duration(event.elapsed_s)}; log: {event.log}",
    }
    return lines.get(event.state)


def line_reporter(stream: TextIO | None = None) -> Report:
    """A report function that prints each line at once, to standard error unless told otherwise."""

    def report(event: BuildEvent) -> None:
        line = build_line(event)
        if line is not None:
            print(line, file=stream or sys.stderr, flush=True)

    return report
