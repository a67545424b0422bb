"""The trace of ``runs.trace`` on the simulator: the same requests, read off the same pages by the same code."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any

from benchmarks.gpu.client import OUTPUT_TOKENS, PROMPT_TOKENS, read
from benchmarks.gpu.engine import PERIOD_S
from benchmarks.gpu.pilot import SCRAPE_S, WINDOW_S
from benchmarks.gpu.runs import SETTLE_S, TRACE, yielded
from outrider.core.schedule import Schedule, constant
from outrider.core.state import ControllerConfig
from outrider.replay.virtual import VirtualOperator
from outrider.simulator.engine import SimulatedEngine
from outrider.simulator.profile import Profile
from outrider.simulator.replica import Replica
from outrider.simulator.request import Request, RequestRecord
from outrider.simulator.settings import EngineSettings
from outrider.simulator.store import MetricsStore

POLICIES: Mapping[str, str] = {"outrider": "Goodput", "threshold": "AcceptanceThreshold"}
OTHER = 1000
"""Workers of another seed draw lengths of their own; seed 0 draws those that the GPU was given."""


@dataclass(slots=True)
class Loop:
    """`client.ClosedLoop` in virtual time: so many requests, each followed by another."""

    engine: SimulatedEngine
    front_s: float
    """From a request's arrival at the server to its place in the engine's queue."""
    seed: int
    level: int = 0
    _rngs: dict[int, random.Random] = field(default_factory=dict)
    _coming: list[tuple[float, str, Request]] = field(default_factory=list)
    _asked: int = 0

    def set(self, level: int, now_s: float) -> None:
        """More start at once; fewer come about as requests end."""
        self.level = level
        for number in range(level):
            if number not in self._rngs:
                self._rngs[number] = random.Random(number + OTHER * self.seed)
                self._ask(number, now_s)

    def answered(self, record: RequestRecord) -> None:
        """The engine is done with a request: its worker asks again, or stops."""
        number = int(record.request.id.partition("-")[0])
        if number < self.level:
            self._ask(number, record.finished_s)
        else:
            del self._rngs[number]

    def play(self, until_s: float) -> None:
        """Event by event, since every answer is followed by a question."""
        engine = self.engine
        while True:
            next_s = engine.next_event_s
            coming_s = self._coming[0][0] if self._coming else float("inf")
            moment_s = min(coming_s, float("inf") if next_s is None else next_s)
            if moment_s > until_s:
                break
            engine.advance(moment_s)
            while self._coming and self._coming[0][0] <= moment_s:
                engine.submit(heappop(self._coming)[2], moment_s)
            engine.advance(moment_s)
        engine.advance(until_s)

    def _ask(self, number: int, now_s: float) -> None:
        self._asked += 1
        tokens = self._rngs[number].randint(*OUTPUT_TOKENS)
        request = Request(f"{number}-{self._asked}", now_s, PROMPT_TOKENS, tokens)
        heappush(self._coming, (now_s + self.front_s, request.id, request))


@dataclass(slots=True)
class Pilot:
    """`pilot.Pilot` in virtual time."""

    operator: VirtualOperator
    replica: Replica
    store: MetricsStore = field(default_factory=lambda: MetricsStore(retention_s=2 * WINDOW_S))
    next_pass_s: float = 3 * SCRAPE_S

    def look(self, now_s: float) -> None:
        """A scrape, and where it is time a pass."""
        self.store.scrape(self.replica.exposition, self.replica.labels, now_s)
        if now_s >= self.next_pass_s:
            self.next_pass_s = now_s + PERIOD_S
            before = self.operator.state.schedule
            self.operator.control(now_s, self.store.window(now_s - WINDOW_S, now_s), 1)
            if self.operator.state.schedule != before:
                _deliver(self.replica, self.operator.state.schedule, now_s)


def play(
    arm: str, settings: EngineSettings, config: ControllerConfig, profile: Profile, front_s: float, seed: int
) -> list[dict[str, Any]]:
    """One pass of an arm over the trace; a row for each level, as `runs.trace` writes them."""
    replica = Replica.create(settings, profile, "gpu", "ml", "chat", seed=seed, now_s=0.0, ready_s=0.0)
    loop, pilot = Loop(replica.engine, front_s, seed), None
    replica.engine.on_finish = loop.answered
    if arm in POLICIES:
        pilot = Pilot(VirtualOperator(replace(config, policy=POLICIES[arm]), WINDOW_S), replica)
        _deliver(replica, pilot.operator.state.schedule, 0.0)
    else:
        _deliver(replica, constant(int(arm[1:]), settings.max_num_seqs), 0.0)
    rows, now_s, looked = [], 0.0, 0
    for level, seconds in TRACE:
        loop.set(level, now_s)
        pages = []
        for end_s in (now_s + SETTLE_S, now_s + seconds):
            while pilot is not None and looked * SCRAPE_S < end_s:
                loop.play(looked * SCRAPE_S)
                pilot.look(looked * SCRAPE_S)
                looked += 1
            loop.play(end_s)
            pages.append(read(replica.exposition.text(end_s).decode()))
        before, after = pages
        rows.append({"arm": arm, "level": level, **yielded(before, after, seconds - SETTLE_S)})
        now_s += seconds
    return rows


def _deliver(replica: Replica, schedule: Schedule, now_s: float) -> None:
    generation = replica.admin.generation + 1
    reply = replica.admin.put({"generation": generation, "schedule": schedule.as_lists()}, now_s)
    if reply.status != 200:
        raise ValueError(f"the engine refused {schedule}: {reply.body}")
