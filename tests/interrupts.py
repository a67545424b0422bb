"""Processes that hear Ctrl-C, whoever started the tests."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Processes that are started here hear SIGINT: a shell has those in its background ignore it, and their children
    inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
