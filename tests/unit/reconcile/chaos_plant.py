"""Engines that serve a load of their own in virtual time, and a Prometheus that tells of them wrongly.

What Prometheus says goes through the operator's own reader of answers, so NaN, infinity and strange labels arrive there
as they would.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from outrider.adapters import prometheus
from outrider.adapters.engine import Acknowledgement
from outrider.core import engine_metrics as names
from outrider.core.schedule import Schedule, constant
from outrider.core.series import Series
from outrider.errors import (
    AccessDenied,
    EngineUnreachable,
    KeyRefused,
    Malformed,
    NotControllable,
    ScheduleRefused,
    StaleGeneration,
    Unreachable,
)

from .fakes import FakeEngines, FakeMetrics

SCRAPE_S = 5.0
KEPT = 9
"""Scrapes that Prometheus remembers: as many as a control pass asks for."""
INITIAL = constant(3, 256)
"""What engines run before they were told anything."""
ABSENT = (
    "gone",
    "refused",
    "malformed",
    "empty",
    "one service",
    "one pod",
    "one family",
    "old",
    "not a number",
    "labels",
)
"""Lies that take data away, and add none."""
WRONG = ("negative", "reset", "twice", "ahead", "huge", "standing")
"""Lies that tell something else."""
REFUSALS = ("silent", "key", "schedule", "uncontrollable", "ahead", "liar")

_Row = tuple[str, tuple[tuple[str, str], ...]]


@dataclass
class Engine:
    """One engine at work: counters since its start, and what Prometheus has scraped of them."""

    service: str
    pod: str
    address: str
    rng: random.Random
    batch: int = 8
    alpha: float = 0.8
    counters: dict[_Row, float] = field(default_factory=lambda: defaultdict(float))
    scraped: deque[tuple[float, dict[_Row, float]]] = field(default_factory=lambda: deque(maxlen=KEPT))
    restarts: int = 0

    def start(self) -> None:
        """Another process: its counters begin anew."""
        self.counters.clear()
        self.restarts += 1

    def work(self, until_s: float, seconds: float, schedule: Schedule) -> None:
        """Serve its load for a while, and be scraped at the end."""
        k = schedule.at(max(1, self.batch))
        step_s = 0.01 * (1.0 + 0.06 * k + 0.01 * self.batch * (k + 1) / 4) * self.rng.uniform(0.97, 1.03)
        steps = round(seconds / step_s) if self.batch else 0
        drafts = steps * self.batch if k else 0
        accepted = [drafts * self.alpha ** (position + 1) for position in range(k)]
        self._count(names.GENERATION_TOKENS[0], steps * self.batch + sum(accepted))
        self._count(names.PROMPT_TOKENS[0], steps * self.batch * 0.5)
        self._count(names.NUM_DRAFTS[0], drafts)
        self._count(names.NUM_DRAFT_TOKENS[0], drafts * k)
        self._count(names.NUM_ACCEPTED_TOKENS[0], sum(accepted))
        for position, number in enumerate(accepted):
            self._count(names.NUM_ACCEPTED_TOKENS_PER_POS[0], number, position=str(position))
            self._count(names.DRAFT_TOKENS_PER_POS[0], drafts, position=str(position))
        if steps:
            bucket = 1 << (self.batch - 1).bit_length()
            cell = {"batch": str(bucket), "speculative_tokens": str(k), "kind": "decode"}
            self._count(names.STEPS[0], steps, **cell)
            self._count(names.STEP_SECONDS[0], steps * step_s, **cell)
            self._count(names.STEP_REQUESTS[0], steps * self.batch, **cell)
        gauges = {
            (names.NUM_REQUESTS_RUNNING[0], ()): float(self.batch),
            (names.NUM_REQUESTS_WAITING[0], ()): 0.0,
            (names.KV_CACHE_USAGE[0], ()): self.batch / 400.0,
        }
        self.scraped.append((until_s, dict(self.counters) | gauges))

    def _count(self, name: str, rise: float, **labels: str) -> None:
        self.counters[name, tuple(sorted(labels.items()))] += rise

    def rows(self, since_s: float, until_s: float) -> list[dict[str, Any]]:
        """The rows of a range vector, as JSON has them."""
        found: dict[_Row, list[list[Any]]] = defaultdict(list)
        for time_s, values in self.scraped:
            if since_s <= time_s <= until_s:
                for row, value in values.items():
                    found[row].append([time_s, repr(value)])
        base = {
            "namespace": "ml",
            "pod": self.pod,
            "engine": "0",
            prometheus.SERVICE_LABEL: self.service,
            prometheus.TRACK_LABEL: "stable",
        }
        return [
            {"metric": {"__name__": name, **base, **dict(labels)}, "values": values}
            for (name, labels), values in found.items()
        ]


class LyingMetrics(FakeMetrics):
    """Prometheus with the engines of a plant behind it, and lies that it tells."""

    def __init__(self, engines: Mapping[str, Engine], rng: random.Random) -> None:
        super().__init__()
        self.engines, self.lies, self.rng = engines, set[str](), rng

    async def engine_series(
        self, window_s: float, at_s: float, services: Collection[tuple[str, str]] | None = None
    ) -> Mapping[tuple[str, str], list[Series]]:
        for lie, error in (
            ("gone", Unreachable("PrometheusUnreachable", "no answer")),
            ("refused", AccessDenied("PrometheusRefused", "who are you?")),
        ):
            if lie in self.lies:
                raise error
        rows = [row for engine in self.engines.values() for row in engine.rows(at_s - window_s, at_s)]
        if "malformed" in self.lies:
            rows = [{"metric": {"__name__": "x"}, "values": [[at_s, {}]]}, *rows]
        try:
            return prometheus.by_service([prometheus.rows(self._spoilt(rows))])
        except prometheus.WRONG_FORM as error:
            raise Malformed("PrometheusMalformed", "no range vector") from error

    def _spoilt(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What these lies make of the truth; each takes its victims at random."""
        rng = self.rng
        if "empty" in self.lies:
            return []
        for lie, label in (("one service", prometheus.SERVICE_LABEL), ("one pod", "pod"), ("one family", "__name__")):
            if lie in self.lies and rows:
                victim = rng.choice(rows)["metric"][label]
                rows = [row for row in rows if row["metric"][label] != victim]
        if "labels" in self.lies:
            for row in rng.sample(rows, len(rows) // 3):
                row["metric"][prometheus.SERVICE_LABEL] = "somebody-else"
        if "twice" in self.lies:
            rows = rows + [{**row, "metric": row["metric"] | {"prometheus_replica": "b"}} for row in rows]
        for row in rows:
            row["values"] = self._values(row["values"])
        return rows

    def _values(self, values: list[list[Any]]) -> list[list[Any]]:
        rng = self.rng
        if "not a number" in self.lies:
            values = [[t, rng.choice(("NaN", "+Inf", "-Inf"))] if rng.random() < 0.5 else [t, v] for t, v in values]
        if "negative" in self.lies and rng.random() < 0.3:
            values = [[t, repr(-float(v))] for t, v in values]
        if "huge" in self.lies and rng.random() < 0.2:
            values = [[t, repr(float(v) * 10.0 ** rng.randint(3, 300))] for t, v in values]
        if "reset" in self.lies and len(values) > 2:
            values = [*values[:2], *[[t, repr(float(v) / 7.0)] for t, v in values[2:]]]
        if self.lies & {"ahead", "old"}:
            shift_s = 300.0 if "ahead" in self.lies else -60.0
            values = [[t + shift_s, v] for t, v in values]
        if "standing" in self.lies:
            values = [[t, values[0][1]] for t, _ in values]
        return values


@dataclass(slots=True)
class Told:
    """A schedule that an engine was told."""

    address: str
    generation: int
    schedule: Schedule


class LyingEngines(FakeEngines):
    """Engines of which some refuse, in one of the ways of `REFUSALS`, by address."""

    def __init__(self, journal: list[str]) -> None:
        super().__init__(journal)
        self.refusals: dict[str, str] = {}
        self.told: list[Told] = []

    async def put_schedule(
        self, address: str, key: str, generation: int, schedule: Schedule, lease_s: int
    ) -> Acknowledgement:
        self.told.append(Told(address, generation, schedule))
        how = self.refusals.get(address)
        if how == "liar":
            return Acknowledgement(generation, 0.004)
        if how is not None:
            raise {
                "silent": EngineUnreachable("EngineUnreachable", "no answer"),
                "key": KeyRefused("AdminKeyRefused", f"unknown key {key}"),
                "schedule": ScheduleRefused("ScheduleRefused", "no " * 500, ("row 1",)),
                "uncontrollable": NotControllable("NotControllable", "one K alone"),
                "ahead": StaleGeneration("StaleGeneration", "later", generation + 2),
            }[how]
        return await super().put_schedule(address, key, generation, schedule, lease_s)

    def schedule(self, address: str) -> Schedule:
        """What an engine runs."""
        engine = self.engines.get(address)
        return INITIAL if engine is None or engine.schedule is None else engine.schedule
