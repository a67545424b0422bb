"""A day of an engine that can only be told another K by a restart, in virtual time.

One engine stands for all replicas of a service: gain and cost of a roll-out grow with their number alike. It is a plain
vLLM, started from the command line that the operator renders, and decided for by `outrider.core.one_k` from what it
exports. While K is rolled out the old engine serves until the new one does, then it ends what it has begun; both hold a
GPU meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.policy.load import Clients, Source
from outrider.api.defaults import resolve
from outrider.api.resource import parse
from outrider.core import graphs
from outrider.core.observation import observe_since
from outrider.core.one_k import decide
from outrider.core.one_k_state import OneK, Sight
from outrider.engine import command_line, one_k
from outrider.engine.config import EngineConfig
from outrider.manifests import engine_settings
from outrider.replay.virtual import read_manifest
from outrider.simulator import command_line as containers
from outrider.simulator.metrics import Exposition
from outrider.simulator.noise import MODEST
from outrider.simulator.profile import load_profile
from outrider.simulator.replica import Replica
from outrider.simulator.settings import EngineSettings
from outrider.simulator.store import MetricsStore
from outrider.simulator.workload import Phase, geometric

ROLLED = "by roll-out"
MANIFEST = Path(__file__).parent / "service.yaml"
HOURS = (0.0, 3.0, 6.0, 9.0, 11.0, 14.0, 17.0, 20.0, 22.0, 24.0)
CLIENTS = (60.0, 4.0, 12.0, 96.0, 150.0, 120.0, 150.0, 200.0, 150.0, 60.0)
"""Of the day, and how many clients ask at a time then, each again as soon as it is answered; linear between."""
FITS, FITS_BADLY = 0.8, 0.5
"""Conditional acceptance, and that of the hours of `BAD_HOURS`."""
BAD_HOURS = (12.0, 16.0)
PRESSED = 24.0
"""The day is played so many times faster, and so are settling and starts; engines, scrapes and passes are not."""
DAY_S = 24 * 3600.0 / PRESSED
SETTLE_S, START_S = 1800.0 / PRESSED, 120.0 / PRESSED
SCRAPE_S, CONTROL_S, WINDOW_S = 5.0, 15.0, 30.0


@dataclass(slots=True)
class Played:
    """What came of a day."""

    name: str
    seed: int
    tokens: list[float] = field(default_factory=list)
    """Generated in each hour of the day."""
    gpu_s: float = 0.0
    """Time that engines held a GPU, those that started and drained too."""
    rolls: list[tuple[float, int, str]] = field(default_factory=list)
    """Hour of the day, K, and why."""
    took_s: float = 0.0
    """Processor time."""

    @property
    def goodput_tps(self) -> float:
        """Tokens for each second of a GPU."""
        return sum(self.tokens) / self.gpu_s


@cache
def config() -> EngineConfig:
    """The service as its resource has it."""
    manifest = read_manifest(MANIFEST)
    resource = parse({**manifest, "metadata": {"uid": "virtual", "generation": 1, **manifest["metadata"]}})
    return engine_settings.engine_config(resource, resolve(resource.spec))


@cache
def settings(num_speculative_tokens: int) -> EngineSettings:
    """A plain vLLM with this K, from the command line that is rendered; 0 has no drafter."""
    engine = one_k.with_one_k(config(), num_speculative_tokens)
    return containers.parse(command_line.engine_args(engine), {}, plugin_installed=False)


def arms() -> dict[str, int]:
    """The K that each arm begins with, by its name."""
    ceiling = config().max_speculative_tokens
    return {ROLLED: one_k.own(config())} | {f"K {k}": k for k in range(ceiling + 1)}


def given() -> str:
    """The static arm that the resource asks for."""
    return f"K {one_k.own(config())}"


def clients() -> Clients:
    """The day's load, a level each quarter of an hour."""
    quarters = np.arange(0.0, 24.0, 0.25)
    levels = np.interp(quarters, HOURS, CLIENTS)
    curves = ((0.0, FITS), (BAD_HOURS[0], FITS_BADLY), (BAD_HOURS[1], FITS))
    return Clients(
        tuple((_at_s(float(hour)), round(float(level))) for hour, level in zip(quarters, levels, strict=True)),
        tuple(Phase(_at_s(hour), geometric(one, config().max_speculative_tokens)) for hour, one in curves),
    )


def play(name: str, num_speculative_tokens: int, seed: int, *, rolls: bool, day_s: float = DAY_S) -> Played:
    """The day of an engine that is started with this K, and keeps it unless it ``rolls``."""
    began_s = time.process_time()
    day = _Day(Played(name, seed), num_speculative_tokens, clients().source(seed, day_s), rolls)
    for now_s in _moments(day_s):
        day.scrape(now_s)
        if rolls and now_s % CONTROL_S == 0.0:
            day.decide(now_s)
    played = day.over(day_s)
    played.took_s = time.process_time() - began_s
    return played


class _Day:
    def __init__(self, played: Played, k: int, source: Source, rolls: bool) -> None:
        self._played, self._k, self._source, self._rolls = played, k, source, rolls
        self._store = MetricsStore(retention_s=WINDOW_S + 2 * SCRAPE_S)
        self._number, self._ready_s = 0, 0.0
        self._state = OneK(subject=1)
        self._told_s = 0.0
        self._serving = self._engine(0.0)
        self._leaving: list[Replica] = []
        self._tokens = 0.0
        self._hour = 0

    def _engine(self, now_s: float) -> Replica:
        self._number += 1
        replica = Replica.create(
            settings(self._k), load_profile(), f"chat-{self._number}", "ml", "chat",
            seed=self._played.seed * 100 + self._number, now_s=now_s, ready_s=now_s, noise=MODEST,
        )  # fmt: skip
        replica.exposition = Exposition(replica.engine, None, now_s)  # without our plugin
        return replica

    def scrape(self, now_s: float) -> None:
        """Bring engines there."""
        if self._ready_s > now_s - SCRAPE_S and self._ready_s > 0.0 and now_s >= self._ready_s:
            self._leaving.append(self._serving)
            self._serving = self._engine(now_s - SCRAPE_S)
        self._source.play(self._serving.engine, now_s)
        for replica in list(self._leaving):
            replica.engine.advance(now_s)
            self._played.gpu_s += SCRAPE_S
            if not replica.in_flight:
                self._leaving.remove(replica)
                self._tokens += replica.engine.counters.generation_tokens
        self._store.scrape(self._serving.exposition, self._serving.labels, now_s)
        self._played.gpu_s += SCRAPE_S * (2 if now_s <= self._ready_s else 1)
        hour = int(now_s * PRESSED // 3600.0)
        if hour != self._hour:
            self._hour = hour
            self._played.tokens.append(self._total() - sum(self._played.tokens))

    def decide(self, now_s: float) -> None:
        """One pass."""
        name = self._serving.name
        series = [one for one in self._store.window(now_s - WINDOW_S, now_s) if one.labels["pod"] == name]
        (increment,) = observe_since(series, (max(self._told_s, now_s - WINDOW_S),), now_s)
        self._told_s = now_s
        found = decide(self._state, _sight(self._k, now_s >= self._ready_s, now_s), increment)
        self._state = found.state
        if found.rolls is not None:
            self._k, self._ready_s = found.rolls, now_s + START_S
            self._played.rolls.append((now_s * PRESSED / 3600.0, found.rolls, found.reason))

    def over(self, now_s: float) -> Played:
        """The sums."""
        if len(self._played.tokens) < now_s * PRESSED / 3600.0:
            self._played.tokens.append(self._total() - sum(self._played.tokens))
        return self._played

    def _total(self) -> float:
        engines = [self._serving, *self._leaving]
        return self._tokens + sum(replica.engine.counters.generation_tokens for replica in engines)


def _sight(k: int, settled: bool, now_s: float) -> Sight:
    engine = config()
    return Sight(
        present=k,
        own=one_k.own(engine),
        values=one_k.values(engine),
        max_batch_size=engine.max_num_seqs,
        capture_size=graphs.capture_limit((engine.max_speculative_tokens,), engine.max_num_seqs),
        settled=settled,
        stuck="",
        start_s=START_S,
        settle_s=SETTLE_S,
        missed=False,
        blocked="",
        acting=True,
        now_s=now_s,
    )


def _moments(day_s: float) -> Iterator[float]:
    return (count * SCRAPE_S for count in range(1, int(day_s / SCRAPE_S) + 1))


def _at_s(hour: float) -> float:
    return hour * 3600.0 / PRESSED
