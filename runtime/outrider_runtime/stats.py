"""vLLM's stat logger plugin: drafted tokens by position, which vLLM counts in every step and does not export, and signs
of life for the front door.

From the same object as vLLM's own counters of accepted tokens, so that at any scrape the two belong to the same steps.
"""

from __future__ import annotations

import logging
from typing import Any

from prometheus_client import Counter

from outrider_runtime import front_door, vllm_adapter

logger = logging.getLogger("vllm.outrider")

_drafted: Counter | None = None


class StatLogger(vllm_adapter.stat_logger_base()):  # type: ignore[misc]
    """One for each engine behind this API server."""

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        """Make the counters of all positions at once: a counter that appears late hides its first steps from rates."""
        global _drafted
        self._positions: list[Any] = []
        self._failed = False
        try:
            if _drafted is None:
                _drafted = Counter(
                    "outrider_engine_draft_tokens_per_pos",
                    "Drafts that proposed this position.",
                    ["engine", "position"],
                )
            speculative = vllm_config.speculative_config
            largest = speculative.num_speculative_tokens if speculative is not None else 0
            self._positions = [_drafted.labels(str(engine_index), str(position)) for position in range(largest)]
        except Exception as error:
            self._give_up(error)

    def record(self, scheduler_stats: Any, iteration_stats: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """One step's statistics; either may be missing."""
        if self._failed:
            return
        try:
            self._record(scheduler_stats, iteration_stats)
        except Exception as error:
            self._give_up(error)

    def log_engine_initialized(self) -> None:
        """Nothing to say."""

    def _record(self, scheduler_stats: Any, iteration_stats: Any) -> None:
        drafts = getattr(scheduler_stats, "spec_decoding_stats", None)
        for counter, drafted in zip(self._positions, drafts.num_draft_tokens_per_pos if drafts else (), strict=False):
            if drafted:
                counter.inc(drafted)
        if front_door.the_door is not None:
            waiting = None if scheduler_stats is None else scheduler_stats.num_waiting_reqs
            tokens = bool(iteration_stats and iteration_stats.num_generation_tokens)
            front_door.the_door.reported(tokens=tokens, waiting=waiting)

    def _give_up(self, error: Exception) -> None:
        self._failed = True
        logger.warning("Outrider: no drafted tokens by position: %s", error)
