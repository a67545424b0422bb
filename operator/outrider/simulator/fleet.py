"""A service on several engines in virtual time: router, scrapes, controller, autoscaler, pods that start and drain.

One loop over moments: arrivals and the periods of scrapes, control and autoscaling. Engines only run when someone
looks, so that a replay costs what its steps cost. A fixed-K arm is a replay without a controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from outrider.core.schedule import Schedule
from outrider.core.series import Series
from outrider.simulator import signals
from outrider.simulator.autoscaler import AutoscalerConfig, Plan, Scaler
from outrider.simulator.back_off import BackOff
from outrider.simulator.faults import Fault, Restart, metrics_out, slowdown
from outrider.simulator.moments import ARRIVAL, CONTROL, FAULT, SCALE, SCRAPE, moments
from outrider.simulator.noise import QUIET, Noise
from outrider.simulator.profile import Profile
from outrider.simulator.replica import Replica
from outrider.simulator.request import Request, RequestRecord
from outrider.simulator.results import FleetResult, FleetSample
from outrider.simulator.settings import EngineSettings
from outrider.simulator.store import MetricsStore

RESTARTED = 500  # the random numbers of engines that were started again are apart from those of the first 500


@dataclass(frozen=True, slots=True)
class Commands:
    """What a controller wants changed; None leaves it."""

    schedule: Schedule | None = None
    in_flight_target: int | None = None
    held_requests: int | None = None
    """Requests in flight that the autoscaler sees at the least, while there are any; 0: what there are."""


class Controller(Protocol):
    """Whoever steers the service: ours, or a baseline."""

    def control(self, now_s: float, series: Sequence[Series], replicas: int) -> Commands:
        """One control pass over the last window's samples of the ``replicas`` ready engines."""


@dataclass(frozen=True, slots=True)
class FleetConfig:
    """A service and its surroundings. Times are seconds."""

    settings: EngineSettings
    profile: Profile
    replicas: int = 1
    """At the start, all of them ready."""
    autoscaler: AutoscalerConfig | Plan | None = None
    """None keeps the number of replicas."""
    scrape_s: float = 5.0
    control_s: float = 15.0
    window_s: float = 120.0
    """Samples that a control pass sees."""
    pod_start_s: float = 60.0
    """From a pod's creation to its readiness: warm caches."""
    drain_s: float = 75.0
    """Longest time that a pod goes on after its removal; then what is left is aborted."""
    tail_s: float = 120.0
    """Longest time after the end in which requests may still finish."""
    noise: Noise = QUIET
    """How step times waver, each replica by its own draws."""
    faults: tuple[Fault, ...] = ()
    seed: int = 0
    namespace: str = "ml"
    service: str = "chat"


@dataclass(slots=True)
class Fleet:
    """One replay; use it once."""

    config: FleetConfig
    controller: Controller | None = None
    admit: Callable[[], bool] = lambda: True
    """Whether one more pod may be made now, as by a quota of the namespace."""
    store: MetricsStore = field(init=False)
    asked: int = field(init=False)
    """Replicas that the autoscaler set; fewer exist while pods are refused."""
    result: FleetResult | None = field(default=None, init=False)
    """Of the replay, once it is over."""
    pods: list[Replica] = field(default_factory=list, init=False)
    """Those that hold GPUs: starting and draining ones too."""
    scaler: Scaler | None = field(default=None, init=False)
    """Who sets the number of replicas; None where it is fixed."""
    _records: list[RequestRecord] = field(default_factory=list)
    _timeline: list[FleetSample] = field(default_factory=list)
    _unrouted: list[Request] = field(default_factory=list)
    _generation: int = 0
    _schedule: Schedule | None = None
    _created: int = 0
    _restarts: int = 0
    _replica_seconds: float = 0.0
    _tokens_of_gone: int = 0
    _num_arrived: int = 0
    _refused: BackOff = field(default_factory=BackOff)
    _counted: list[tuple[float, int]] = field(default_factory=list)
    """What the gateway's counter of requests showed at each scrape of the last minutes."""

    def __post_init__(self) -> None:
        kept_s = max(self.config.window_s, signals.RATE_S) + self.config.scrape_s
        self.store = MetricsStore(retention_s=kept_s)
        if self.config.autoscaler is not None:
            self.scaler = self.config.autoscaler.scaler()
        self.asked = self.config.replicas
        for _ in range(self.asked):
            self._add_replica(0.0, ready_s=0.0)

    def run(self, requests: Iterable[Request], duration_s: float) -> FleetResult:
        """Replay requests that arrive within ``duration_s``; then let the rest finish."""
        for _ in self.steps(requests, duration_s):
            pass
        assert self.result is not None
        return self.result

    def steps(self, requests: Iterable[Request], duration_s: float) -> Iterator[tuple[float, int]]:
        """The same, moment by moment, for fleets that step together: each is given, with its rank among those of the
        same time, before anything happens in it."""
        tokens = 0
        replica_seconds: float | None = None
        end_s = duration_s + self.config.tail_s
        for now_s, what, request in moments(requests, duration_s, self.config.faults, self._periods_s, end_s):
            yield now_s, what
            if now_s >= duration_s and replica_seconds is None:
                tokens, replica_seconds = self._tokens(duration_s), self._held(duration_s)
            self._attend(now_s)
            if what == ARRIVAL:
                assert request is not None
                self._num_arrived += 1
                self._unrouted.append(request)
                self._route(now_s)
            elif what == SCRAPE:
                self._scrape(now_s)
            elif what == SCALE:
                self._scale(now_s)
            elif what == FAULT:
                self._disturb(now_s)
            else:
                self._control(now_s)
            if now_s > duration_s and not self._busy(now_s):
                break
        if replica_seconds is None:
            tokens, replica_seconds = self._tokens(duration_s), self._held(duration_s)
        self.result = FleetResult(duration_s, self._records, self._num_arrived, tokens, replica_seconds, self._timeline)

    @property
    def _periods_s(self) -> dict[int, float]:
        config, scaler = self.config, self.config.autoscaler
        periods_s = {SCRAPE: config.scrape_s, CONTROL: config.control_s}
        return periods_s if scaler is None else periods_s | {SCALE: scaler.sync_s}

    # Pods.

    def _attend(self, now_s: float) -> None:
        """Pods that have become ready take the present schedule; pods that have drained go."""
        became_ready = False
        for replica in list(self.pods):
            if replica.starting and now_s >= replica.ready_s:
                replica.starting, became_ready = False, True
                self._deliver(replica, replica.ready_s)
            if replica.leaves_s is None:
                continue
            replica.engine.advance(now_s)
            if replica.in_flight == 0 or now_s >= replica.leaves_s:
                replica.abort_all(now_s)
                self._remove(replica, now_s)
        if became_ready and self._unrouted:
            self._route(now_s)
        if self._refused.due(now_s):
            self._fill(now_s)

    def _fill(self, now_s: float) -> None:
        """Make the pods that are missing, as far as they are admitted."""
        missing = self.asked - sum(replica.leaves_s is None for replica in self.pods)
        while missing > 0 and self.admit():
            self._add_replica(now_s, now_s + self.config.pod_start_s)
            missing -= 1
        if missing > 0:
            self._refused.failed(now_s)
        else:
            self._refused.end()

    def _add_replica(self, now_s: float, ready_s: float) -> None:
        number, self._created = self._created, self._created + 1
        self.pods.append(self._boot(number, number, now_s, ready_s))

    def _boot(self, number: int, draws: int, now_s: float, ready_s: float) -> Replica:
        """A pod whose engine starts now; ``draws`` tells its random numbers from those of other engines."""
        config = self.config
        replica = Replica.create(
            config.settings, config.profile, f"{config.service}-{number}", config.namespace, config.service,
            seed=config.seed * 1000 + draws, now_s=now_s, ready_s=ready_s, number=number, noise=config.noise,
        )  # fmt: skip
        replica.engine.on_finish = self._records.append
        replica.engine.slow_down(slowdown(config.faults, number, now_s))
        return replica

    def _disturb(self, now_s: float) -> None:
        """Faults begin and end, and processes that must restart do."""
        for index, replica in enumerate(self.pods):
            replica.engine.advance(now_s)
            replica.engine.slow_down(slowdown(self.config.faults, replica.number, now_s))
            if Restart(replica.number, now_s) in self.config.faults and replica.serving:
                replica.abort_all(now_s)
                self._tokens_of_gone += replica.engine.counters.generation_tokens
                self._restarts += 1
                again = self._boot(replica.number, RESTARTED + self._restarts, now_s, now_s + self.config.pod_start_s)
                self.pods[index] = replace(again, created_s=replica.created_s)

    def _remove(self, replica: Replica, now_s: float) -> None:
        self.pods.remove(replica)
        self._replica_seconds += now_s - replica.created_s
        self._tokens_of_gone += replica.engine.counters.generation_tokens

    def _scale(self, now_s: float) -> None:
        """The autoscaler's turn: the newest pods go first, those that are not ready before all others."""
        assert self.scaler is not None
        staying = [replica for replica in self.pods if replica.leaves_s is None]
        pods = [replica.uid for replica in self.pods]
        totals = signals.totals(self.store, pods, self._counted, now_s, 4 * self.config.scrape_s)
        asked, self.asked = self.asked, self.scaler.desired(now_s, totals, self.asked)
        if self.asked != asked:
            self._refused.end()  # another number is tried at once
            self._fill(now_s)
        going = sorted(staying, key=lambda replica: (not replica.starting, -replica.created_s, replica.name))
        for replica in going[: max(0, len(staying) - self.asked)]:
            replica.leaves_s = now_s + self.config.drain_s

    # Requests and metrics.

    def _ready(self) -> list[Replica]:
        return [replica for replica in self.pods if replica.serving]

    def _route(self, now_s: float) -> None:
        """Every request to the ready replica with the fewest in flight; without one it waits at the router."""
        ready = self._ready()
        if not ready:
            return
        for replica in ready:
            replica.engine.advance(now_s)
        for request in self._unrouted:
            min(ready, key=lambda replica: replica.in_flight).engine.submit(request, now_s)
        self._unrouted.clear()

    def _scrape(self, now_s: float) -> None:
        out = metrics_out(self.config.faults, now_s)
        for replica in self.pods:
            if not replica.starting:
                replica.engine.advance(now_s)
                replica.admin.expire(now_s)
            if not (replica.starting or out):
                self.store.scrape(replica.exposition, replica.labels, now_s)
        self._counted = [one for one in self._counted if one[0] >= now_s - signals.RATE_S]
        self._counted.append((now_s, self._num_arrived))
        ready = self._ready()
        k = [replica.engine.schedule.at(replica.engine.num_running) for replica in ready]
        self._timeline.append(
            FleetSample(
                time_s=now_s,
                replicas=sum(replica.leaves_s is None for replica in self.pods),
                ready=len(ready),
                running=sum(replica.engine.num_running for replica in self.pods),
                waiting=sum(replica.engine.num_waiting for replica in self.pods) + len(self._unrouted),
                num_speculative_tokens=sum(k) / len(k) if k else 0.0,
                schedule=str(ready[0].engine.schedule) if ready else "",
                in_flight_target=None if self.scaler is None else self.scaler.target,
                wanted=None if self.scaler is None else self.scaler.wanted,
                replica_seconds=self._held(now_s),
                asked=self.asked,
                pods=len(self.pods),
            )
        )

    # Control.

    def _control(self, now_s: float) -> None:
        if self.controller is None:
            return
        ready = {replica.name for replica in self._ready()}
        window = self.store.window(now_s - self.config.window_s, now_s)
        series = [one for one in window if one.labels["pod"] in ready]
        commands = self.controller.control(now_s, series, len(ready))
        if commands.schedule is not None and commands.schedule != self._schedule:
            self._generation, self._schedule = self._generation + 1, commands.schedule
        if commands.in_flight_target is not None and self.scaler is not None:
            self.scaler.target = float(commands.in_flight_target)
        if commands.held_requests is not None and self.scaler is not None:
            self.scaler.held = commands.held_requests
        for replica in self._ready():
            self._deliver(replica, now_s)

    def _deliver(self, replica: Replica, now_s: float) -> None:
        """Put the present schedule, or renew its lease."""
        if self._schedule is None:
            return
        replica.engine.advance(now_s)
        document = {"generation": self._generation, "schedule": self._schedule.as_lists()}
        reply = replica.admin.put(document, now_s)
        if reply.status != 200:
            raise ValueError(f"{replica.name} refused the controller's schedule: {reply.body}")

    # Sums.

    def _busy(self, now_s: float) -> bool:
        for replica in self.pods:
            replica.engine.advance(now_s)
        return bool(self._unrouted) or any(replica.in_flight for replica in self.pods)

    def _tokens(self, now_s: float) -> int:
        for replica in self.pods:
            replica.engine.advance(now_s)
        return self._tokens_of_gone + sum(replica.engine.counters.generation_tokens for replica in self.pods)

    def _held(self, now_s: float) -> float:
        return self._replica_seconds + sum(now_s - replica.created_s for replica in self.pods)
