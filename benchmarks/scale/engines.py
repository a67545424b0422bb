"""Engines that exist on paper: the metrics of a hundred services on one page, and an admin port for each of them.

An engine has the load that its seed gives it, steps as a simple law of batch size and K says, and runs the schedule
that was delivered to it. Its counters move with the time that is passed in. Only the families that the operator asks
for are there: the others of a real engine would load Prometheus alone.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from outrider.core import engine_metrics as names
from outrider.core.schedule import constant
from outrider_runtime.protocol import ScheduleKeeper

PER_PAGE = 100
"""Services on a page."""
CEILING, MAX_NUM_SEQS = 5, 256
BOUNDS = {
    names.TPOT[0]: (
        0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    ),
    names.TTFT[0]: (
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
        160.0, 640.0, 2560.0,
    ),
}  # fmt: skip
"""Upper bounds of vLLM's histograms, seconds."""
NOISE = 0.03
"""Standard deviation of load and step time from scrape to scrape, as a share."""
MOVING_S, SWING = 120.0, 0.6
"""Period of a load that moves, and how far it does."""
MIXED = 0.1
"""Share of the steps that also run prefill."""
TOKENS, CONTEXT = 200.0, 600.0
"""Output tokens of a request; tokens of it in the cache."""
BLOCKS, BLOCK_SIZE = 20_000, 16
TTFT_S = 0.15


def step_time_s(batch: float, k: int) -> float:
    """Time of a decode step, seconds."""
    return 0.008 + 0.00004 * batch + 0.0002 * k + 0.00001 * batch * k


def load(base: float, phase: float, now_s: float, *, moving: bool) -> float:
    """Requests running, before noise: constant, or around it and back in `MOVING_S`."""
    return base * (1.0 + SWING * math.sin(2.0 * math.pi * (now_s / MOVING_S + phase))) if moving else base


@dataclass(slots=True)
class Cell:
    """Steps of one batch bucket, K and kind."""

    prefixes: tuple[str, str, str]
    steps: float = 0.0
    seconds: float = 0.0
    requests: float = 0.0


@dataclass(slots=True)
class Engine:
    """One engine of one service, and what it has counted since ``started_s``."""

    namespace: str
    service: str
    started_s: float
    seed: int
    keeper: ScheduleKeeper = field(init=False)
    running: float = field(init=False)
    _now_s: float = field(init=False)
    _random: random.Random = field(init=False)
    _base: float = field(init=False)
    _phase: float = field(init=False)
    _acceptance: float = field(init=False)
    _values: dict[str, float] = field(init=False)
    _accepted: list[float] = field(init=False)
    _drafted: list[float] = field(init=False)
    _buckets: dict[str, list[float]] = field(init=False)
    _sums: dict[str, float] = field(init=False)
    _cells: dict[tuple[int, int, str], Cell] = field(init=False)
    _prefixes: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._base, self._phase = self._random.uniform(6.0, 28.0), self._random.random()
        self._acceptance = self._random.uniform(0.55, 0.85)
        self.keeper = ScheduleKeeper(
            constant(3, MAX_NUM_SEQS), ceiling=CEILING, values=range(CEILING + 1), max_num_seqs=MAX_NUM_SEQS,
            apply=lambda _: None,
        )  # fmt: skip
        self._now_s, self.running = self.started_s, self._base
        self._values = dict.fromkeys(_COUNTERS, 0.0)
        self._accepted, self._drafted = [0.0] * CEILING, [0.0] * CEILING
        self._buckets = {name: [0.0] * (len(bounds) + 1) for name, bounds in BOUNDS.items()}
        self._sums, self._cells = dict.fromkeys(BOUNDS, 0.0), {}
        self._prefixes = list(self._names())

    def advance(self, now_s: float, *, moving: bool) -> None:
        """Run until ``now_s``, a time after the last one."""
        seconds, self._now_s = now_s - self._now_s, now_s
        self.keeper.expire(now_s)
        wanted = load(self._base, self._phase, now_s, moving=moving) * self._random.gauss(1.0, NOISE)
        self.running = max(1.0, float(round(wanted)))
        k = self.keeper.schedule.at(round(self.running))
        drop = 0.5 if moving and math.sin(2.0 * math.pi * (now_s / MOVING_S + self._phase)) > 0 else 1.0
        curve = [(self._acceptance * drop) ** (position + 1) for position in range(k)]
        time_s = step_time_s(self.running, k) * self._random.gauss(1.0, NOISE)
        steps = seconds / time_s
        self._draft(steps * self.running, k, curve)
        tokens = steps * self.running * (1.0 + sum(curve))
        for name, rise in zip(_COUNTERS[3:], (tokens, steps, tokens, 0.0), strict=True):
            self._values[name] += rise
        bucket = 1 << (max(1, round(self.running)) - 1).bit_length()
        for kind, share in (("decode", 1.0 - MIXED), ("mixed", MIXED)):
            cell = self._cell(bucket, k, kind)
            cell.steps += share * steps
            cell.seconds += share * seconds
            cell.requests += share * steps * self.running
        self._answer(names.TPOT[0], tokens / TOKENS, time_s / (1.0 + sum(curve)))
        self._answer(names.TTFT[0], tokens / TOKENS, TTFT_S * self._random.gauss(1.0, NOISE))

    def lines(self) -> Iterator[str]:
        """The samples as Prometheus reads them."""
        running = self.running
        gauges = (
            running, 0.0, running * CONTEXT / (BLOCKS * BLOCK_SIZE), 1.0, self.started_s, self.started_s,
            float(self.keeper.generation),
        )  # fmt: skip
        values = [*self._values.values(), *self._accepted, *self._drafted, *gauges]
        for name, counts in self._buckets.items():
            total = 0.0
            for count in counts:
                total += count
                values.append(total)
            values += [total, self._sums[name]]
        yield from (f"{prefix}{value:.6f}" for prefix, value in zip(self._prefixes, values, strict=True))
        for cell in self._cells.values():
            for prefix, value in zip(cell.prefixes, (cell.steps, cell.seconds, cell.requests), strict=True):
                yield f"{prefix}{value:.6f}"

    def _draft(self, drafts: float, k: int, curve: Sequence[float]) -> None:
        if not k:
            return
        for name, rise in zip(_COUNTERS[:3], (drafts, k * drafts, sum(curve) * drafts), strict=True):
            self._values[name] += rise
        for position, accepted in enumerate(curve):
            self._accepted[position] += drafts * accepted
            self._drafted[position] += drafts

    def _answer(self, name: str, requests: float, seconds: float) -> None:
        """Requests that took about so long: nine of ten within the bucket, the others in the next."""
        at = bisect_left(BOUNDS[name], seconds)
        counts = self._buckets[name]
        counts[at] += 0.9 * requests
        counts[min(at + 1, len(counts) - 1)] += 0.1 * requests
        self._sums[name] += requests * seconds

    def _cell(self, bucket: int, k: int, kind: str) -> Cell:
        key = (bucket, k, kind)
        if key not in self._cells:
            labels = {"engine": "0", "batch": str(bucket), "speculative_tokens": str(k), "kind": kind}
            steps, seconds, requests = (self._prefix(one[0], labels) for one in _STEPS)
            self._cells[key] = Cell((steps, seconds, requests))
        return self._cells[key]

    def _names(self) -> Iterator[str]:
        own, model = {"engine": "0"}, {"engine": "0", "model_name": self.service}
        yield from (self._prefix(name, model) for name in _COUNTERS)
        for name, labels in ((names.NUM_ACCEPTED_TOKENS_PER_POS[0], model), (names.DRAFT_TOKENS_PER_POS[0], own)):
            yield from (self._prefix(name, {**labels, "position": str(position)}) for position in range(CEILING))
        for name in (names.NUM_REQUESTS_RUNNING[0], names.NUM_REQUESTS_WAITING[0], names.KV_CACHE_USAGE[0]):
            yield self._prefix(name, model)
        yield self._prefix(names.CACHE_CONFIG[0], {**own, "num_gpu_blocks": str(BLOCKS), "block_size": str(BLOCK_SIZE)})
        yield self._prefix(names.PROCESS_START[0], {})
        yield self._prefix(names.CREATED[0], model)
        yield self._prefix(names.SCHEDULE_GENERATION[0], own)
        for name, bounds in BOUNDS.items():
            yield from (self._prefix(f"{name}_bucket", {**model, "le": f"{bound}"}) for bound in bounds)
            yield self._prefix(f"{name}_bucket", {**model, "le": "+Inf"})
            yield self._prefix(f"{name}_count", model)
            yield self._prefix(f"{name}_sum", model)

    def _prefix(self, name: str, labels: dict[str, str]) -> str:
        """A sample's line up to its value, with the labels that a PodMonitor of ours adds."""
        found = {
            **labels, "namespace": self.namespace, "pod": pod_name(self.service),
            "serving_outrider_dev_service": self.service, "serving_outrider_dev_track": "stable",
        }  # fmt: skip
        return f"{name}{{" + ",".join(f'{label}="{value}"' for label, value in found.items()) + "} "


_COUNTERS = (
    names.NUM_DRAFTS[0],
    names.NUM_DRAFT_TOKENS[0],
    names.NUM_ACCEPTED_TOKENS[0],
    names.GENERATION_TOKENS[0],
    f"{names.ITERATION_TOKENS[0]}_count",
    names.PROMPT_TOKENS[0],
    names.NUM_PREEMPTIONS[0],
)
_STEPS = (names.STEPS, names.STEP_SECONDS, names.STEP_REQUESTS)


def pod_name(service: str) -> str:
    """The one pod of a service."""
    return f"{service}-0"


def service_name(number: int) -> tuple[str, str]:
    """Namespace and name of a service: a hundred to a namespace, as to a page."""
    return f"scale-{number // PER_PAGE:02d}", f"chat-{number:04d}"


def page(engines: Sequence[Engine], now_s: float, *, moving: bool) -> str:
    """What one scrape of these engines reads."""
    lines: list[str] = []
    for engine in engines:
        engine.advance(now_s, moving=moving)
        lines += engine.lines()
    return "\n".join(lines) + "\n"
