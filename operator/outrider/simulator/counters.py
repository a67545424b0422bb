"""What an engine counts, in vLLM's terms and the plugin's."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from outrider.simulator.batch import Verified
from outrider.simulator.request import RequestRecord

STALL_S = 1.0  # of the card's own time; decode steps take 7 to 60 ms

FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")

_TPOT = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
    *(160.0, 640.0, 2560.0),
)
_LATENCY = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0),
    *(1920.0, 7680.0),
)
_PARAMS_N = (1.0, 2.0, 5.0, 10.0, 20.0)
_ITERATION = tuple(float(bound) for bound in (1, *(2**power for power in range(3, 15))))
_PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)

_DEFAULT_BOUNDS: Mapping[str, tuple[float, ...]] = {
    "time_to_first_token": _TTFT,
    "inter_token_latency": _TPOT,
    "request_latency": _LATENCY,
    "iteration_tokens": _ITERATION,
    "request_params_n": _PARAMS_N,
    "request_num_preemptions": _PREEMPTIONS,
}
_HISTOGRAMS: Mapping[str, tuple[str, ...]] = {
    "time_to_first_token": ("time_to_first_token_seconds",),
    "inter_token_latency": ("inter_token_latency_seconds", "request_time_per_output_token_seconds"),
    "request_latency": (
        *("e2e_request_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds"),
        *("request_prefill_time_seconds", "request_decode_time_seconds"),
    ),
    "iteration_tokens": ("iteration_tokens_total",),
    "request_params_n": ("request_params_n",),
    "request_num_preemptions": ("request_num_preemptions",),
    "request_tokens": (
        *("request_prompt_tokens", "request_generation_tokens", "request_max_num_generation_tokens"),
        *("request_params_max_tokens", "request_prefill_kv_computed_tokens"),
    ),
}
"""Metrics by bucket family, which is what ``--custom-histogram-buckets`` names: a family shares its bounds."""
BUCKET_FAMILIES = frozenset({*_HISTOGRAMS, "kv_cache_residency"})
"""All families of vLLM; it exports nothing of the last one unless it is told to sample its cache."""

_OF_REQUESTS = (
    *("e2e_request_latency_seconds", "request_queue_time_seconds", "request_prefill_time_seconds"),
    *("request_decode_time_seconds", "request_inference_time_seconds", "request_time_per_output_token_seconds"),
    *("request_prompt_tokens", "request_prefill_kv_computed_tokens", "request_generation_tokens"),
    *("request_max_num_generation_tokens", "request_params_max_tokens", "request_params_n", "request_num_preemptions"),
)
"""What `EngineCounters.observe_request` observes, in its order."""


@dataclass(slots=True)
class Histogram:
    """Counts by upper bound, as Prometheus keeps them."""

    bounds: Sequence[float]
    """Ascending, without the infinite one."""
    counts: list[int] = field(init=False)
    """Observations by bucket, not cumulative; the last one is above every bound."""
    sum: float = 0.0

    def __post_init__(self) -> None:
        """Start empty."""
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Count the same value one or several times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def observe_all(self, values: Sequence[float], times: int = 1) -> None:
        """Count several values, each of them so many times, with the same sum as one after the other."""
        first = bisect_left(self.bounds, min(values))
        if first == bisect_left(self.bounds, max(values)):
            self.counts[first] += times * len(values)
        else:
            for value in values:
                self.counts[bisect_left(self.bounds, value)] += times
        for value in values:
            self.sum += value * times

    def cumulative(self) -> list[int]:
        """The values of the ``_bucket`` series, the infinite bound last."""
        return list(accumulate(self.counts))


@dataclass(frozen=True, slots=True)
class CellKey:
    """Which steps the plugin counts together."""

    batch: int
    """Upper bound of the bucket of requests in the step, a power of two."""
    num_speculative_tokens: int
    mixed: bool

    @classmethod
    def of(cls, requests: int, num_speculative_tokens: int, *, mixed: bool) -> CellKey:
        """Where a step of so many requests belongs."""
        return cls(1 << (requests - 1).bit_length(), num_speculative_tokens, mixed)


@dataclass(slots=True)
class StepCell:
    """Steps of one kind."""

    steps: int = 0
    seconds: float = 0.0
    seconds_squared: float = 0.0
    requests: int = 0


@dataclass(slots=True)
class EngineCounters:
    """Everything that only grows; durations are seconds of the engine's clock."""

    max_speculative_tokens: int
    bounds: Mapping[str, Sequence[float]]
    stall_s: float = STALL_S
    """A longer step is a stall."""
    num_drafts: int = 0
    """Requests and steps that verified at least one draft token."""
    accepted_per_pos: NDArray[np.int64] = field(init=False)
    drafted_per_pos: NDArray[np.int64] = field(init=False)
    prompt_tokens: int = 0
    generation_tokens: int = 0
    bonus_tokens: int = 0
    """Tokens sampled by the target itself: one for each request and step that gave output."""
    discarded_tokens: int = 0
    """Verified past the end of an answer, hence never sent; vLLM counts them as accepted all the same."""
    num_preemptions: int = 0
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FINISH_REASONS, 0))
    histograms: dict[str, Histogram] = field(init=False)
    time_to_first_token: Histogram = field(init=False)
    inter_token_latency: Histogram = field(init=False)
    iteration_tokens: Histogram = field(init=False)
    _of_requests: list[Histogram] = field(init=False)
    cells: dict[CellKey, StepCell] = field(default_factory=dict)
    steps_by_k: dict[int, int] = field(default_factory=dict)
    stalls: int = 0
    stall_seconds: float = 0.0
    longest_step_s: dict[str, float] = field(default_factory=dict)
    """By reader: each one sees the longest step since its own last look."""

    def __post_init__(self) -> None:
        """Start at zero, every position and histogram present from the start as in vLLM."""
        self.accepted_per_pos = np.zeros(self.max_speculative_tokens, dtype=np.int64)
        self.drafted_per_pos = np.zeros(self.max_speculative_tokens, dtype=np.int64)
        self.histograms = {family: Histogram(bounds) for family, bounds in self.bounds.items()}
        self.time_to_first_token = self.histograms["vllm:time_to_first_token_seconds"]
        self.inter_token_latency = self.histograms["vllm:inter_token_latency_seconds"]
        self.iteration_tokens = self.histograms["vllm:iteration_tokens_total"]
        self._of_requests = [self.histograms[f"vllm:{family}"] for family in _OF_REQUESTS]

    @property
    def num_accepted_tokens(self) -> int:
        """Draft tokens kept by the target model."""
        return int(self.accepted_per_pos.sum())

    @property
    def num_draft_tokens(self) -> int:
        """Draft tokens proposed."""
        return int(self.drafted_per_pos.sum())

    def observe_decoding(self, verified: Verified, width: int, size: int, seconds: Sequence[float]) -> None:
        """``size`` requests verified ``width`` drafts each in steps of these lengths; ``verified`` sums over them."""
        requests = size * len(seconds)
        if width:
            self.num_drafts += requests
            self.drafted_per_pos[:width] += requests
            self.accepted_per_pos[:width] += verified.accepted_per_pos
        self.generation_tokens += verified.num_emitted
        self.bonus_tokens += requests
        self.discarded_tokens += verified.num_discarded
        # One sample a request and step, not a token: every decoding request had output when its step began.
        self.inter_token_latency.observe_all(seconds, size)

    def observe_steps(self, key: CellKey, seconds: Sequence[float], requests: int, *, settled: bool = True) -> None:
        """Steps of one kind ended. Not settled: it verified what an earlier K drafted, and belongs to no cell."""
        k = key.num_speculative_tokens
        self.steps_by_k[k] = self.steps_by_k.get(k, 0) + len(seconds)
        if settled:
            cell = self.cells.get(key)
            if cell is None:
                cell = self.cells[key] = StepCell()
            cell.steps += len(seconds)
            cell.requests += len(seconds) * requests
            for one in seconds:  # in their order: the sums do not depend on how many came at once
                cell.seconds += one
                cell.seconds_squared += one * one
        longest = max(seconds)
        for reader, before in self.longest_step_s.items():
            if longest > before:
                self.longest_step_s[reader] = longest
        if longest > self.stall_s:
            stalls = [one for one in seconds if one > self.stall_s]
            self.stalls += len(stalls)
            self.stall_seconds += sum(stalls)

    def observe_request(self, record: RequestRecord) -> None:
        """A request ended. Aborted ones leave no trace: vLLM counts a request with its last output, and who hung up
        gets none."""
        if record.finish_reason == "abort":
            return
        self.finished[record.finish_reason] += 1
        request = record.request
        for histogram, value in zip(
            self._of_requests,
            (
                record.e2e_s,
                record.scheduled_s - request.arrival_s,
                record.first_token_s - record.scheduled_s,
                record.finished_s - record.first_token_s,
                record.finished_s - record.scheduled_s,
                record.tpot_s or 0.0,
                request.prompt_tokens,
                request.prompt_tokens,
                record.output_tokens,
                record.output_tokens,
                request.output_tokens,
                1,
                record.num_preemptions,
            ),
            strict=True,
        ):
            histogram.counts[bisect_left(histogram.bounds, value)] += 1
            histogram.sum += value

    def take_longest_step_s(self, reader: str) -> float:
        """The longest step since this reader's last call, 0 if none ended; the first call starts its watch."""
        longest = self.longest_step_s.get(reader, 0.0)
        self.longest_step_s[reader] = 0.0
        return longest

    def steps_by_speculative_tokens(self) -> dict[int, int]:
        """Steps by the K they scheduled, ascending."""
        return dict(sorted(self.steps_by_k.items()))


def histogram_bounds(max_model_len: int, custom: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, ...]]:
    """Upper bounds by metric name: vLLM's own, replaced where ``custom`` has the metric's bucket family.

    Raises:
        ValueError: vLLM has no such family.
    """
    unknown = sorted(set(custom) - BUCKET_FAMILIES)
    if unknown:
        raise ValueError(f"unknown bucket family {unknown[0]!r}; known families: {sorted(BUCKET_FAMILIES)}")
    lengths = [float(step * 10**power) for power in range(len(str(max_model_len))) for step in (1, 2, 5)]
    bounds = {
        **_DEFAULT_BOUNDS,
        "request_tokens": [length for length in lengths if length <= max_model_len],
        **custom,
    }
    return {f"vllm:{name}": tuple(bounds[family]) for family, names in _HISTOGRAMS.items() for name in names}
