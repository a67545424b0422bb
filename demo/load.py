"""The users: requests at their times, each to the ready pod with the fewest in flight, as endpoint pickers do."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from demo.neighbours import HTTP_PORT
from outrider.simulator.request import Request

TIMEOUT = aiohttp.ClientTimeout(total=180)
TRIES = 5
"""Pods that vanish one after the other before a request counts as failed."""
PAUSE_S = 0.2
"""Before another try, so that the picker has heard of the pod's end."""

Addresses = Callable[[], Sequence[str]]


@dataclass(slots=True)
class Load:
    """Sends one service's requests; the counts are what its users saw."""

    service: str
    requests: Sequence[Request]
    addresses: Addresses
    """The ready pods that are not on their way out, at this moment."""
    port: int = HTTP_PORT

    sent: int = 0
    answered: int = 0
    retried: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """Requests that got no answer, by what went wrong last."""
    _in_flight: Counter[str] = field(default_factory=Counter)

    async def run(self, began_s: float) -> None:
        """Send everything, counted from ``began_s`` (monotonic), and wait for the answers."""
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=TIMEOUT) as session, asyncio.TaskGroup() as tasks:
            for request in self.requests:
                await asyncio.sleep(began_s + request.arrival_s - time.monotonic())
                self.sent += 1
                tasks.create_task(self._send(session, request))

    @property
    def in_flight(self) -> int:
        """Requests without an answer so far."""
        return self.sent - self.answered - self.failures.total()

    def counts(self) -> dict[str, Any]:
        """What the users saw, for the summary."""
        return {
            "sent": self.sent,
            "answered": self.answered,
            "retried": self.retried,
            "failed": self.failures.total(),
            "failures": dict(self.failures),
        }

    async def _send(self, session: aiohttp.ClientSession, request: Request) -> None:
        fault = "no ready pod"
        for number in range(TRIES):
            if number:
                self.retried += 1
                await asyncio.sleep(PAUSE_S)
            address = self._pick()
            if address is None:
                continue
            self._in_flight[address] += 1
            try:
                async with session.post(
                    f"http://{address}:{self.port}/v1/completions", json=self._body(request)
                ) as answer:
                    await answer.read()
                    if answer.status == 200:
                        self.answered += 1
                        return
                    fault = f"status {answer.status}"
            except (TimeoutError, aiohttp.ClientError) as error:
                fault = type(error).__name__
            finally:
                self._in_flight[address] -= 1
        self.failures[fault] += 1

    def _pick(self) -> str | None:
        return min(self.addresses(), key=lambda address: self._in_flight[address], default=None)

    def _body(self, request: Request) -> Mapping[str, Any]:
        curve = request.acceptance or ()
        return {
            "model": self.service,
            "prompt": "w " * request.prompt_tokens,
            "max_tokens": request.output_tokens,
            "ignore_eos": True,
            "vllm_xargs": {"simulated_acceptance": ",".join(f"{value:.4f}" for value in curve)},
        }
