"""A work queue of keys: each key at most once in the queue and in one worker at a time, failures retried with growing
delay; what is new goes before what is only to be looked at again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")

FIRST_DELAY_S = 1.0
MAX_DELAY_S = 120.0
"""A service that cannot be reconciled is looked at every two minutes: often enough for a pager, rare enough for a
thousand of them."""


class WorkQueue(Generic[Key]):
    """Runs ``work(key)`` for the keys that were added.

    ``work`` returns seconds after which to run again (a retry: it grows with the number of failures in a row), or None.
    A key added while its work runs is run once more afterwards, so that no change is lost and none is handled twice at
    a time.
    """

    def __init__(self, work: Callable[[Key], Awaitable[float | None]], workers: int = 4) -> None:
        self._work, self._workers = work, workers
        self._new: deque[Key] = deque()
        self._reminders: deque[Key] = deque()
        """A control pass reminds of every service of the fleet twice a minute: a changed spec must not wait for all."""
        self._ready = asyncio.Semaphore(0)
        self._queued: set[Key] = set()
        self._running: set[Key] = set()
        self._again: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    def add(self, key: Key) -> None:
        """Have the key worked on soon."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._running:
            self._again.add(key)
        elif key not in self._queued:
            self._enter(key, self._new)
        elif key in self._reminders:
            self._reminders.remove(key)
            self._new.append(key)

    def remind(self, key: Key) -> None:
        """The same after all that is new, unless a retry is planned: what failed waits for its turn."""
        if key in self._timers:
            return
        if key in self._running:
            self._again.add(key)
        elif key not in self._queued:
            self._enter(key, self._reminders)

    def forget(self, key: Key) -> None:
        """Drop the retries of a key that is gone."""
        self._failures.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._worker())
        finally:
            for timer in self._timers.values():
                timer.cancel()

    async def _worker(self) -> None:
        while True:
            await self._ready.acquire()
            key = (self._new or self._reminders).popleft()
            self._queued.discard(key)
            self._running.add(key)
            try:
                retry_after_s = await self._work(key)
            finally:
                self._running.discard(key)
            self._plan(key, retry_after_s)

    def _enter(self, key: Key, line: deque[Key]) -> None:
        self._queued.add(key)
        line.append(key)
        self._ready.release()

    def _plan(self, key: Key, retry_after_s: float | None) -> None:
        if key in self._again:
            self._again.discard(key)
            self.add(key)
        elif retry_after_s is None:
            self._failures.pop(key, None)
        else:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            growing_s = FIRST_DELAY_S * 2.0 ** min(failures - 1, 10)  # far above the longest delay; more would overflow
            delay_s = min(MAX_DELAY_S, max(retry_after_s, growing_s))
            self._timers[key] = asyncio.get_running_loop().call_later(delay_s, self.add, key)
