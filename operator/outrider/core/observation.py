"""What a service's engines did in a window of time, from raw samples.

Counters become increases with reset detection, gauges become means over the samples of the window. Sums run over all
engines of all pods (sum over sum, never a mean of ratios), so neither the order of the series nor the number of engines
in a pod matters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from outrider.core import engine_metrics as names
from outrider.core.counters import increase
from outrider.core.ended import Ended, read_ended
from outrider.core.engine_reader import EngineKey, EngineReader, EngineSeries, in_order, whole
from outrider.core.histogram import Histogram, read_histogram
from outrider.core.series import Missing, Series
from outrider.core.steps import StepCell, Steps, decode_steps, read_cells, read_steps

__all__ = [
    "EngineWindow",
    "Histogram",
    "Observation",
    "StepCell",
    "increase",
    "observe",
    "observe_since",
    "observe_windows",
]


MAX_POSITIONS = 64
"""Draft positions that are read; no engine drafts further, and a label must not decide how much memory we take."""


@dataclass(frozen=True, slots=True)
class EngineWindow:
    """One engine in the window; gauges are means over its samples."""

    pod: str
    engine: str
    running: float
    waiting: float
    kv_cache_usage: float | None
    """Fraction, 0 to 1."""
    kv_cache_tokens: float | None
    schedule_generation: int | None
    since_s: float = 0.0
    """Time of the oldest sample that this rests on."""
    steps: Mapping[int, float] = field(default_factory=dict)
    """Those without prefill by K, where our plugin counts them."""

    @property
    def in_flight(self) -> float:
        """Requests running or waiting."""
        return self.running + self.waiting


@dataclass(frozen=True, slots=True)
class Observation:
    """All engines of a service between two moments; per-position tuples start at the first draft token."""

    since_s: float
    until_s: float
    engines: tuple[EngineWindow, ...]
    num_drafts: float = 0.0
    num_draft_tokens: float = 0.0
    num_accepted_tokens: float = 0.0
    """At most the draft tokens."""
    drafted_per_pos: tuple[float, ...] = ()
    accepted_per_pos: tuple[float, ...] = ()
    generation_tokens: float = 0.0
    prompt_tokens: float = 0.0
    num_preemptions: float = 0.0
    cells: tuple[StepCell, ...] = ()
    tpot: Histogram = field(default_factory=Histogram)
    ttft: Histogram = field(default_factory=Histogram)
    ended: Ended = field(default_factory=Ended)
    left_out: tuple[Missing, ...] = ()
    """Why engines that have series are not among ``engines``, an entry each."""

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return self.until_s - self.since_s

    @property
    def running(self) -> float:
        """Requests running, summed over the engines."""
        return sum(engine.running for engine in self.engines)

    @property
    def waiting(self) -> float:
        """Requests waiting, summed over the engines."""
        return sum(engine.waiting for engine in self.engines)

    @property
    def in_flight(self) -> float:
        """Requests running or waiting, summed over the engines."""
        return self.running + self.waiting

    @property
    def cached_tokens(self) -> float:
        """Tokens in the KV caches of all engines; engines that do not tell count as empty."""
        return sum((engine.kv_cache_usage or 0.0) * (engine.kv_cache_tokens or 0.0) for engine in self.engines)

    @property
    def batch(self) -> float:
        """Requests in a decode step, averaged over the steps of all engines; without step cells, over time and
        engines."""
        steps = sum(cell.steps for cell in self.cells)
        if steps > 0:
            return sum(cell.requests for cell in self.cells) / steps
        return self.running / len(self.engines)

    @property
    def median_batch(self) -> int:
        """The batch size that half of the steps stay at or under, from the mean of its bucket; at least 1."""
        steps = sum(cell.steps for cell in self.cells)
        if steps <= 0:
            return max(1, round(self.batch))
        seen = 0.0
        for cell in sorted(self.cells, key=lambda cell: cell.mean_batch):
            seen += cell.steps
            if seen >= steps / 2:
                break
        return max(1, round(cell.mean_batch))

    @property
    def kv_cache_usage(self) -> float | None:
        """The fullest engine's share of KV cache in use; None where no engine reports it."""
        known = [engine.kv_cache_usage for engine in self.engines if engine.kv_cache_usage is not None]
        return max(known) if known else None

    @property
    def imbalance(self) -> float:
        """Requests in flight on the fullest engine over their mean: 1 when even, the number of engines when one holds
        all."""
        mean = self.in_flight / len(self.engines)
        return self.busiest.in_flight / mean if mean > 0 else 1.0

    @property
    def busiest(self) -> EngineWindow:
        """The engine with most requests in flight."""
        return max(self.engines, key=lambda engine: engine.in_flight)

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over drafted tokens, 0 to 1; None without drafts, for then it is unknown and not zero."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens > 0 else None

    @property
    def acceptance_length(self) -> float | None:
        """Tokens a request and step as they came, a mixture of all K in the window; at least 1, None without drafts."""
        return 1.0 + self.num_accepted_tokens / self.num_drafts if self.num_drafts > 0 else None


def observe(
    series: Iterable[Series],
    since_s: float,
    until_s: float,
    *,
    pods: Collection[str] | None = None,
    stale_after_s: float = 30.0,
) -> Observation | Missing:
    """Condense the samples of one service's engines between two moments.

    ``pods`` limits the view to these pods (the ready ones of a track). An engine is left out when its newest sample is
    older than ``stale_after_s`` (``MetricsStale``), when its gauges were left behind (``StaleGauges``), or when it has
    no two samples to compare (``TooFewSamples``). Missing when there are no series (``NoSeries``) or all engines are
    left out.
    """
    return observe_since(series, (since_s,), until_s, pods=pods, stale_after_s=stale_after_s)[0]


def observe_since(
    series: Iterable[Series],
    moments_s: Sequence[float],
    until_s: float,
    *,
    pods: Collection[str] | None = None,
    stale_after_s: float = 30.0,
) -> list[Observation | Missing]:
    """The same for several windows of one end, each from one of the moments; equal ones are condensed once."""
    engines = _engines(series, pods)
    found = {since_s: _condense(engines, since_s, until_s, stale_after_s) for since_s in set(moments_s)}
    return [found[since_s] for since_s in moments_s]


def observe_windows(
    series: Iterable[Series], edges_s: Sequence[float], *, stale_after_s: float = 30.0
) -> list[Observation | Missing]:
    """The same for windows that follow one another, from each edge to the next."""
    engines = _engines(series, None)
    return [_condense(engines, since_s, until_s, stale_after_s) for since_s, until_s in pairwise(edges_s)]


def _engines(series: Iterable[Series], pods: Collection[str] | None) -> list[EngineSeries]:
    by_engine: dict[EngineKey, list[Series]] = defaultdict(list)
    starts: dict[str, list[Series]] = defaultdict(list)
    servers: dict[str, list[Series]] = defaultdict(list)
    for one in series:
        pod = one.labels.get("pod", "")
        if pods is not None and pod not in pods:
            continue
        if one.name in names.PROCESS_START:
            starts[pod].append(one)
        elif one.name in names.HTTP_REQUESTS:
            servers[pod].append(one)
        else:
            by_engine[pod, one.labels.get("engine", "")].append(one)
    # What the server of several engines counts is read once, with the first of them.
    return [in_order(key, [*many, *servers.pop(key[0], ())], starts[key[0]]) for key, many in sorted(by_engine.items())]


def _condense(
    engines: Sequence[EngineSeries], since_s: float, until_s: float, stale_after_s: float
) -> Observation | Missing:
    if not engines:
        return Missing("NoSeries", "Prometheus has no series of this service's ready pods")
    usable: list[EngineReader] = []
    left_out: list[Missing] = []
    for engine in engines:
        reader = EngineReader(engine, since_s, until_s)
        fault = _fault(reader, until_s, stale_after_s)
        if fault is None:
            usable.append(reader)
        else:
            left_out.append(fault)
    if not usable:
        return _worst(left_out)
    return _merge(usable, since_s, until_s, tuple(left_out))


_FAULTS = ("StaleGauges", "TooFewSamples", "MetricsStale")
"""Reasons to leave an engine out, the most telling first."""


def _fault(reader: EngineReader, until_s: float, stale_after_s: float) -> Missing | None:
    if reader.newest_s < until_s - stale_after_s:
        return Missing("MetricsStale", f"{reader}: the newest sample is older than {stale_after_s:.0f} s")
    if reader.increase(names.GENERATION_TOKENS) is None:
        return Missing("TooFewSamples", f"{reader}: no two samples in the window yet")
    return reader.standstill()


def _worst(left_out: Sequence[Missing]) -> Missing:
    worst = min(left_out, key=lambda fault: _FAULTS.index(fault.reason))
    if len(left_out) == 1:
        return worst
    return Missing(worst.reason, f"{worst.message} (none of {len(left_out)} engines can be read)")


def _merge(
    readers: Sequence[EngineReader], since_s: float, until_s: float, left_out: tuple[Missing, ...]
) -> Observation:
    def total(aliases: Sequence[str]) -> float:
        return sum(reader.increase(aliases) or 0.0 for reader in readers)

    drafted: dict[int, float] = defaultdict(float)
    accepted: dict[int, float] = defaultdict(float)
    for reader in readers:
        by_position = reader.increases(names.NUM_ACCEPTED_TOKENS_PER_POS, _position)
        for position, count in by_position.items():
            accepted[position] += count
        for position, count in _drafted_per_position(reader, by_position).items():
            drafted[position] += count
    depth = 1 + max((position for position, count in drafted.items() if count > 0), default=-1)
    draft_tokens = total(names.NUM_DRAFT_TOKENS)
    counted = [read_steps(reader) for reader in readers]
    return Observation(
        since_s=since_s,
        until_s=until_s,
        engines=tuple(map(_window, readers, counted)),
        num_drafts=total(names.NUM_DRAFTS),
        num_draft_tokens=draft_tokens,
        num_accepted_tokens=min(total(names.NUM_ACCEPTED_TOKENS), draft_tokens),
        drafted_per_pos=tuple(drafted[position] for position in range(depth)),
        accepted_per_pos=tuple(min(accepted[position], drafted[position]) for position in range(depth)),
        generation_tokens=total(names.GENERATION_TOKENS),
        prompt_tokens=total(names.PROMPT_TOKENS),
        num_preemptions=total(names.NUM_PREEMPTIONS),
        cells=read_cells(readers, counted),
        tpot=read_histogram(readers, names.TPOT),
        ttft=read_histogram(readers, names.TTFT),
        ended=read_ended(readers),
        left_out=left_out,
    )


def _window(reader: EngineReader, steps: Steps) -> EngineWindow:
    since_s, kv_cache_usage = reader.begins_s, reader.mean(names.KV_CACHE_USAGE)
    generation = reader.last(names.SCHEDULE_GENERATION, since_s)
    return EngineWindow(
        pod=reader.key[0],
        engine=reader.key[1],
        running=reader.mean(names.NUM_REQUESTS_RUNNING) or 0.0,
        waiting=reader.mean(names.NUM_REQUESTS_WAITING) or 0.0,
        kv_cache_usage=None if kv_cache_usage is None else min(1.0, kv_cache_usage),
        kv_cache_tokens=reader.label_product(names.CACHE_CONFIG, "num_gpu_blocks", "block_size"),
        schedule_generation=None if generation is None else int(generation),
        since_s=since_s,
        steps=decode_steps(steps),
    )


def _drafted_per_position(reader: EngineReader, accepted: Mapping[int, float]) -> dict[int, float]:
    """Drafts that proposed each position: from our plugin, else from drafts and draft tokens if K was constant.

    Accepted at a position over *all* drafts reads too low as soon as K varied: a draft of one token cannot be accepted
    at the third. A window in which draft tokens are no whole multiple of drafts, or in which tokens beyond it were
    accepted, had several K and gives nothing without the plugin.
    """
    exported = reader.increases(names.DRAFT_TOKENS_PER_POS, _position)
    if exported:
        return exported
    drafts, tokens = reader.increase(names.NUM_DRAFTS), reader.increase(names.NUM_DRAFT_TOKENS)
    if not drafts or not tokens or tokens > MAX_POSITIONS * drafts:
        return {}
    k = round(tokens / drafts)
    constant = abs(tokens / drafts - k) < 0.01  # n-gram proposals that come out short stay under one in a hundred here
    deeper = any(count > 0 for position, count in accepted.items() if position >= k)
    return dict.fromkeys(range(k), drafts) if constant and not deeper else {}


def _position(labels: Mapping[str, str]) -> int | None:
    position = whole(labels.get("position", ""))
    return position if position is not None and position < MAX_POSITIONS else None
