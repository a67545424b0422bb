"""What one engine is to be: the input of admission and rendering, with every default filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outrider.core.schedule import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """The draft model of methods that have one; None leaves a setting to the engine."""

    model: str
    revision: str | None = None
    quantization: str | None = None
    tensor_parallel_size: int | None = None
    max_length: int | None = None
    """Tokens."""
    source: str = "hub"
    """Where the weights come from: ``hub``, ``volume``, ``image`` or ``object_store``."""
    path: str | None = None
    """Folder of the weights inside the container; None where the engine finds them by ``model``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramOptions:
    """How many tokens method ngram matches in the text so far, 1 to 64; None leaves a bound to the engine."""

    prompt_lookup_min: int | None = None
    prompt_lookup_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuffixOptions:
    """Bounds of the trees of method suffix; None leaves a bound to the engine."""

    max_tree_depth: int | None = None
    max_cached_requests: int | None = None
    max_spec_factor: float | None = None
    """Draft tokens for each token of the matched suffix."""
    min_token_probability: float | None = None
    """0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionSampling:
    """Which drafts are kept."""

    method: str
    """vLLM's word: ``standard``, ``block`` or ``fly``."""
    fly_window_size: int | None = None
    """Tokens; below the speculative tokens."""
    fly_entropy_threshold: float | None = None
    """0 to 10."""
    fly_entropy_top_k: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Adapters of the target; the drafter never has any."""

    max_adapters: int | None = None
    """Adapters in one batch, 1 to 64."""
    max_rank: int | None = None
    modules: tuple[tuple[str, str], ...] = ()
    """Name and place of each adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvTransfer:
    """Exchange of the KV cache with other engines."""

    connector: str
    """vLLM's name, such as ``NixlConnector``."""
    role: str
    """``producer``, ``consumer`` or ``both``."""
    load_failure_policy: str | None = None
    """``fail`` or ``recompute``."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """The connector's own settings, as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """One engine; seconds and fractions, as everywhere inside."""

    version: str | None
    """vLLM's version; None when only an image is known. It is then rendered for the version that Outrider knows
    best."""
    model: str
    revision: str | None = None
    model_source: str = "hub"
    """As `Drafter.source`."""
    model_path: str | None = None
    """As `Drafter.path`."""
    served_name: str
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    max_length: int | None = None
    """Longest context, tokens."""
    method: str
    """vLLM's word for the way to draft, such as ``eagle3``."""
    drafter: Drafter | None = None
    mode: str
    """``Adaptive``, ``Observe``, ``Fixed`` or ``Off``; Off starts the engine without speculation."""
    max_speculative_tokens: int
    """The ceiling, 1 to 16."""
    min_speculative_tokens: int = 0
    initial_speculative_tokens: int = 3
    """As wished; `outrider.engine.command_line.initial_schedule` finds the nearest that the engine has graphs for."""
    one_k: bool = False
    """Starts with the ceiling alone, though it might take a table."""
    rows: tuple[Row, ...] = ()
    """The schedule of the resource, which mode Fixed keeps; empty for one K at all batch sizes."""
    ngram: NgramOptions | None = None
    suffix: SuffixOptions | None = None
    heterogeneous_vocab: bool | None = None
    """Whether a draft model may have other tokens than the target."""
    adaptive_verification: bool | None = None
    """Whether dspark verifies as many drafts as look worth it."""
    draft_sampling: str | None = None
    """``greedy`` or ``probabilistic``."""
    draft_head_quantization: str | None = None
    """``fp8`` or ``nvfp4``."""
    rejection_sampling: RejectionSampling | None = None
    gpus: int = 1
    """Of one replica: tensor x pipeline x data."""
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    gpu_memory_utilization: float | None = None
    """0 to 1; None for the engine's own rule."""
    gpu_memory_bytes: float | None = None
    """Memory of one GPU, when known."""
    prefix_caching: bool | None = None
    chunked_prefill: bool | None = None
    lora: Lora | None = None
    structured_output_backend: str | None = None
    max_queued_requests: int | None = None
    max_queued_tokens: int | None = None
    kv_transfer: KvTransfer | None = None
    trust_remote_code: bool = False
    shutdown_timeout_s: int = 60
    startup_budget_s: int = 1800
    memory_bytes: float | None = None
    """Main memory of the container; None without a limit."""
    shared_memory_bytes: float = 0.0
    """Upper bound of /dev/shm, which counts against memory."""
    extra_args: tuple[str, ...] = ()
    extra_env: tuple[str, ...] = ()
    """Names of the user's own variables; their values are nobody's business here."""

    @property
    def speculates(self) -> bool:
        """Whether the engine starts with a drafter at all."""
        return self.mode != "Off"
