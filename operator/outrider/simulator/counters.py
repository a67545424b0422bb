"""What an engine counts, in vLLM's terms and the plugin's."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from outrider.simulator.request import RequestRecord

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

    @property
    def num_accepted_tokens(self) -> int:
        """Draft tokens kept by the target model."""
        return int(self.accepted_per_pos.sum())

    @property
    def num_draft_tokens(self) -> int:
        """Draft tokens proposed."""
        return int(self.drafted_per_pos.sum())

    def observe_drafts(self, requests: int, width: int, accepted_per_pos: NDArray[np.int64]) -> None:
        """A step verified ``width`` drafts of each of so many requests."""
        self.num_drafts += requests
        self.drafted_per_pos[:width] += requests
        self.accepted_per_pos[:width] += accepted_per_pos

    def observe_step(self, key: CellKey, seconds: float, requests: int, *, settled: bool) -> None:
        """A step ended. One that is not settled verified what an earlier K drafted, and belongs to no cell."""
        k = key.num_speculative_tokens
        self.steps_by_k[k] = self.steps_by_k.get(k, 0) + 1
        if settled:
            cell = self.cells.get(key)
            if cell is None:
                cell = self.cells[key] = StepCell()
            cell.steps += 1
            cell.seconds += seconds
            cell.seconds_squared += seconds * seconds
            cell.requests += requests
        for reader, longest in self.longest_step_s.items():
            if seconds > longest:
                self.longest_step_s[reader] = seconds

    def observe_request(self, record: RequestRecord) -> None:
        """A request ended. Aborted ones leave no trace: vLLM counts a request with its last output, and who hung up
        gets none."""
        if record.finish_reason == "abort":
            return
        self.finished[record.finish_reason] += 1
        request = record.request
        decode_s = record.finished_s - record.first_token_s
        for family, value in (
            ("e2e_request_latency_seconds", record.e2e_s),
            ("request_queue_time_seconds", record.scheduled_s - request.arrival_s),
            ("request_prefill_time_seconds", record.first_token_s - record.scheduled_s),
            ("request_decode_time_seconds", decode_s),
            ("request_inference_time_seconds", record.finished_s - record.scheduled_s),
            ("request_time_per_output_token_seconds", record.tpot_s or 0.0),
            ("request_prompt_tokens", request.prompt_tokens),
            ("request_prefill_kv_computed_tokens", request.prompt_tokens),
            ("request_generation_tokens", record.output_tokens),
            ("request_max_num_generation_tokens", record.output_tokens),
            ("request_params_max_tokens", request.output_tokens),
            ("request_params_n", 1),
            ("request_num_preemptions", record.num_preemptions),
        ):
            self.histograms[f"vllm:{family}"].observe(value)

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
