"""A closed loop of requests against the engines of a service, in a thread of its own, for tests that need traffic."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import suppress
from types import TracebackType
from typing import Self

import aiohttp

from tests.testbed.api import ApiError
from tests.testbed.cluster import Cluster
from tests.testbed.service import ServiceView

PROMPT_TOKENS, OUTPUT_TOKENS = 64, 200
"""Short prompts and middling answers: decoding is what speculation is about."""


class Load:
    """Keeps ``concurrency`` requests in flight over the ready engines; use it as a context manager."""

    def __init__(self, cluster: Cluster, namespace: str, name: str, concurrency: int, acceptance: float) -> None:
        self._view = ServiceView(cluster, namespace, name)
        self._concurrency = concurrency
        self._addresses: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name=f"load-{name}", daemon=True)
        self.acceptance = acceptance
        """Conditional acceptance of each draft token; may be changed at any time."""
        self.outcomes: Counter[str] = Counter()
        """Requests by HTTP status, or by the name of what went wrong."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=30)

    async def _run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
            workers = [asyncio.create_task(self._worker(session, number)) for number in range(self._concurrency)]
            while not self._stop.is_set():
                with suppress(ApiError):  # goes on with those that it knows
                    self._addresses = await asyncio.to_thread(self._view.ready_addresses)
                await asyncio.sleep(0.5)
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _worker(self, session: aiohttp.ClientSession, number: int) -> None:
        while True:
            if not self._addresses:
                await asyncio.sleep(0.1)
                continue
            address = self._addresses[number % len(self._addresses)]
            curve = ",".join(f"{self.acceptance ** (position + 1):.4f}" for position in range(8))
            body = {
                "model": self._view.name,
                "prompt": "w " * PROMPT_TOKENS,
                "max_tokens": OUTPUT_TOKENS,
                "ignore_eos": True,
                "vllm_xargs": {"simulated_acceptance": curve},
            }
            try:
                async with session.post(f"http://{address}:8000/v1/completions", json=body) as answer:
                    await answer.read()
                    self.outcomes[str(answer.status)] += 1
            except (aiohttp.ClientError, TimeoutError) as error:
                self.outcomes[type(error).__name__] += 1
                await asyncio.sleep(0.2)
