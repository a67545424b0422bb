"""What a service's engines did in a window of time, from raw samples.

Counters become increases with reset detection, gauges become means over the samples of the window. Sums run over all
engines of all pods (sum over sum, never a mean of ratios), so neither the order of the series nor the number of engines
in a pod matters.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from outrider.core import engine_metrics as names
from outrider.core.series import Missing, Series

Samples = tuple[tuple[float, float], ...]
EngineKey = tuple[str, str]
"""Pod name and engine (data-parallel rank)."""


@dataclass(frozen=True, slots=True)
class StepCell:
    """Steps of one batch bucket, K and kind: their number, their time and the requests in them."""

    batch_bucket: int
    """Upper bound of the bucket, a power of two."""
    num_speculative_tokens: int
    mixed: bool
    """Whether the steps also ran prefill."""
    steps: float
    seconds: float
    requests: float

    @property
    def mean_batch(self) -> float:
        """Requests a step."""
        return self.requests / self.steps

    @property
    def step_time_s(self) -> float:
        """Seconds a step."""
        return self.seconds / self.steps


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observations of a window: ``buckets`` are ``(upper bound, cumulative count)``, ascending, the last bound
    infinite."""

    count: float = 0.0
    sum: float = 0.0
    buckets: tuple[tuple[float, float], ...] = ()

    @property
    def mean(self) -> float | None:
        """None without observations."""
        return self.sum / self.count if self.count > 0 else None

    def quantile(self, share: float) -> float | None:
        """Interpolated within its bucket; the last finite bound if it lies beyond; None without observations."""
        if self.count <= 0 or not self.buckets:
            return None
        rank = share * self.buckets[-1][1]
        lower, below = 0.0, 0.0
        for upper, cumulative in self.buckets:
            if cumulative >= rank and cumulative > below:
                return (
                    lower if upper == float("inf") else lower + (upper - lower) * (rank - below) / (cumulative - below)
                )
            lower, below = (lower if upper == float("inf") else upper), cumulative
        return lower

    def share_at_most(self, bound: float) -> float | None:
        """Share of observations up to ``bound``, interpolated within its bucket; None without observations."""
        if self.count <= 0 or not self.buckets:
            return None
        lower, below, total = 0.0, 0.0, self.buckets[-1][1]
        for upper, cumulative in self.buckets:
            if bound < upper:
                within = 0.0 if upper == float("inf") else (bound - lower) / (upper - lower)
                return (below + (cumulative - below) * within) / total
            lower, below = upper, cumulative
        return 1.0


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


@dataclass(frozen=True, slots=True)
class Observation:
    """All engines of a service between two moments; per-position tuples start at the first draft token."""

    since_s: float
    until_s: float
    engines: tuple[EngineWindow, ...]
    num_drafts: float = 0.0
    drafted_per_pos: tuple[float, ...] = ()
    accepted_per_pos: tuple[float, ...] = ()
    generation_tokens: float = 0.0
    prompt_tokens: float = 0.0
    num_preemptions: float = 0.0
    cells: tuple[StepCell, ...] = ()
    tpot: Histogram = field(default_factory=Histogram)
    ttft: Histogram = field(default_factory=Histogram)

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


def increase(samples: Samples, since_s: float, until_s: float, restarts: Sequence[float] = ()) -> float | None:
    """How much a counter rose in ``(since_s, until_s]``; None with fewer than two samples to compare.

    The base is the last sample at or before ``since_s``, so that neighbouring windows neither lose nor repeat a step. A
    value that falls, or a process start (``restarts``, times) between two samples, means that the counter began again
    at zero: the second also catches a counter that has overtaken its old value by the next scrape.
    """
    first = max(0, bisect_right(samples, (since_s, float("inf"))) - 1)
    last = bisect_right(samples, (until_s, float("inf")))
    inside = samples[first:last]
    if len(inside) < 2:
        return None
    total = 0.0
    for (before_s, before), (after_s, after) in pairwise(inside):
        restarted = any(before_s < start <= after_s for start in restarts)
        total += after if restarted or after < before else after - before
    return total


def observe(
    series: Iterable[Series],
    since_s: float,
    until_s: float,
    *,
    pods: Collection[str] | None = None,
    stale_after_s: float = 30.0,
) -> Observation | Missing:
    """Condense the samples of one service's engines between two moments.

    ``pods`` limits the view to these pods (the ready ones of a track). Missing when no engine has samples
    (``NoSeries``), none has a sample younger than ``stale_after_s`` (``MetricsStale``), or none has two to compare
    (``TooFewSamples``).
    """
    by_engine: dict[EngineKey, list[Series]] = defaultdict(list)
    starts: dict[str, list[float]] = defaultdict(list)
    for one in series:
        pod = one.labels.get("pod", "")
        if pods is not None and pod not in pods:
            continue
        if one.name in names.PROCESS_START:
            starts[pod] += [value for _, value in one.samples]
        elif "engine" in one.labels:
            by_engine[pod, one.labels["engine"]].append(one)
    if not by_engine:
        return Missing("NoSeries", "Prometheus has no series of this service's ready pods")
    newest = max(one.last[0] for many in by_engine.values() for one in many)
    if newest < until_s - stale_after_s:
        return Missing("MetricsStale", f"the newest sample is older than {stale_after_s:.0f} s")
    windows = [
        _EngineReader(key, many, sorted(set(starts[key[0]])), since_s, until_s)
        for key, many in sorted(by_engine.items())
    ]
    usable = [window for window in windows if window.increase(names.GENERATION_TOKENS) is not None]
    if not usable:
        return Missing("TooFewSamples", "no engine has two samples in the window yet")
    return _merge(usable, since_s, until_s)


class _EngineReader:
    """Looks the families of one engine up by the table of names."""

    def __init__(
        self, key: EngineKey, series: Sequence[Series], restarts: Sequence[float], since_s: float, until_s: float
    ) -> None:
        self.key = key
        self._by_name: dict[str, list[Series]] = defaultdict(list)
        for one in series:
            self._by_name[one.name].append(one)
        self._restarts, self._since_s, self._until_s = restarts, since_s, until_s

    def family(self, aliases: Sequence[str], suffix: str = "") -> list[Series]:
        """The series of the first name that this engine has."""
        return next((self._by_name[name + suffix] for name in aliases if name + suffix in self._by_name), [])

    def rise(self, one: Series) -> float | None:
        return increase(one.samples, self._since_s, self._until_s, self._restarts)

    def increase(self, aliases: Sequence[str], suffix: str = "") -> float | None:
        known = [rise for one in self.family(aliases, suffix) if (rise := self.rise(one)) is not None]
        return sum(known) if known else None

    def mean(self, aliases: Sequence[str]) -> float | None:
        """Mean of a gauge over the window's samples, summed over the first name's series; None if there are none."""
        means = []
        for one in self.family(aliases):
            inside = [value for time_s, value in one.samples if self._since_s < time_s <= self._until_s]
            if inside:
                means.append(sum(inside) / len(inside))
        return sum(means) if means else None

    def last(self, aliases: Sequence[str]) -> float | None:
        family = self.family(aliases)
        return family[0].last[1] if family else None

    def by_label(self, aliases: Sequence[str], label: str, suffix: str = "") -> dict[str, float]:
        risen: dict[str, float] = defaultdict(float)
        for one in self.family(aliases, suffix):
            if label in one.labels and (rise := self.rise(one)) is not None:
                risen[one.labels[label]] += rise
        return risen

    def kv_cache_tokens(self) -> float | None:
        for one in self.family(names.CACHE_CONFIG):
            try:
                return float(one.labels["num_gpu_blocks"]) * float(one.labels["block_size"])
            except (KeyError, ValueError):
                return None
        return None

    def window(self) -> EngineWindow:
        generation = self.last(names.SCHEDULE_GENERATION)
        return EngineWindow(
            pod=self.key[0],
            engine=self.key[1],
            running=self.mean(names.NUM_REQUESTS_RUNNING) or 0.0,
            waiting=self.mean(names.NUM_REQUESTS_WAITING) or 0.0,
            kv_cache_usage=self.mean(names.KV_CACHE_USAGE),
            kv_cache_tokens=self.kv_cache_tokens(),
            schedule_generation=None if generation is None else int(generation),
        )


def _merge(readers: Sequence[_EngineReader], since_s: float, until_s: float) -> Observation:
    def total(aliases: Sequence[str]) -> float:
        return sum(reader.increase(aliases) or 0.0 for reader in readers)

    drafted: dict[int, float] = defaultdict(float)
    accepted: dict[int, float] = defaultdict(float)
    for reader in readers:
        for position, count in _drafted_per_position(reader).items():
            drafted[position] += count
        for label, count in reader.by_label(names.NUM_ACCEPTED_TOKENS_PER_POS, "position").items():
            accepted[int(label)] += count
    depth = 1 + max((position for position, count in drafted.items() if count > 0), default=-1)
    return Observation(
        since_s=since_s,
        until_s=until_s,
        engines=tuple(reader.window() for reader in readers),
        num_drafts=total(names.NUM_DRAFTS),
        drafted_per_pos=tuple(drafted[position] for position in range(depth)),
        accepted_per_pos=tuple(min(accepted[position], drafted[position]) for position in range(depth)),
        generation_tokens=total(names.GENERATION_TOKENS),
        prompt_tokens=total(names.PROMPT_TOKENS),
        num_preemptions=total(names.NUM_PREEMPTIONS),
        cells=_cells(readers),
        tpot=_histogram(readers, names.TPOT),
        ttft=_histogram(readers, names.TTFT),
    )


def _drafted_per_position(reader: _EngineReader) -> dict[int, float]:
    """Drafts that proposed each position: from our plugin, else from drafts and draft tokens if K was constant.

    Accepted at a position over *all* drafts reads too low as soon as K varied: a draft of one token cannot be accepted
    at the third. A window in which draft tokens are no whole multiple of drafts had several K and gives nothing without
    the plugin.
    """
    exported = reader.by_label(names.DRAFT_TOKENS_PER_POS, "position")
    if exported:
        return {int(position): count for position, count in exported.items()}
    drafts, tokens = reader.increase(names.NUM_DRAFTS), reader.increase(names.NUM_DRAFT_TOKENS)
    if not drafts or not tokens:
        return {}
    k = round(tokens / drafts)
    constant = abs(tokens / drafts - k) < 0.01  # n-gram proposals that come out short stay under one in a hundred here
    return dict.fromkeys(range(k), drafts) if constant else {}


def _cells(readers: Sequence[_EngineReader]) -> tuple[StepCell, ...]:
    sums: dict[tuple[int, int, bool], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for reader in readers:
        for column, aliases in enumerate((names.STEPS, names.STEP_SECONDS, names.STEP_REQUESTS)):
            for one in reader.family(aliases):
                rise = reader.rise(one)
                if rise is not None:
                    sums[_cell_key(one.labels)][column] += rise
    return tuple(
        StepCell(bucket, k, mixed, steps, seconds, requests)
        for (bucket, k, mixed), (steps, seconds, requests) in sorted(sums.items())
        if steps > 0 and seconds > 0 and requests > 0
    )


def _cell_key(labels: Mapping[str, str]) -> tuple[int, int, bool]:
    return int(labels["batch"]), int(labels["speculative_tokens"]), labels["kind"] == "mixed"


def _histogram(readers: Sequence[_EngineReader], aliases: Sequence[str]) -> Histogram:
    buckets: dict[float, float] = defaultdict(float)
    for reader in readers:
        for bound, count in reader.by_label(aliases, "le", "_bucket").items():
            buckets[float(bound)] += count
    return Histogram(
        count=sum(reader.increase(aliases, "_count") or 0.0 for reader in readers),
        sum=sum(reader.increase(aliases, "_sum") or 0.0 for reader in readers),
        buckets=tuple(sorted(buckets.items())),
    )
