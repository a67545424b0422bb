"""What one engine is to be: the input of admission and rendering, with every default filled in."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """One engine; seconds and fractions, as everywhere inside."""

    version: str | None
    """vLLM's version; None when only an image is known. It is then rendered for the version that Outrider knows
    best."""
    model: str
    revision: str | None = None
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
    rows: tuple[Row, ...] = ()
    """The schedule of the resource, which mode Fixed keeps; empty for one K at all batch sizes."""
    gpus: int = 1
    tensor_parallel_size: int = 1
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    gpu_memory_utilization: float | None = None
    """0 to 1; None for the engine's own rule."""
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
