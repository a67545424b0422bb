"""Outrider's control pass beside the engine: its own observation and law on the engine's metrics page."""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.gpu.client import Client
from benchmarks.gpu.engine import PERIOD_S
from outrider.core.series import Series
from outrider.core.state import ControllerConfig
from outrider.replay.virtual import VirtualOperator

SCRAPE_S = 1.25
WINDOW_S = 20.0
"""Both a third or so of what the operator uses, as its period is."""
KEPT = ("vllm:", "outrider_engine_", "process_start_time_seconds")

Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class Pilot:
    """Steers the engine while `run` runs; what it learnt stays between two runs, its samples do not."""

    client: Client
    operator: VirtualOperator
    log: list[dict[str, Any]] = field(default_factory=list)
    """Each change with its sentence, and the seconds that a pass took."""
    pass_s: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, client: Client, config: ControllerConfig) -> Pilot:
        """A pilot that knows nothing yet."""
        return cls(client, VirtualOperator(config, WINDOW_S))

    async def run(self) -> None:
        """Deliver what is in force, then scrape and decide until cancelled."""
        await self._deliver()
        samples: dict[Key, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=int(2 * WINDOW_S / SCRAPE_S)))
        next_pass_s = time.time() + 3 * SCRAPE_S
        while True:
            now_s, page = time.time(), await self.client.page()
            await asyncio.to_thread(_keep, samples, page, now_s)
            if now_s >= next_pass_s:
                next_pass_s = now_s + PERIOD_S
                before = self.operator.state.schedule
                began = time.perf_counter()
                await asyncio.to_thread(self._pass, samples, time.time())
                self.pass_s.append(time.perf_counter() - began)
                if self.operator.state.schedule != before:
                    await self._deliver()
            await asyncio.sleep(max(0.0, now_s + SCRAPE_S - time.time()))

    def _pass(self, samples: dict[Key, deque[tuple[float, float]]], now_s: float) -> None:
        series = [Series(name, {"pod": "gpu", **dict(labels)}, tuple(many)) for (name, labels), many in samples.items()]
        known = len(self.operator.changes)
        self.operator.control(now_s, series, 1)
        for change in self.operator.changes[known:]:
            self.log.append({"at": round(now_s, 1), "kind": change.kind, "to": str(change.after), "why": change.reason})

    async def _deliver(self) -> None:
        rows = [[row.first, row.last, row.num_speculative_tokens] for row in self.operator.state.schedule.rows]
        await self.client.put(rows)


def _keep(samples: dict[Key, deque[tuple[float, float]]], page: str, now_s: float) -> None:
    text = "\n".join(line for line in page.splitlines() if line.startswith((*KEPT, "# TYPE vllm", "# TYPE outrider")))
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if math.isfinite(sample.value):
                samples[sample.name, tuple(sorted(sample.labels.items()))].append((now_s, sample.value))
