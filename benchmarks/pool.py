"""Replays side by side."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Result = TypeVar("Result")


def play_all(jobs: Sequence[Callable[[], Result]], processes: int) -> list[Result]:
    """What every job gives, in their order; progress goes to stderr."""
    began_s, last_s = time.perf_counter(), 0.0
    found: list[tuple[int, Any]] = []
    with multiprocessing.Pool(processes) as pool:
        for one in pool.imap_unordered(_numbered, enumerate(jobs)):
            found.append(one)
            passed_s = time.perf_counter() - began_s
            if passed_s > last_s + 5.0 or len(found) == len(jobs):
                last_s = passed_s
                sys.stderr.write(f"{len(found)} of {len(jobs)} replays, {passed_s:.0f} s\n")
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def _numbered(job: tuple[int, Callable[[], Result]]) -> tuple[int, Result]:
    return job[0], job[1]()
