"""A clock that stands still, and an engine core's half without vLLM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from outrider_runtime.engine_half import EngineFacts, EngineHalf

FACTS = EngineFacts(
    vllm_version="0.33.0",
    max_num_seqs=8,
    max_speculative_tokens=3,
    start_table=(0, 1, 3, 3, 3, 3, 3, 3),
    capture_sizes=(4, 8, 16),
    model_runner="V2",
    attention_backend="FLASH_ATTN",
    cudagraph_mode="FULL_AND_PIECEWISE",
)
"""K in {0, 1, 3} at up to 8 requests."""


@dataclass
class Clock:
    """Seconds that pass when a test says so."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Scheduler:
    """Keeps every table that was put into it."""

    installed: list[list[list[int]]] = field(default_factory=list)
    unfinished: bool = False

    @property
    def rows(self) -> list[list[int]]:
        """What steps run by now."""
        return self.installed[-1]


def half(
    scheduler: Scheduler,
    clock: Callable[[], float],
    environment: Mapping[str, str] | None = None,
    **changes: object,
) -> EngineHalf:
    """The half of an engine like `FACTS`, but for these changes."""
    return EngineHalf(
        replace(FACTS, **changes),  # type: ignore[arg-type]
        scheduler.installed.append,
        lambda: scheduler.unfinished,
        environment=environment or {},
        clock=clock,
    )


def document(generation: int, k: int, lease_s: float = 60) -> dict[str, object]:
    """A schedule with one K for all batch sizes."""
    return {"generation": generation, "schedule": [[1, 8, k]], "leaseSeconds": lease_s}
