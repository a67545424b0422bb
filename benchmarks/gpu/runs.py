"""What is measured on the machine; each run adds its rows as it goes."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.client import Client, ClosedLoop, Samples, cells, connect, grown, histogram, read
from benchmarks.gpu.engine import rendered
from benchmarks.gpu.pilot import Pilot

TRACE = ((4, 10.0), (64, 10.0), (16, 10.0), (160, 12.0), (32, 12.0))
"""Requests in flight and seconds: the mixed load, in an order that goes up and down."""
SETTLE_S = 4.0
"""Left out at the start of each level: requests of the level before end, new ones begin."""
MAX_BATCH = 256
HELD_TOKENS = 7000
LEVELS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256)
LONG_LEVELS = (16, 64, 128)
LONG_PROMPT = 1500
CELL_S = 1.0
PROMPTS = (128, 512, 1024, 2048, 4096, 7168)
TPOT, TTFT = "vllm:request_time_per_output_token_seconds", "vllm:time_to_first_token_seconds"


@dataclass(slots=True)
class Book:
    """The file of results, one row a line."""

    path: Path
    show: Callable[[str], None]

    def add(self, kind: str, **row: Any) -> None:
        """Save a row, and show it."""
        row = {"kind": kind, "at": round(time.time(), 1), **row}
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        self.show(json.dumps(row)[:300])


async def calibrate(book: Book, values: Sequence[int]) -> None:
    """Step times by batch and K at two contexts, and the time of a prompt alone."""
    async with connect() as session:
        client = Client(session, random.Random(1))
        for prompt in PROMPTS:
            before = read(await client.page())
            for _ in range(4):
                await client.request(prompt, 1)
            after = read(await client.page())
            book.add("prefill", prompt=prompt, **histogram(before, after, TTFT), steps=cells(before, after, "mixed"))
        for prompt, levels in ((256, LEVELS), (LONG_PROMPT, LONG_LEVELS)):
            for level in levels:
                await _hold(book, client, prompt, level, values)


async def _hold(book: Book, client: Client, prompt: int, level: int, values: Sequence[int]) -> None:
    """A batch that stays while K changes under it."""
    held = [asyncio.create_task(client.request(prompt, HELD_TOKENS - prompt)) for _ in range(level)]
    await _admitted(client)
    await asyncio.sleep(0.8 + level * prompt / 40_000)  # the prompts of all, at a rate an H100 exceeds
    for k in values:
        await client.put([[1, MAX_BATCH, k]])
        await asyncio.sleep(0.25)
        before = read(await client.page())
        await asyncio.sleep(CELL_S)
        after = read(await client.page())
        usage = max(value for key, value in after.items() if key[0] == "vllm:kv_cache_usage_perc")
        book.add(
            "cell", prompt=prompt, level=level, k=k, kv_usage=round(usage, 4), steps=cells(before, after, "decode")
        )
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    await asyncio.sleep(0.3)


async def _admitted(client: Client) -> None:
    """Until no request waits."""
    while True:
        await asyncio.sleep(0.1)
        if grown({}, read(await client.page()), "vllm:num_requests_waiting") == 0:
            return


async def trace(book: Book, arms: Sequence[str], rounds: int, tuning: str) -> None:
    """The mixed load once a round and arm: ``k1`` to ``k5``, ``outrider``, ``threshold``, or ``none``.

    Arms go round in rotated order. Outrider keeps what it learnt from one round to the next: its first is a cold start.
    """
    config = rendered(tuning)[2]
    async with connect() as session:
        client = Client(session, random.Random(2))
        pilots = {
            "outrider": Pilot.of(client, config),
            "threshold": Pilot.of(client, replace(config, policy="AcceptanceThreshold")),
        }
        for number in range(rounds):
            shift = number % len(arms)
            for arm in (*arms[shift:], *arms[:shift]):
                await _play(book, client, pilots.get(arm), arm, number)
        for name, pilot in pilots.items():
            if pilot.log or pilot.pass_s:
                book.add("decisions", arm=name, changes=pilot.log, pass_s=[round(one, 4) for one in pilot.pass_s])


async def _play(book: Book, client: Client, pilot: Pilot | None, arm: str, number: int) -> None:
    steering = asyncio.create_task(pilot.run()) if pilot else None
    if arm.startswith("k"):
        await client.put([[1, MAX_BATCH, int(arm[1:])]])
    await client.state()
    loop, failed = ClosedLoop(client), len(client.failures)
    for level, seconds in TRACE:
        loop.set(level)
        await asyncio.sleep(SETTLE_S)
        began, before = time.monotonic(), read(await client.page())
        await asyncio.sleep(seconds - SETTLE_S)
        took, after = time.monotonic() - began, read(await client.page())
        book.add("level", arm=arm, round=number, level=level, **yielded(before, after, took))
    state = await client.state()
    if steering is not None:
        if steering.done():
            steering.result()  # raises what ended it: an arm that nobody steered is no result
        steering.cancel()
        with suppress(asyncio.CancelledError):
            await steering
    await loop.end()
    book.add(
        "trace", arm=arm, round=number, longest_step_s=state.get("longestStepSeconds"), stalls=state.get("stalls"),
        failures=client.failures[failed:][:5], num_failed=len(client.failures) - failed,
    )  # fmt: skip
    await asyncio.sleep(1.0)


def yielded(before: Samples, after: Samples, seconds: float) -> dict[str, Any]:
    """What the engine did between two pages that were read so many seconds apart."""
    return {
        "seconds": round(seconds, 3),
        "tokens_per_second": round(grown(before, after, "vllm:generation_tokens_total") / seconds, 1),
        "tpot": histogram(before, after, TPOT), "ttft": histogram(before, after, TTFT),
        "drafts": grown(before, after, "vllm:spec_decode_num_drafts_total"),
        "accepted": grown(before, after, "vllm:spec_decode_num_accepted_tokens_total"),
        "steps": cells(before, after, "decode"), "mixed": cells(before, after, "mixed"),
    }  # fmt: skip


async def changes(book: Book, seconds: float, values: Sequence[int]) -> None:
    """Random schedules every 50 to 200 ms under a closed loop of 48 requests."""
    async with connect() as session:
        client, rng = Client(session, random.Random(3)), random.Random(4)
        await client.state()
        loop, count, until_s = ClosedLoop(client), 0, time.monotonic() + seconds
        loop.set(48)
        while time.monotonic() < until_s:
            bands = ((1, 20), (21, 60), (61, MAX_BATCH))
            await client.put([[first, last, rng.choice(values)] for first, last in bands])
            count += 1
            await asyncio.sleep(rng.uniform(0.05, 0.2))
        state = await client.state()
        await loop.end()
        book.add(
            "random", seconds=seconds, changes=count, finished=client.finished, num_failed=len(client.failures),
            failures=client.failures[:5], longest_step_s=state.get("longestStepSeconds"), stalls=state.get("stalls"),
        )  # fmt: skip
