"""Load on the engine, its metrics, and the schedule that it is given."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from benchmarks.gpu.engine import ADMIN, HTTP, KEY

HEADERS = {"Authorization": f"Bearer {KEY}"}
PROMPT_TOKENS = 256
OUTPUT_TOKENS = (100, 300)
"""Drawn evenly, so that requests of one level do not end together."""

Samples = dict[tuple[str, str], float]
"""Value by name and label text."""


@dataclass(slots=True)
class Client:
    """A connection to the engine, and what became of its requests."""

    session: aiohttp.ClientSession
    rng: random.Random
    finished: int = 0
    failures: list[str] = field(default_factory=list)
    generation: int = 0

    async def request(self, prompt: int, tokens: int) -> None:
        """One request, to its end."""
        body = {
            "model": "chat", "prompt": [self.rng.randrange(1000, 120_000) for _ in range(prompt)],
            "max_tokens": tokens, "temperature": 0.0, "ignore_eos": True, "return_token_ids": True,
        }  # fmt: skip
        try:
            async with self.session.post(f"{HTTP}/v1/completions", json=body) as answer:
                document = await answer.json()
                if answer.status == 200 and document["usage"]["completion_tokens"] == tokens:
                    self.finished += 1
                else:
                    self.failures.append(f"{answer.status} {str(document)[:200]}")
        except (aiohttp.ClientError, TimeoutError) as error:
            self.failures.append(repr(error)[:200])

    async def put(self, rows: Sequence[Sequence[int]]) -> None:
        """Deliver a schedule; generations go on from what the engine has."""
        self.generation = max(self.generation, int((await self.state())["generation"])) + 1
        body = {"generation": self.generation, "schedule": rows, "leaseSeconds": 3600}
        async with self.session.put(f"{ADMIN}/schedule", json=body, headers=HEADERS) as answer:
            if answer.status != 200:
                raise SystemExit(f"PUT /schedule: {answer.status} {await answer.text()}")

    async def state(self) -> dict[str, Any]:
        """What the plugin says of itself; reading it begins a new longest step."""
        async with self.session.get(f"{ADMIN}/schedule", headers=HEADERS) as answer:
            found: dict[str, Any] = await answer.json()
            found.pop("effective", None)
            return found

    async def page(self) -> str:
        """The metrics page."""
        async with self.session.get(f"{HTTP}/metrics") as answer:
            return await answer.text()


class ClosedLoop:
    """So many requests in flight, each followed by another; the number can be changed while it runs."""

    def __init__(self, client: Client) -> None:
        self.client, self.level = client, 0
        self._workers: dict[int, asyncio.Task[None]] = {}

    def set(self, level: int) -> None:
        """More start at once; fewer come about as requests end."""
        self.level = level
        for number in range(level):
            if number not in self._workers or self._workers[number].done():
                self._workers[number] = asyncio.create_task(self._work(number))

    async def end(self) -> None:
        """Hang up."""
        self.level = 0
        for task in self._workers.values():
            task.cancel()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)

    async def _work(self, number: int) -> None:
        rng = random.Random(number)
        while number < self.level:
            await self.client.request(PROMPT_TOKENS, rng.randint(*OUTPUT_TOKENS))


KEPT_S = 2.0
"""How long an idle connection is kept. vLLM closes it after 5 s; a request that is sent just then is lost."""


def connect() -> aiohttp.ClientSession:
    """Without a limit of connections: requests wait in the engine's queue, not in ours."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_S),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
    )


def read(page: str) -> Samples:
    """A metrics page by name and labels."""
    found: Samples = {}
    for line in page.splitlines():
        if line and line[0] != "#":
            series, _, value = line.rpartition(" ")
            name, _, labels = series.partition("{")
            found[name, labels.rstrip("}")] = float(value)
    return found


def grown(before: Samples, after: Samples, name: str) -> float:
    """Increase of a counter over all its labels."""
    return sum(value - before.get(key, 0.0) for key, value in after.items() if key[0] == name)


def histogram(before: Samples, after: Samples, name: str) -> dict[str, float | None]:
    """Mean and percentiles, ms, of a histogram's increase; a percentile is interpolated within its bucket."""
    count, total = grown(before, after, f"{name}_count"), grown(before, after, f"{name}_sum")
    if not count:
        return {"count": 0, "mean_ms": None, "p50_ms": None, "p99_ms": None}
    counts: dict[float, float] = {}
    for key, value in after.items():
        if key[0] == f"{name}_bucket":
            bound = float(label(key[1], "le"))
            counts[bound] = counts.get(bound, 0.0) + value - before.get(key, 0.0)
    bounds = sorted(counts)
    return {
        "count": count, "mean_ms": round(total / count * 1e3, 3),
        "p50_ms": _percentile(bounds, counts, 0.5 * count), "p99_ms": _percentile(bounds, counts, 0.99 * count),
    }  # fmt: skip


def cells(before: Samples, after: Samples, kind: str) -> list[dict[str, float]]:
    """Steps by batch bucket and K, with their mean batch and time."""
    found = []
    for (name, labels), value in after.items():
        steps = value - before.get((name, labels), 0.0)
        if name == "outrider_engine_steps_total" and f'kind="{kind}"' in labels and steps > 0:
            seconds, requests = (
                after[other, labels] - before.get((other, labels), 0.0)
                for other in ("outrider_engine_step_seconds_total", "outrider_engine_step_requests_total")
            )
            found.append({
                "k": int(label(labels, "speculative_tokens")), "bucket": int(label(labels, "batch")),
                "steps": steps, "batch": round(requests / steps, 2), "ms": round(seconds / steps * 1e3, 4),
            })  # fmt: skip
    return found


def label(labels: str, name: str) -> str:
    """Value of a label."""
    found = re.search(rf'(?:^|,){name}="([^"]*)"', labels)
    assert found is not None, (labels, name)
    return found[1]


def _percentile(bounds: Sequence[float], counts: dict[float, float], rank: float) -> float | None:
    for low, high in itertools.pairwise([0.0, *bounds]):
        if counts[high] >= rank:
            below = counts.get(low, 0.0)
            share = (rank - below) / (counts[high] - below) if counts[high] > below else 1.0
            return None if high == float("inf") else round((low + share * (high - low)) * 1e3, 3)
    return None
