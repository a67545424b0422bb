"""How fast a new schedule reached every engine, and whether the engines' own counters show it.

The clock starts when the API server shows the decision on record (a watch of the ConfigMap ``<name>-memory``, which is
written before any engine hears of it) and stops when the last ready pod answers ``GET /schedule`` with that generation;
each pod is asked every `POLL_S`. Then the counters of two looks at each pod's metrics page are compared.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from demo.facts import Pod
from demo.neighbours import ApiServer, Engines, NoAnswer, gather_known
from outrider.core.schedule import Schedule, parse_rows

POLL_S = 0.02
"""Resolution of the acknowledgement."""
PATIENCE_S = 30.0
SETTLE_S = 2.5
"""Steps that were under way still verify what they drafted; a full prompt takes 1.6 s a step on the scaled card."""
BETWEEN_S = 3.0
"""Between the two looks at the counters: some hundred steps."""
DRAFTED = "outrider_engine_draft_tokens_per_pos_total"
STEPS = "outrider_engine_steps_total"
MAX_K = 64
NO_STEPS = "none"
SERVICE_LABEL = "serving.outrider.dev/service"


@dataclass(slots=True)
class ScheduleChange:
    """A schedule on its way to the engines; times are seconds from the start of the live part."""

    service: str
    generation: int
    before: Schedule
    after: Schedule
    recorded_s: float
    pods: tuple[str, ...] = ()
    """Names of the pods that were ready then."""
    ack_s: float | None = None
    """Seconds from the record to the last pod; None while one has not reported it."""
    counters_show_k: bool | None = None
    """Every pod with traffic drafted at no position but those that the schedule has at its batch sizes; None before the
    counters were compared."""
    k_drafted: dict[str, str] = field(default_factory=dict)
    """By pod: the K of its steps before and after, from its own counters."""

    @property
    def new_k(self) -> bool:
        """Whether each pod ran steps after the change, and by other K than before."""
        pairs = [text.split(" → ") for text in self.k_drafted.values()]
        return all(after not in (before, NO_STEPS) for before, after in pairs)

    def as_dict(self) -> dict[str, Any]:
        """For the summary."""
        return {
            "service": self.service,
            "generation": self.generation,
            "before": str(self.before),
            "after": str(self.after),
            "recorded_s": round(self.recorded_s, 2),
            "pods": len(self.pods),
            "ack_ms": None if self.ack_s is None else round(1e3 * self.ack_s, 1),
            "counters_show_k": self.counters_show_k,
            "k_by_pod": self.k_drafted,
        }


@dataclass(frozen=True, slots=True)
class Counters:
    """One pod's counters at one moment."""

    drafted: Mapping[int, float]
    """Drafts by position, from 0."""
    steps: Mapping[tuple[int, int], float]
    """Steps by batch bucket (its upper bound) and K."""

    def since(self, earlier: Counters) -> Counters:
        """Increases."""
        return Counters(
            {key: value - earlier.drafted.get(key, 0.0) for key, value in self.drafted.items()},
            {key: value - earlier.steps.get(key, 0.0) for key, value in self.steps.items()},
        )

    @property
    def k(self) -> str:
        """The K of the steps, most frequent first; those under 2 % of the steps are left out."""
        by_k: dict[int, float] = defaultdict(float)
        for (_, k), steps in self.steps.items():
            by_k[k] += steps
        total = sum(by_k.values())
        return (
            ",".join(str(k) for k, n in sorted(by_k.items(), key=lambda one: -one[1]) if n > 0.02 * total) or NO_STEPS
        )


def shows(schedule: Schedule, grown: Counters) -> bool:
    """Whether increases agree with a schedule: no position drafted beyond its K at the batch sizes that were run.

    A bucket holds batch sizes over half its bound up to its bound; a step verifies what the step before it drafted,
    whose batch may lie in the neighbouring bucket, so one size beyond either end counts as well.
    """
    buckets = [bucket for (bucket, _), steps in grown.steps.items() if steps > 0]
    if not buckets:
        return True
    sizes = range(max(1, min(buckets) // 2), max(buckets) + 2)
    allowed = {schedule.at(size) for size in sizes}
    drafted = [position for position, count in grown.drafted.items() if count > 0]
    stepped = {k for (_, k), steps in grown.steps.items() if steps > 0}
    return stepped <= allowed and all(position < max(allowed) for position in drafted)


class ChangeRecorder:
    """Watches the decisions on record, and follows each to the engines."""

    def __init__(
        self,
        api: ApiServer,
        engines: Engines,
        namespace: str,
        names: Collection[str],
        serving: Callable[[str], Sequence[Pod]],
        began_s: float,
    ) -> None:
        """``names`` are the services to follow, whoever else may live in the namespace; ``serving`` gives a service's
        ready pods; ``began_s`` is the monotonic start of the live part."""
        self.changes: list[ScheduleChange] = []
        self._api, self._engines = api, engines
        self._names, self._serving, self._began_s = frozenset(names), serving, began_s
        self._path = f"/api/v1/namespaces/{namespace}/configmaps?labelSelector={SERVICE_LABEL}"
        self._last: dict[str, tuple[int, Schedule]] = {}
        self._earlier: dict[tuple[str, str], Counters] = {}

    async def prime(self) -> None:
        """Learn the schedules that engines start with, and whatever was decided before the live part."""
        documents = (await self._api.get(self._path))["items"]
        for key in ("schedule.json", "memory.json"):  # what is on record outranks what was mounted
            for document in documents:
                if self._ours(document, key):
                    service, generation, schedule = _parse(document, key)
                    self._last[service] = generation, schedule

    async def run(self) -> None:
        """Until cancelled; a watch that is cut off is begun again."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    async for _, document in self._api.watch(self._path):
                        change = self._read(document)
                        if change is not None:
                            self.changes.append(change)
                            tasks.create_task(self._follow(change))
                except NoAnswer:
                    await asyncio.sleep(0.5)

    async def sample(self, service: str) -> None:
        """Remember each ready pod's counters, so that the next change has something to be compared with."""
        for pod in self._serving(service):
            try:
                self._earlier[service, pod.name] = await self._counters(pod)
            except NoAnswer:
                continue

    def _read(self, document: Mapping[str, Any]) -> ScheduleChange | None:
        """A change, if this ConfigMap is a memory document with another schedule than the last one."""
        if not self._ours(document, "memory.json"):
            return None
        service, generation, schedule = _parse(document, "memory.json")
        known = self._last.get(service)
        if known is None or generation <= known[0]:
            return None
        before = known[1]
        self._last[service] = generation, schedule
        if schedule == before:
            return None
        return ScheduleChange(service, generation, before, schedule, time.monotonic() - self._began_s)

    def _ours(self, document: Mapping[str, Any], key: str) -> bool:
        """Whether it is a document of that name about a service that is followed."""
        return key in document.get("data", {}) and document["metadata"]["labels"][SERVICE_LABEL] in self._names

    async def _follow(self, change: ScheduleChange) -> None:
        began_s = time.monotonic()
        pods = list(self._serving(change.service))
        change.pods = tuple(pod.name for pod in pods)
        reached = await asyncio.gather(*(self._reached(change, pod, began_s) for pod in pods))
        if pods and all(reached):
            change.ack_s = time.monotonic() - began_s
        await self._compare(change, pods)

    async def _reached(self, change: ScheduleChange, pod: Pod, began_s: float) -> bool:
        """Ask one pod until it reports the generation; a pod that leaves meanwhile need not."""
        while time.monotonic() < began_s + PATIENCE_S:
            try:
                answer = await self._engines.schedule(change.service, pod.address)
                if answer["generation"] >= change.generation:
                    return True
            except NoAnswer:
                if not self._still_serves(change.service, pod):
                    return True
            await asyncio.sleep(POLL_S)
        return not self._still_serves(change.service, pod)

    def _still_serves(self, service: str, pod: Pod) -> bool:
        return pod.uid in {one.uid for one in self._serving(service)}

    async def _compare(self, change: ScheduleChange, pods: Sequence[Pod]) -> None:
        """Look at the counters twice, once the steps under way have ended."""
        before = {pod.name: self._earlier.get((change.service, pod.name)) for pod in pods}
        first = await gather_known(*(self._counters(pod) for pod in pods))
        await asyncio.sleep(SETTLE_S)
        second = await gather_known(*(self._counters(pod) for pod in pods))
        await asyncio.sleep(BETWEEN_S)
        third = await gather_known(*(self._counters(pod) for pod in pods))
        agreed = []
        for pod, at_change, settled, later in zip(pods, first, second, third, strict=True):
            if at_change is None or settled is None or later is None:
                continue  # it left meanwhile
            grown, earlier = later.since(settled), before[pod.name]
            agreed.append(shows(change.after, grown))
            known = at_change.since(earlier).k if earlier is not None else NO_STEPS
            change.k_drafted[pod.name] = f"{known} → {grown.k}"
        superseded = self._last[change.service][0] > change.generation
        change.counters_show_k = None if superseded else bool(agreed) and all(agreed)

    async def _counters(self, pod: Pod) -> Counters:
        samples = await self._engines.samples(pod.address, "outrider_engine_")
        drafted: dict[int, float] = defaultdict(float)
        steps: dict[tuple[int, int], float] = defaultdict(float)
        for name, labels, value in samples:
            if name == DRAFTED:
                drafted[int(labels["position"])] += value
            elif name == STEPS:
                steps[int(labels["batch"]), int(labels["speculative_tokens"])] += value
        return Counters(drafted, steps)


def _parse(document: Mapping[str, Any], key: str) -> tuple[str, int, Schedule]:
    """Service, generation and schedule of a ConfigMap's document."""
    service = document["metadata"]["labels"][SERVICE_LABEL]
    content = json.loads(document["data"][key])
    return service, content["generation"], parse_rows(content["schedule"], ceiling=MAX_K)
