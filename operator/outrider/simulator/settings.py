"""What a container's command line and environment make of an engine, resolved and checked.

Built by `command_line.parse`, or directly where no container is involved (fleet replay, tests).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.core.schedule import Schedule, constant

CARD_GIB = 79.6  # what the driver reports of an 80 GB H100
WEIGHTS_GIB = 15.5  # 8B parameters in 16 bits, and one drafter layer
ACTIVATIONS_GIB = 5.0  # peak of the memory profile, and the graphs
BLOCK_SIZE = 16  # tokens a KV block
BLOCK_MIB = 2.0  # 16 tokens x 32 layers x 8 KV heads x 128 x (K and V) x 2 bytes
CAPTURE_LIMIT = 512  # tokens; vLLM's default ceiling of CUDA-graph sizes on an H100


@dataclass(frozen=True, slots=True)
class Speculation:
    """The drafter and the table it starts with."""

    method: str
    max_speculative_tokens: int
    """The ceiling, fixed for the life of the engine: at least 1."""
    table: Schedule | None
    """The start-up table; None: K is the ceiling at every batch size, and nothing can change it."""

    named: tuple[int, ...] = ()
    """Every K of the table as it was given, where ranges past the largest batch were cut from it."""
    draft: str = field(default="", compare=False)
    """The draft's name; empty for a method without one."""

    @property
    def values(self) -> tuple[int, ...]:
        """The K that have CUDA graphs, ascending."""
        if self.table is None:
            return (self.max_speculative_tokens,)
        return self.named or self.table.values


@dataclass(frozen=True, slots=True)
class Plugin:
    """The runtime plugin's part of the environment."""

    admin_port: int = 8001
    key_file: str = ""
    schedule_file: str = ""
    initial_schedule: Schedule | None = None
    """What the engine runs before a delivery and after a lease; None: the start-up table."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """One engine, as vLLM would start it."""

    model: str = "simulated"
    served_model_names: tuple[str, ...] = ("simulated",)
    port: int = 8000
    speculation: Speculation | None = None
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_model_len: int = 8192
    schedules_ahead: bool = False
    """Whether a step is put together while the one before still runs, as vLLM's asynchronous scheduling does: a request
    that comes in between waits one step more."""
    capture_sizes: tuple[int, ...] = (CAPTURE_LIMIT,)
    """CUDA-graph sizes in tokens, ascending; empty: no graphs (eager)."""
    num_gpu_blocks: int = 26000
    """KV blocks of `BLOCK_SIZE` tokens; the default is what `kv_blocks` gives for one card."""
    shutdown_timeout_s: float = 0.0
    histogram_buckets: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Upper bounds by vLLM's bucket family, where they replace its own."""
    api_keys: tuple[str, ...] = ()
    plugin: Plugin | None = None
    """None: a plain engine image without our plugin."""
    model_runner: str = "V2"
    attention_backend: str = "FLASH_ATTN"
    kv_cache_dtype: str = "auto"
    gpu_memory_utilization: float = 0.92

    @property
    def served_model_name(self) -> str:
        """The name that metrics carry."""
        return self.served_model_names[0]

    @property
    def max_speculative_tokens(self) -> int:
        """The ceiling; 0 without a drafter."""
        return 0 if self.speculation is None else self.speculation.max_speculative_tokens

    @property
    def capture_size(self) -> int:
        """The largest CUDA graph in tokens; 0 without graphs."""
        return self.capture_sizes[-1] if self.capture_sizes else 0

    @property
    def start_schedule(self) -> Schedule:
        """What the engine runs before anything is delivered; K = 0 everywhere without a drafter."""
        if self.speculation is None:
            return constant(0, self.max_num_seqs)
        if self.speculation.table is None:
            return constant(self.speculation.max_speculative_tokens, self.max_num_seqs)
        initial = self.plugin.initial_schedule if self.plugin is not None else None
        return initial or self.speculation.table

    @property
    def not_controllable_because(self) -> str:
        """Why K cannot be changed while this engine runs; empty if it can."""
        if self.speculation is None:
            return "the engine runs without speculation"
        if self.speculation.table is None:
            return "the engine started without a table by batch size (none given, or vLLM dropped it)"
        return ""


def kv_blocks(gpu_memory_utilization: float, num_gpus: int = 1, bytes_per_value: float = 2.0) -> int:
    """KV blocks that fit beside the weights of the profile's 8B model on so many of its cards."""
    gib = num_gpus * (gpu_memory_utilization * CARD_GIB - ACTIVATIONS_GIB) - WEIGHTS_GIB
    return max(0, int(gib * 1024 / (BLOCK_MIB * bytes_per_value / 2.0)))


def default_capture_sizes(max_num_seqs: int, max_speculative_tokens: int) -> tuple[int, ...]:
    """The sizes vLLM picks when none are given: up to two full decode steps, and never above `CAPTURE_LIMIT`."""
    return dense_capture_sizes(min(2 * max_num_seqs * (max_speculative_tokens + 1), CAPTURE_LIMIT))


def dense_capture_sizes(largest: int) -> tuple[int, ...]:
    """vLLM's sizes up to a largest one, in tokens: every eighth below 256, every sixteenth above."""
    return tuple(size for size in (1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)) if size <= largest)
