"""Watches the demo from outside: the API server, the engines' own ports, Prometheus; never what the operator believes.

The one exception are the sentences beside decisions, which are read from status because they are what a user reads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from demo.changes import ChangeRecorder
from demo.facts import Pod, ServiceFacts, read_pod
from demo.neighbours import ApiServer, Engines, NoAnswer, Prometheus, ServiceGone, gather_known
from outrider.core.schedule import Schedule, parse_rows

LOOK_S = 1.0
"""Between two looks at objects."""
MEASURE_S = 2.0
"""Between two rounds of questions to Prometheus and the engines."""
SAMPLE_EVERY = 2
"""Rounds between two looks at the engines' own counters."""
MAX_K = 64

_PODS = "/api/v1/namespaces/{}/pods?labelSelector=app.kubernetes.io/component=engine"
_KINDS = {
    "deployment": "/apis/apps/v1/namespaces/{}/deployments?labelSelector=serving.outrider.dev/service",
    "resource": "/apis/serving.outrider.dev/v1alpha1/namespaces/{}/speculativeinferenceservices",
    "scaled": "/apis/keda.sh/v1alpha1/namespaces/{}/scaledobjects",
    "hpa": "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
}
_SERVICE = "serving_outrider_dev_service"
TPOT_BUCKETS = "vllm:request_time_per_output_token_seconds_bucket"
QUERIES = {
    "tokens_per_second": "sum by ({by}) (rate(vllm:generation_tokens_total{{{only}}}[6s]))",
    "running": "sum by ({by}) (vllm:num_requests_running{{{only}}})",
    "waiting": "sum by ({by}) (vllm:num_requests_waiting{{{only}}})",
    "acceptance_length": "1 + sum by ({by}) (increase(vllm:spec_decode_num_accepted_tokens_total{{{only}}}[8s]))"
    " / sum by ({by}) (increase(vllm:spec_decode_num_drafts_total{{{only}}}[8s]))",
    "tpot_p95_s": "histogram_quantile(0.95, sum by ({by}, le) (rate(" + TPOT_BUCKETS + "{{{only}}}[15s])))",
    "batch": "sum by ({by}) (increase(outrider_engine_step_requests_total{{{only}}}[6s]))"
    " / sum by ({by}) (increase(outrider_engine_steps_total{{{only}}}[6s]))",
}
"""Over the last seconds only: at a scrape a second a window of six has five increases."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A service at one moment; None where nobody answered or nothing happened."""

    time_s: float
    replicas: int
    ready: int
    target: int | None
    schedule: Schedule | None
    """As the engines report it; of several, that of the newest generation."""
    generation: int | None
    acknowledged: int
    """Ready pods that report that generation."""
    running: float | None = None
    waiting: float | None = None
    tokens_per_second: float | None = None
    acceptance_length: float | None = None
    tpot_p95_s: float | None = None
    batch: float | None = None
    """Requests in a step, mean over the steps of all pods."""

    @property
    def in_flight(self) -> float | None:
        """Running or waiting."""
        return None if self.running is None else self.running + (self.waiting or 0.0)

    @property
    def num_speculative_tokens(self) -> int | None:
        """K of the schedule at the mean batch."""
        return None if self.schedule is None or self.batch is None else self.schedule.at(self.batch)

    def as_dict(self) -> dict[str, Any]:
        """One line of the timeline's file."""
        return {
            "time_s": round(self.time_s, 2),
            "replicas": self.replicas,
            "ready": self.ready,
            "target": self.target,
            "schedule": None if self.schedule is None else str(self.schedule),
            "generation": self.generation,
            "acknowledged": self.acknowledged,
            "running": self.running,
            "waiting": self.waiting,
            "tokens_per_second": self.tokens_per_second,
            "acceptance_length": self.acceptance_length,
            "tpot_p95_s": self.tpot_p95_s,
            "batch": self.batch,
            "speculative_tokens": self.num_speculative_tokens,
        }


@dataclass(slots=True)
class Observer:
    """Looks until it is cancelled; ``began_s`` (monotonic) and ``began_unix_s`` are the start of the live part."""

    api: ApiServer
    engines: Engines
    prometheus: Prometheus
    namespace: str
    names: Sequence[str]
    began_s: float = 0.0
    began_unix_s: float = 0.0
    facts: dict[str, ServiceFacts] = field(default_factory=dict)
    timeline: dict[str, list[Measured]] = field(default_factory=dict)
    recorder: ChangeRecorder = field(init=False)
    missed: int = 0
    """Looks without an answer."""

    async def begin(self) -> None:
        """Start the clock, and look once at everything.

        Raises:
            NoAnswer: the API server or Prometheus is not there.
        """
        self.began_s, self.began_unix_s = time.monotonic(), time.time()
        self.facts = {name: ServiceFacts(name) for name in self.names}
        self.timeline = {name: [] for name in self.names}
        self.recorder = ChangeRecorder(self.api, self.engines, self.namespace, self.names, self.serving, self.began_s)
        await self.recorder.prime()
        await self.look()
        await self.measure()

    def now_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began_s

    def serving(self, name: str) -> list[Pod]:
        """A service's ready pods."""
        return self.facts[name].serving

    def addresses(self, name: str) -> list[str]:
        """Their addresses, for an endpoint picker."""
        return [pod.address for pod in self.facts[name].serving]

    async def run(self) -> None:
        """Look at objects, measure, and follow changes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.recorder.run())
            tasks.create_task(self._every(LOOK_S, self.look))
            tasks.create_task(self._every(MEASURE_S, self.measure))
            tasks.create_task(self._every(SAMPLE_EVERY * MEASURE_S, self._sample))

    async def look(self) -> None:
        """One look at all objects.

        Raises:
            ServiceGone: a service is not there any more.
            NoAnswer: the API server or one of the other objects is not there.
        """
        paths = [path.format(self.namespace) for path in (_PODS, *_KINDS.values())]
        pods, *lists = [answer["items"] for answer in await asyncio.gather(*map(self.api.get, paths))]
        now_s = self.now_s()
        deployments, resources, scaled, hpas = ({one["metadata"]["name"]: one for one in items} for items in lists)
        for name, facts in self.facts.items():
            if facts.deleted(resources.get(name)):
                raise ServiceGone(name)
            if not (name in deployments and name in resources and name in scaled and f"keda-hpa-{name}" in hpas):
                raise NoAnswer(f"an object of service {name} is not there")
            mine = [pod for pod in pods if pod["metadata"]["labels"].get("serving.outrider.dev/service") == name]
            facts.see_pods([read_pod(pod) for pod in mine], now_s)
            facts.see_replicas(deployments[name]["spec"]["replicas"], now_s)
            facts.see_target(scaled[name], now_s)
            facts.see_resource(resources[name], self.began_unix_s)
            facts.hpa_uids.add(hpas[f"keda-hpa-{name}"]["metadata"]["uid"])

    async def measure(self) -> None:
        """One round of questions to Prometheus and the engines."""
        only = f'namespace="{self.namespace}"'
        queries = {key: query.format(by=_SERVICE, only=only) for key, query in QUERIES.items()}
        answers = dict(
            zip(queries, await gather_known(*map(self.prometheus.by_service, queries.values())), strict=True)
        )
        for name, facts in self.facts.items():
            values = {key: (answer or {}).get(name) for key, answer in answers.items()}
            generation, schedule, count = await self._schedules(name)
            self.timeline[name].append(
                Measured(
                    time_s=self.now_s(),
                    replicas=facts.desired,
                    ready=len(facts.serving),
                    target=facts.targets[-1][1] if facts.targets else None,
                    schedule=schedule,
                    generation=generation,
                    acknowledged=count,
                    **values,
                )
            )

    async def totals(self, name: str) -> tuple[float, list[tuple[float, float]]]:
        """Generated tokens, and TPOT buckets as (bound, cumulative count), of all pods there ever were.

        Counters of engines begin at zero with the pod, and nothing was asked of them before the live part: the last
        value that Prometheus holds of each is what it did.
        """
        only = f'namespace="{self.namespace}",{_SERVICE}="{name}"'
        span = f"[{int(self.now_s()) + 60}s]"
        tokens = await self.prometheus.query(f"sum(last_over_time(vllm:generation_tokens_total{{{only}}}{span}))")
        buckets = await self.prometheus.query(f"sum by (le) (last_over_time({TPOT_BUCKETS}{{{only}}}{span}))")
        total = tokens[0][1] if tokens else 0.0
        return total, sorted((float(labels["le"]), count) for labels, count in buckets)

    async def _schedules(self, name: str) -> tuple[int | None, Schedule | None, int]:
        """The newest generation among the ready pods, its schedule, and how many report it."""
        pods = self.facts[name].serving
        answers = await gather_known(*(self.engines.schedule(name, pod.address) for pod in pods))
        known = [answer for answer in answers if answer is not None]
        if not known:
            return None, None, 0
        newest: Mapping[str, Any] = max(known, key=lambda answer: answer["generation"])
        schedule = parse_rows(newest["schedule"], ceiling=MAX_K)
        same = sum(answer["generation"] == newest["generation"] for answer in known)
        return newest["generation"], schedule, same

    async def _sample(self) -> None:
        for name in self.names:
            await self.recorder.sample(name)

    async def _every(self, period_s: float, work: Any) -> None:
        """Work at a steady pace; a look that gets no answer is missed, and counted."""
        due_s = time.monotonic()
        while True:
            due_s = max(due_s + period_s, time.monotonic())
            await asyncio.sleep(due_s - time.monotonic())
            try:
                await work()
            except NoAnswer:
                self.missed += 1
