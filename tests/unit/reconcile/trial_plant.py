"""A service with a candidate on trial in virtual time: simulated engines of both tracks behind a router and a store,
and the operator's control pass beside them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from outrider.core.revisions.analysis import Judgement, Plan
from outrider.core.revisions.intervals import Spread
from outrider.core.revisions.trial import Trial
from outrider.core.schedule import constant
from outrider.core.series import Series
from outrider.reconcile.registry import Service, ServiceKey
from outrider.simulator import behaviour
from outrider.simulator.behaviour import NORMAL, Behaviour
from outrider.simulator.metrics import Exposition
from outrider.simulator.noise import Noise
from outrider.simulator.profile import load_profile
from outrider.simulator.replica import Replica
from outrider.simulator.request import Request
from outrider.simulator.settings import EngineSettings, Plugin, Speculation
from outrider.simulator.store import STORED, MetricsStore
from outrider.simulator.workload import poisson

from .builders import KEY, World, pod
from .fakes import NOW_S, FakeMetrics, Manifest

SCRAPE_S, PERIOD_S = 5.0, 15.0
ENGINE = EngineSettings(
    speculation=Speculation("eagle3", 3, constant(3, 256)), plugin=Plugin(), served_model_names=("chat",)
)
NOISE = Noise(step_cv=0.03, correlation_s=10.0, boot_cv=0.01)
KNOWN = Spread(squares=12 * 0.014**2, dof=12.0)
"""Of twelve boots before, which differed by 1.4 %: with it one boot of the candidate is looked at."""
STORED_HERE = STORED | {f"vllm:request_generation_tokens{suffix}" for suffix in ("_bucket", "_sum", "_count")}


class Store(FakeMetrics):
    """Prometheus with simulated engines behind it; it keeps everything."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = MetricsStore(retention_s=1e6, stored=STORED_HERE)

    async def engine_series(
        self, window_s: float, at_s: float, services: Collection[ServiceKey] | None = None
    ) -> Mapping[ServiceKey, list[Series]]:
        await super().engine_series(window_s, at_s, services)
        found = self.samples.window(at_s - window_s, at_s)
        return {KEY: [one for one in found if one.labels["serving_outrider_dev_track"] == "stable"]}

    async def compared_series(
        self, services: Collection[ServiceKey], window_s: float, at_s: float
    ) -> Mapping[ServiceKey, list[Series]]:
        await super().compared_series(services, window_s, at_s)
        return {KEY: self.samples.window(at_s - window_s, at_s)}


@dataclass
class Plant:
    """Three replicas and a candidate. ``words`` are what the names of its draft and image say."""

    plan: Plan
    words: str = ""
    rate_rps: float = 4.0
    """Of all engines together; a request asks for 300 tokens."""
    plugin: bool = True
    dilation: float = 10.0
    seed: int = 1
    world: World = field(init=False)
    store: Store = field(init=False)
    boots: int = 1
    """Of the candidate so far."""
    engines: dict[str, Replica] = field(default_factory=dict)
    now_s: float = NOW_S
    """Engines count from `NOW_S` on."""

    def __post_init__(self) -> None:
        self.store = Store()
        self.world = World(metrics=self.store)
        self._rng = Random(self.seed)
        duration_s = 4 * 3600.0
        self._requests = poisson(self.rate_rps, duration_s, prompt_tokens=200, output_tokens=300, seed=self.seed)
        self._next = self._request()

    async def start(self) -> Service:
        """All engines serve, and the candidate has just begun to."""
        service = self.world.add({"spec.speculation.tuning": {"mode": "Observe"}})
        await self.world.settle()
        for number in range(3):
            self._boot(f"chat-{number}", "stable", "r1", NORMAL, number)
        self._candidate()
        service.trial = Trial("r2", "r1", self.plan, "Running", self.now_s, self.now_s, self.now_s)
        return service

    async def run(self, minutes: float) -> list[Judgement]:
        """What was judged in each control pass, until there is a verdict or the time is over."""
        service, found = self.world.service(), []
        for _ in range(round(minutes * 60.0 / PERIOD_S)):
            await self.period()
            assert service.judgement is not None
            found.append(service.judgement)
            if service.judgement.verdict != "wait":
                break
            if service.judgement.restart:
                self.restart()
        return found

    async def period(self) -> None:
        """One control period, and the control pass at its end."""
        for _ in range(round(PERIOD_S / SCRAPE_S)):
            self.now_s += SCRAPE_S
            self._serve()
            for one in self.engines.values():
                one.engine.advance(self.now_s - NOW_S)
                self.store.samples.scrape(one.exposition, one.labels, self.now_s)
        self.world.clock.advance(PERIOD_S)
        await self.world.control.run()

    def restart(self) -> None:
        """What the objects pass makes of a judgement that asks for it: another pod of the candidate."""
        self.engines.pop(self._name)
        gone = self.world.service().pods[self._name]
        self.world.registry.forget_pod(KEY, gone.name, gone.uid)
        self.boots += 1
        self._candidate()

    def crash(self, status: int = 1) -> None:
        """The candidate's engine ends, and starts again in its pod."""
        restarts = self.world.service().pods[self._name].restarts + 1
        ended = {"exitCode": status, "startedAt": "2027-01-15T08:00:00Z", "finishedAt": "2027-01-15T08:00:20Z"}
        state = {"state": {"running": {}}, "lastState": {"terminated": ended}}
        self.world.see(self._pod(self._name, "candidate", "r2", restarts=restarts, container=state))

    @property
    def _name(self) -> str:
        return f"chat-candidate-{self.boots}"

    def _candidate(self) -> None:
        self._boot(self._name, "candidate", "r2", behaviour.named(self.words), 10 + self.boots)

    def _boot(self, name: str, track: str, revision: str, does: Behaviour, draws: int) -> None:
        profile = does.profile(load_profile().slowed(self.dilation), 3)
        one = Replica.create(
            ENGINE,
            profile,
            name,
            *KEY,
            seed=100 * self.seed + draws,
            now_s=self.now_s - NOW_S,
            ready_s=0.0,
            noise=NOISE,
        )
        labels = {"serving_outrider_dev_track": track, "serving_outrider_dev_revision": revision}
        one.labels = {**one.labels, **labels}
        self.engines[name] = one
        self.world.see(self._pod(name, track, revision))
        if not self.plugin:
            one.exposition = Exposition(one.engine, None, self.now_s)

    def _pod(self, name: str, track: str, revision: str, **more: Any) -> Manifest:
        return pod(
            name,
            uid=f"uid-{name}",
            address=f"10.0.1.{sum(name.encode()) % 250}",
            track=track,
            revision=revision,
            **more,
        )

    def _request(self) -> Request:
        one = next(self._requests)
        return replace(one, finish_reason="stop")

    def _serve(self) -> None:
        """Every request that has come goes to the engine with the fewest in flight."""
        while self._next.arrival_s <= self.now_s - NOW_S:
            at_s = self._next.arrival_s
            for one in self.engines.values():
                one.engine.advance(at_s)
            free = min(self.engines.values(), key=lambda one: one.in_flight)
            does = behaviour.named(self.words) if free.name == self._name else NORMAL
            free.engine.submit(does.request(self._next, 3, self._rng), at_s)
            self._next = self._request()
