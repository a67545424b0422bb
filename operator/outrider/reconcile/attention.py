"""Which services a control pass judges, and which it lets stand after a glance at a few numbers.

A small fleet is judged whole in every pass. Of a large one most has nothing new, and is not even asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from zlib import crc32

from outrider.core import standing
from outrider.core.controller import Outcome
from outrider.core.glance import Glance, glance
from outrider.core.observation import Observation
from outrider.core.series import Missing, Series
from outrider.core.standing import TURNS, Standing
from outrider.reconcile.registry import Service, ServiceKey
from outrider.reconcile.status import SOFT_EVERY_S

logger = logging.getLogger(__name__)

FEW = 32
"""Services of which all are judged in each pass: that takes a quarter of a second, and spares a query."""
PART = 100
"""Services whose samples are asked for and held at a time: up to 25 MiB, and twice as much while they are read."""
LOOK_AGAIN_S, LOOK_AGAIN_AT_MOST_S, LOOKS_PER_SECOND = 120.0, 300.0, 8.0
"""Between two objects passes over a service of which there is nothing else to tell than before. A look takes some
10 ms: a large fleet takes longer, but no longer than a Secret may be missing."""


@dataclass(slots=True)
class Attention:
    """What the passes remember of the looks at one service."""

    glance: Glance | None = None
    standing: Standing | None = None
    """None while it has to be judged in each pass."""
    stood_s: float | None = None
    """Time of the last pass that let its decision stand; None if the last one judged it."""
    moved: bool = False
    """It is judged because something moved, and not because it was its turn."""
    told: Sequence[object] | None = None
    """What the objects pass was last reminded of."""


@dataclass(frozen=True, slots=True)
class Sorted:
    """A fleet, by what a pass does with it."""

    due: list[Service]
    stands: list[Service]


class Attentions:
    """Of the whole fleet, from pass to pass."""

    def __init__(self) -> None:
        self._known: dict[ServiceKey, tuple[str, Attention]] = {}
        self._passes = 0

    def of(self, service: Service) -> Attention:
        """What is remembered of a service; nothing of one that was made anew under its name."""
        uid = service.body["metadata"]["uid"]
        known = self._known.get(service.key)
        if known is None or known[0] != uid:
            known = self._known[service.key] = (uid, Attention())
        return known[1]

    def sort(self, fleet: Iterable[Service], glances: Mapping[ServiceKey, Iterable[Series]], now_s: float) -> Sorted:
        """Take a pass's glances in, and say which services to judge; what is remembered of others is dropped."""
        self._passes += 1
        found, keys = Sorted([], []), set()
        for service in fleet:
            keys.add(service.key)
            one = self.of(service)
            why = self._why(service, one, glances.get(service.key, ()), now_s)
            if why is None:
                one.stood_s = now_s
                found.stands.append(service)
            else:
                logger.debug("judged: %s", why, extra={"namespace": service.key[0], "service": service.key[1]})
                found.due.append(service)
        for gone in self._known.keys() - keys:
            del self._known[gone]
        return found

    def _why(self, service: Service, one: Attention, series: Iterable[Series], now_s: float) -> str | None:
        one.moved = False
        pods, config = {pod.name for pod in service.ready_pods}, service.config
        before, after = one.glance, glance(series, pods)
        one.glance = after
        if one.standing is None or config is None or before is None or after is None or service.metrics is not None:
            return "its last decision does not stand"
        if standing.too_soon(before, after, config):
            one.glance = before
        why = standing.moved(one.standing, before, after, config, engines(service), now_s)
        one.moved = why is not None
        mine = (crc32("/".join(service.key).encode()) + self._passes) % TURNS == 0
        return "it is its turn" if why is None and mine else why

    def judged(self, service: Service, outcome: Outcome, window: Observation | Missing, now_s: float) -> None:
        """Note what a decision was made for."""
        assert service.config is not None
        one = self.of(service)
        one.standing = standing.standing(service.config, outcome, window, engines(service), now_s)
        one.stood_s = None

    def forget(self) -> None:
        """Remember nothing: all are judged."""
        self._known.clear()

    def news(self, service: Service, now_s: float, *, calm: bool) -> bool:
        """Whether it is time to look at a service again: every half minute or, of a fleet that is to be ``calm``,
        every two to five, by its size, where a service is well and there is nothing to tell but numbers that drift."""
        if now_s < service.looked_s + SOFT_EVERY_S:
            return False
        one, told = self.of(service), _told(service)
        again_s = look_again_s(len(self._known))
        if calm and told == one.told and now_s < service.looked_s + again_s and _well(service):
            return False
        one.told = told
        return True


def look_again_s(services: int) -> float:
    """`LOOK_AGAIN_S`, or more for a fleet of so many."""
    return min(LOOK_AGAIN_AT_MOST_S, max(LOOK_AGAIN_S, services / LOOKS_PER_SECOND))


def engines(service: Service) -> frozenset[tuple[str, int]]:
    """The ready engines, each with its life."""
    return frozenset((pod.uid, pod.restarts) for pod in service.ready_pods)


def parts(services: Sequence[Service], size: int = PART) -> Iterator[list[Service]]:
    """So many at a time."""
    left = iter(services)
    while part := list(islice(left, size)):
        yield part


def names(services: Collection[Service]) -> list[ServiceKey]:
    """Those that have engines to ask for."""
    return [service.key for service in services if service.ready_pods]


def _told(service: Service) -> Sequence[object]:
    """What a status says beside numbers that drift."""
    outcome, state = service.outcome, service.state
    hold = None if outcome is None or outcome.hold is None else outcome.hold.reason
    able = None if outcome is None else outcome.capacity.limited_by
    schedule, target = (None, None) if state is None else (state.schedule, state.target)
    refused = sorted(service.refusals)
    return (hold, able, schedule, target, service.metrics, service.left_out, refused, service.limited, service.share)


def _well(service: Service) -> bool:
    """Ready by its last status, with all of its pods: nothing runs out that a look would have to see."""
    conditions = (service.status or {}).get("conditions", ())
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    return ready and bool(service.pods) and len(service.ready_pods) == len(service.pods)
