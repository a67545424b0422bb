"""Candidates beside the replicas: what engines of both tracks told, and what is judged by it.

While no candidate is compared nothing is asked. Else each pass asks for the windows since the last one, of all
candidates together, in as many queries as there are groups of metric families. What was read before is not asked again,
unless the operator was started anew or the store was away: then it is made up for, `AT_ONCE` windows a pass. Crashes
and time are judged without a store as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from outrider.core.revisions.analysis import judge
from outrider.core.revisions.record import Objectives, begun
from outrider.core.series import Series
from outrider.errors import MetricsError
from outrider.manifests.meta import CANDIDATE, ENGINE_CONTAINER
from outrider.reconcile import edge, measures
from outrider.reconcile.engine_pod import EnginePod
from outrider.reconcile.neighbours import Neighbours
from outrider.reconcile.registry import Registry, Service, ServiceKey
from outrider.settings import Settings

logger = logging.getLogger(__name__)

BEHIND = 1
"""Groups of comparisons, by the window that they have come to, which are made up for in a pass beside those that are up
to date: a restart with many of them must not ask for all at once."""

Edges = tuple[float, ...]


class Comparisons:
    """Runs over the registry's trials; ``reconcile`` is told of those whose verdict or next boot is due."""

    def __init__(self, registry: Registry, neighbours: Neighbours, reconcile: Callable[[ServiceKey], None]) -> None:
        self._registry, self._neighbours, self._reconcile = registry, neighbours, reconcile

    async def run(self, now_s: float) -> None:
        """One look at every candidate that is to be judged; never raises for a neighbour's fault."""
        for service in self._registry:
            if service.trial is not None and service.trial.stage == "Checking":
                self._reconcile(service.key)  # Jobs are not watched: an objects pass looks at this one
        services = [service for service in self._registry if _compared(service, self._neighbours.settings)]
        complete_s = now_s - self._neighbours.settings.scrape_interval_s  # a scrape that is under way ends by then
        unread = set[ServiceKey]()
        for edges, group in _groups(services, complete_s):
            series = await self._fetch(edges, group, now_s)
            if series is None:
                unread |= {service.key for service in group}
                continue
            for service in group:
                fault = await edge.attempt(service.key, _read(service, edges, series.get(service.key, ())))
                unread |= set() if fault is None else {service.key}
        for service in services:
            record = service.record
            # What can still be read of the past must not be cut short by the time that it takes.
            behind = record is not None and record.next_edges(complete_s)[1:] and service.key not in unread
            moment_s = record.until_s if behind and record is not None else now_s
            await edge.attempt(service.key, self._judge(service, moment_s))

    async def _fetch(
        self, edges: Edges, group: Sequence[Service], now_s: float
    ) -> Mapping[ServiceKey, Sequence[Series]] | None:
        # Two scrape intervals more, so that a counter's base sample before the first window is there too.
        span_s = edges[-1] - edges[0] + 2.0 * self._neighbours.settings.scrape_interval_s
        keys = [service.key for service in group]
        try:
            return await self._neighbours.metrics.compared_series(keys, span_s, min(edges[-1], now_s))
        except MetricsError as error:
            logger.warning("candidates are not compared: %s", error.message, extra={"reason": error.reason})
            return None

    async def _judge(self, service: Service, moment_s: float) -> None:
        """Weigh what is known; an objects pass that is under way may be about to change what is on trial."""
        trial, record = service.trial, service.record
        if service.lock.locked() or trial is None or record is None or trial.revision != record.revision:
            return
        before = service.judgement
        evidence = record.evidence(_living(service), trial.crashes + _crashes(service))
        found = judge(trial.plan, evidence, moment_s)
        service.judgement = found
        measures.compared(service.key, evidence, found)
        news = before is None or (before.verdict, before.restart) != (found.verdict, found.restart)
        if news:
            logger.info(
                "candidate %s: %s: %s", trial.revision, found.verdict, "; ".join(found.reasons), extra=_keys(service)
            )
        if news or found.restart or found.verdict != "wait":
            self._reconcile(service.key)


def _compared(service: Service, settings: Settings) -> bool:
    """Whether there is a candidate to judge now; what is known of another one is dropped."""
    trial = service.trial
    if trial is None or (service.record is not None and service.record.revision != trial.revision):
        service.record = None
    if trial is None or not trial.judged or trial.traffic_since_s is None:
        return False
    if service.record is None:
        # Windows are as long as the control period, and hold two scrapes at the least.
        window_s = max(settings.control_period_s, 2.0 * settings.scrape_interval_s)
        service.record = begun(trial.revision, trial.traffic_since_s, window_s)
    return True


def _groups(services: Iterable[Service], complete_s: float) -> list[tuple[Edges, list[Service]]]:
    """Comparisons that have windows to read, by their edges: those that are up to date, and `BEHIND` of the others."""
    groups: dict[Edges, list[Service]] = defaultdict(list)
    for service in services:
        assert service.record is not None
        edges = service.record.next_edges(complete_s)
        if len(edges) > 1:
            groups[edges].append(service)
    newest = sorted(groups.items(), key=lambda group: group[0], reverse=True)
    return [*newest[:1], *newest[1:][-BEHIND:]]


async def _read(service: Service, edges: Edges, series: Iterable[Series]) -> None:
    record, resolved = service.record, service.resolved
    if record is None or record.until_s != edges[0]:
        return  # another candidate's, begun meanwhile
    objectives = Objectives() if resolved is None else Objectives(resolved.tpot_s, resolved.ttft_s)
    read = await asyncio.to_thread(record.read, series, edges, objectives)
    if service.record is record:
        service.record = read


def _living(service: Service) -> set[str]:
    """UIDs and names of pods that go on."""
    going_on = [pod for pod in service.pods.values() if not (pod.terminating or pod.failed)]
    return {pod.uid for pod in going_on} | {pod.name for pod in going_on}


def _crashes(service: Service) -> int:
    """Ends of the candidate's engines that nobody asked for, in pods that go on."""
    return sum(_ends(pod) for pod in service.pods.values() if pod.track == CANDIDATE and not pod.terminating)


def _ends(pod: EnginePod) -> int:
    return 0 if pod.ending is None or pod.container != ENGINE_CONTAINER else pod.ending.life + 1


def _keys(service: Service) -> dict[str, str]:
    return {"namespace": service.key[0], "service": service.key[1]}
