"""Who tells what the operator does, beside itself: the API server's audit log, Prometheus' own counters, the kernel.

Durations of control passes alone are the operator's word: its histogram's sum and count, read after each pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import aiohttp

ACCOUNT = "system:serviceaccount:outrider-system:outrider"
READS = ("get", "list", "watch")
PASS = "outrider_control_pass_seconds"
RECONCILED = "outrider_reconcile_seconds_count"
LOOK_S = 0.4
"""Shorter than the pause between two passes, so that each is seen by itself."""


def calls(lines: Iterable[str], since_s: float, until_s: float) -> Counter[tuple[str, str]]:
    """The operator's calls between two Unix times: how many by verb and resource, such as ``pods/status``."""
    found = Counter[tuple[str, str]]()
    for line in lines:
        if ACCOUNT not in line:
            continue
        try:
            event = json.loads(line)
        except ValueError:  # the last line, while it is being written
            continue
        target = event.get("objectRef", {})
        at_s = datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
        if since_s <= at_s < until_s and event["user"]["username"] == ACCOUNT:
            name = "/".join(filter(None, (target.get("resource", ""), target.get("subresource", ""))))
            found[event["verb"], name] += 1
    return found


def audited(logs: Path, since_s: float, until_s: float) -> Counter[tuple[str, str]]:
    """The same from the logs in a folder; only what was not rotated away twice since then."""
    found = Counter[tuple[str, str]]()
    for log in sorted(logs.glob("audit*.log")):
        if log.stat().st_mtime >= since_s:
            with log.open() as lines:
                found += calls(lines, since_s, until_s)
    return found


def writes(found: Counter[tuple[str, str]]) -> dict[str, int]:
    """Writes among calls, by resource."""
    summed = Counter[str]()
    for (verb, resource), number in found.items():
        if verb not in READS:
            summed[resource] += number
    return dict(summed.most_common())


def sample(text: str, name: str, **labels: str) -> float:
    """Sum of the samples of a name with these labels in the text of a scrape."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    total = 0.0
    for line in text.splitlines():
        if line.startswith((f"{name} ", f"{name}{{")) and all(one in line for one in wanted):
            total += float(line.rsplit(" ", 1)[1])
    return total


@dataclass(frozen=True, slots=True)
class Use:
    """What the kernel says of a process."""

    cpu_s: float
    rss_mib: float
    peak_rss_mib: float

    @classmethod
    def of(cls, pid: int | str) -> Use:
        """Read it now."""
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        memory = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        ticks = os.sysconf("SC_CLK_TCK")
        kib = {name: int(memory[name].split()[0]) for name in ("VmRSS", "VmHWM")}
        return cls((int(fields[11]) + int(fields[12])) / ticks, kib["VmRSS"] / 1024, kib["VmHWM"] / 1024)


class Passes:
    """Control passes as the operator's histogram tells of them, looked at often enough to tell them apart."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.seen: list[tuple[float, float]] = []
        """When each was seen to have ended (Unix time), and how long it took, seconds."""
        self.reconciled = 0.0
        """Objects passes so far."""

    async def follow(self) -> None:
        """Look until cancelled; an operator that does not answer yet is looked at again."""
        before = (0.0, 0.0)
        timeout = aiohttp.ClientTimeout(total=30)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    text = await scraped(session, self.url, f"{PASS}_count", f"{PASS}_sum", RECONCILED)
                    after = (sample(text, f"{PASS}_count"), sample(text, f"{PASS}_sum"))
                    self.reconciled = sample(text, RECONCILED)
                    self.seen += noted(time.time(), before, after)
                    before = after
                await asyncio.sleep(LOOK_S)

    def durations_s(self, since_s: float, until_s: float) -> list[float]:
        """Of the passes that ended then."""
        return [duration_s for at_s, duration_s in self.seen if since_s <= at_s < until_s]


def noted(at_s: float, before: tuple[float, float], after: tuple[float, float]) -> list[tuple[float, float]]:
    """The passes between two looks at count and sum; several count with their mean."""
    number = round(after[0] - before[0])
    return [(at_s, (after[1] - before[1]) / number)] * number if number > 0 else []


async def scraped(session: aiohttp.ClientSession, url: str, *names: str) -> str:
    """A part of a process's metrics."""
    query = "&".join(f"name[]={name}" for name in names)
    async with session.get(f"{url}?{query}") as answer:
        return await answer.text()
