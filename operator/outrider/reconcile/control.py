"""The control pass: observe the whole fleet at once, decide for each service, deliver what changed.

    a glance at all ─▶ one query per family of metrics ─▶ for each service: observe ─▶ decide ─▶ remember ─▶ deliver
                     └▶ what did not move stands        ├▶ for each namespace with a GPU quota: share it out
                                                        └▶ for each candidate: compare it with the replicas

A decision is written to the memory document before any engine hears of it. Whoever starts after a crash then finds the
decision and completes it; the other way round an engine could run a schedule that nobody remembers.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence

from outrider import telemetry
from outrider.core.controller import Outcome, catch_up, control
from outrider.core.observation import Observation, observe_since
from outrider.core.series import Missing, Series
from outrider.core.standing import TURNS
from outrider.errors import MetricsError
from outrider.reconcile import by_rollout, delivery, demands, edge, events, measures, persistence
from outrider.reconcile.attention import FEW, Attentions, names, parts
from outrider.reconcile.comparisons import Comparisons
from outrider.reconcile.neighbours import Neighbours
from outrider.reconcile.registry import Registry, Service, ServiceKey
from outrider.reconcile.sharing import Sharing

logger = logging.getLogger(__name__)

BREATH_S = 1.0
"""Shortest pause between two passes."""
LOOP_TURNS = 5
"""Of the event loop after each decision: an answer of the API server takes about four from the socket to the task that
waits for it, and each would wait for a decision."""
SAVE_EVERY_S, SAVES_PER_SECOND = 300.0, 4.0
"""Estimates that no decision was based on are saved this often, and a large fleet's at this rate: losing minutes of
learning costs less than the writes."""
WARM_UP_PERIODS = 2
"""Control periods after an engine became ready in which nothing is learned from it beside others: its first batches are
small and its caches empty, which says nothing of an engine at work."""
_COUNTERS = {"Schedule": telemetry.SCHEDULE_CHANGES, "Target": telemetry.TARGET_CHANGES}


class ControlPass:
    """Runs over the registry; ``reconcile`` is told of services whose children or status have to follow."""

    def __init__(
        self,
        registry: Registry,
        neighbours: Neighbours,
        reconcile: Callable[[ServiceKey], None],
        few: int = FEW,
        got_on: Callable[[], None] = lambda: None,
    ) -> None:
        """``few`` services at the most are all judged in each pass; ``got_on`` is told of each part of one."""
        self._few, self._got_on = few, got_on
        self._registry, self._neighbours, self._reconcile = registry, neighbours, reconcile
        self._attentions = Attentions()
        self._comparisons = Comparisons(registry, neighbours, reconcile)
        self._sharing = Sharing(registry, neighbours.settings.gpu_settle_s, reconcile)

    async def run(self) -> None:
        """One pass over all services; never raises for a neighbour's fault."""
        now_s = self._neighbours.clock()
        with telemetry.CONTROL_PASS_SECONDS.time():
            due, fault = await self._let_stand(now_s)
            for part in [due] if self._small else parts(sorted(due, key=_learned_until_s, reverse=True)):
                fault = await self._judge(part, fault)
                self._got_on()
            self._sharing.run(now_s)
            await self._comparisons.run(now_s)
        telemetry.keep({service.key for service in self._registry})
        telemetry.LAST_CONTROL_PASS.set(self._neighbours.clock())

    async def _let_stand(self, now_s: float) -> tuple[list[Service], Missing | None]:
        """Of a large fleet, leave alone what does as it did; returns the services to judge, and why there are no
        metrics to do so."""
        fleet, settings = list(self._registry), self._neighbours.settings
        if self._small:
            self._attentions.forget()
            return fleet, None
        try:
            glances = await self._neighbours.metrics.glance(2.0 * settings.scrape_interval_s, now_s)
        except MetricsError as error:
            return fleet, _missing(error)
        found = self._attentions.sort(fleet, glances, now_s)
        await self._each(found.stands, lambda service: self._stand(service, now_s), 1)
        return found.due, None

    @property
    def _small(self) -> bool:
        return len(self._registry) <= self._few

    async def _judge(self, services: Sequence[Service], fault: Missing | None) -> Missing | None:
        """Decide for some services at the time that it is by then; returns why there were no metrics."""
        now_s = self._neighbours.clock()
        whole = len(services) == len(self._registry)
        series = fault or await self._fetch(None if whole else names(services), self._span_s(services, now_s), now_s)
        await self._each(services, lambda service: self._one(service, series, now_s), LOOP_TURNS)
        return series if isinstance(series, Missing) else None

    async def _each(
        self, services: Iterable[Service], work: Callable[[Service], Coroutine[None, None, None]], turns: int
    ) -> None:
        """Do the work for each, and give the event loop so many turns after it."""
        async with asyncio.TaskGroup() as group:
            for service in services:
                group.create_task(work(service))
                # Deciding is arithmetic: without a pause events, and with them changes of a spec, would wait for the
                # whole fleet's.
                for _ in range(turns):
                    await asyncio.sleep(0)

    async def _fetch(
        self, services: Collection[ServiceKey] | None, span_s: float, now_s: float
    ) -> Mapping[ServiceKey, list[Series]] | Missing:
        """Samples of the fleet, or of a part of it."""
        if services is not None and not services:
            return {}
        try:
            return await self._neighbours.metrics.engine_series(span_s, now_s, services)
        except MetricsError as error:
            return _missing(error)

    def _span_s(self, services: Iterable[Service], now_s: float) -> float:
        """How far back the samples of these services are needed: to the beginning of the window, and of what the first
        of them has not learnt."""
        settings = self._neighbours.settings
        unlearnt_s = max((now_s - _learned_until_s(service) for service in services), default=0.0)
        # Two scrape intervals more, so that a counter's base sample before the window is there too.
        return min(self._reach_s(), max(settings.window_s, unlearnt_s)) + 2.0 * settings.scrape_interval_s

    def _reach_s(self) -> float:
        """How far back samples are read at most: where decisions stand, there is more to learn at a time."""
        settings = self._neighbours.settings
        turns = 0 if self._small else TURNS + 1
        return max(settings.window_s, turns * settings.control_period_s)

    async def _stand(self, service: Service, now_s: float) -> None:
        """Tell again what still holds, and see that engines have it."""
        if service.lock.locked() or service.outcome is None:
            return
        async with service.lock:
            demands.stand(service, now_s)
            telemetry.tell_again(service.key)
            if service.outcome.hold is not None:
                telemetry.HOLDS.labels(service.outcome.hold.reason).inc()
            fault = await edge.attempt(service.key, self._hand_out(service))
            if fault is not None:
                logger.warning("%s", fault.message, extra=_keys(service) | {"reason": fault.reason})
        if self._attentions.news(service, now_s, calm=True):
            self._reconcile(service.key)

    async def _one(self, service: Service, series: Mapping[ServiceKey, list[Series]] | Missing, now_s: float) -> None:
        if service.lock.locked():
            return  # an objects pass waits for a neighbour; the others must not wait with it
        async with service.lock:
            news = False
            if service.config is None:
                telemetry.silence(service.key)
            elif service.state is not None:  # else its memory was not read yet
                seen = (service.outcome is None, service.metrics)
                fault = await edge.attempt(service.key, self._decide(service, series, now_s))
                if fault is not None:
                    logger.warning("%s", fault.message, extra=_keys(service) | {"reason": fault.reason})
                changed = service.outcome is not None and bool(service.outcome.changes)
                news = changed or seen != (service.outcome is None, service.metrics)
                news = news or self._attentions.news(service, now_s, calm=not self._small)
        if news:
            self._reconcile(service.key)

    async def _decide(
        self, service: Service, series: Mapping[ServiceKey, list[Series]] | Missing, now_s: float
    ) -> None:
        assert service.config is not None
        assert service.state is not None
        attention = self._attentions.of(service)
        if attention.moved and attention.stood_s is not None and not isinstance(series, Missing):
            self._catch_up(service, series.get(service.key, []), attention.stood_s, now_s)
        window, increment = self._observe(service, series, now_s)
        if not isinstance(window, Missing):
            delivery.check(service, window)
        outcome = control(service.config, service.state, window, increment, now_s)
        service.outcome, service.state = outcome, outcome.state
        by_rollout.follow(service, increment, self._neighbours.settings.k_settle_s, now_s)
        outcome = service.outcome
        self._attentions.judged(service, outcome, window, now_s)
        service.metrics, service.left_out = (window, ()) if isinstance(window, Missing) else (None, window.left_out)
        _report(service, outcome)
        measures.decided(service.key, service.config, window, outcome)
        telemetry.desire(service.key, demands.observe(service, window, now_s))
        telemetry.hold(service.key, demands.held_requests(service, window))
        await self._carry_out(service, outcome, now_s)

    def _catch_up(self, service: Service, mine: list[Series], until_s: float, now_s: float) -> None:
        """Learn what happened while the last decision stood, so that what moved since is seen for itself."""
        assert service.config is not None
        assert service.state is not None
        since_s = service.state.learned_until_s
        if since_s is None or not now_s - self._reach_s() <= since_s < until_s:
            return
        (increment,) = observe_since(mine, (since_s,), until_s, pods=self._settled(service, now_s))
        service.state = catch_up(service.config, service.state, increment)

    def _observe(
        self, service: Service, series: Mapping[ServiceKey, list[Series]] | Missing, now_s: float
    ) -> tuple[Observation | Missing, Observation | Missing]:
        if isinstance(series, Missing):
            return series, series
        settings, state = self._neighbours.settings, service.state
        pods = {pod.name for pod in service.ready_pods}
        if not pods:
            none = Missing("NoReadyEngine", "no engine is ready")
            return none, none
        mine = series.get(service.key, [])
        window_s = settings.window_s
        learned_s = now_s - window_s if state is None or state.learned_until_s is None else state.learned_until_s
        moments_s = (now_s - window_s, max(learned_s, now_s - self._reach_s()))
        settled = self._settled(service, now_s)
        if settled == pods:
            window, increment = observe_since(mine, moments_s, now_s, pods=pods)
            return window, increment
        (window,) = observe_since(mine, moments_s[:1], now_s, pods=pods)
        (increment,) = observe_since(mine, moments_s[1:], now_s, pods=settled)
        return window, increment

    def _settled(self, service: Service, now_s: float) -> set[str]:
        """Pods to learn from; where all have just become ready, there is nothing else to learn from."""
        before_s = now_s - WARM_UP_PERIODS * self._neighbours.settings.control_period_s
        ready = service.ready_pods
        settled = {pod.name for pod in ready if pod.ready_since_s is None or pod.ready_since_s <= before_s}
        return settled or {pod.name for pod in ready}

    async def _carry_out(self, service: Service, outcome: Outcome, now_s: float) -> None:
        """Remember first, then tell the engines; children and status follow in the objects pass."""
        # Probes last one period and come back: the log and the status tell of them, events would drown the changes.
        service.unannounced += [change for change in outcome.changes if change.kind != "Probe"]
        if now_s >= service.saved_s + max(SAVE_EVERY_S, len(self._registry) / SAVES_PER_SECOND):
            await persistence.save(service, self._neighbours)
        await self._hand_out(service)

    async def _hand_out(self, service: Service) -> None:
        await delivery.bring_up_to_date(service, self._neighbours)
        while service.unannounced:
            await events.post(service, service.unannounced[0], self._neighbours)
            service.unannounced.pop(0)


def _learned_until_s(service: Service) -> float:
    """Unix time up to which everything was learnt from; infinite where learning begins with the window."""
    learned_s = None if service.state is None else service.state.learned_until_s
    return math.inf if learned_s is None else learned_s


def _missing(error: MetricsError) -> Missing:
    logger.warning("no metrics: %s", error.message, extra={"reason": error.reason})
    return Missing(error.reason, error.message)


async def every(period_s: float, run: Callable[[], Awaitable[None]], wake: asyncio.Event) -> None:
    """Run at a steady pace until cancelled, and soon when woken; a late pass is not made up for."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + period_s
        wake.clear()
        await run()
        # Each of a thousand services that load wakes it: they share a pass.
        await asyncio.sleep(min(BREATH_S, period_s))
        try:
            async with asyncio.timeout_at(due_s):
                await wake.wait()
        except TimeoutError:
            continue


def _report(service: Service, outcome: Outcome) -> None:
    namespace, name = service.key
    extra = _keys(service) | {"speculativeTokens": outcome.num_speculative_tokens}
    for change in outcome.changes:
        if change.kind in _COUNTERS:  # a probe is no change that lasts
            _COUNTERS[change.kind].labels(namespace, name).inc()
        logger.info("%s %s → %s: %s", change.kind, change.before, change.after, change.reason, extra=extra)
    if outcome.hold is not None:
        telemetry.HOLDS.labels(outcome.hold.reason).inc()
    for step in outcome.proposal.steps:
        logger.debug("%s", step, extra=extra)


def _keys(service: Service) -> dict[str, str | int]:
    return {"namespace": service.key[0], "service": service.key[1]}
