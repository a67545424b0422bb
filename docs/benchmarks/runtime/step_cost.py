"""What measuring one engine step costs a processor, without vLLM: ``python docs/benchmarks/runtime/step_cost.py``

Runs the adapter's wrappers around a scheduler that does nothing, with measuring on and off in turn, and prints the
median difference in microseconds a step. A step of an 8B model on an H100 takes 7 ms at batch 1 and 11 ms at 64.
"""

from __future__ import annotations

import json
import statistics
import time
from types import SimpleNamespace
from typing import Any

from outrider_runtime import vllm_adapter
from outrider_runtime.engine_half import EngineFacts, EngineHalf

STEPS, ROUNDS = 20_000, 15
STEP_MS = {1: 7.6, 64: 11.0}
"""Decode steps with K 0 as the plugin measured them on the H100 (results-h100.jsonl)."""


class Scheduler:
    """Answers as vLLM's does, and does nothing."""

    def __init__(self, batch: int) -> None:
        self.num_spec_tokens = 5
        self._output = {str(number): 1 for number in range(batch)}
        self._cached = SimpleNamespace(num_output_tokens=[7] * batch, resumed_req_ids=set())
        self._results = {0: SimpleNamespace(outputs=[1])}

    def schedule(self) -> Any:
        """A decode-only step."""
        return SimpleNamespace(
            num_scheduled_tokens=self._output, total_num_scheduled_tokens=len(self._output), scheduled_new_reqs=[],
            scheduled_cached_reqs=self._cached, num_spec_tokens_to_schedule=0,
        )  # fmt: skip

    def update_from_output(self, output: Any) -> Any:  # noqa: ARG002
        """One client's results."""
        return self._results

    def has_unfinished_requests(self) -> bool:
        """Always."""
        return True


def main() -> None:
    """Print one line of JSON a batch size."""
    for batch, step_ms in STEP_MS.items():
        scheduler = Scheduler(batch)
        facts = EngineFacts("0.33.0", 256, 5, (0, 1, 2, 3, 5), (), "V2", "auto", "FULL")
        half = EngineHalf(facts, list, environment={})
        vllm_adapter._measure(scheduler, half)
        differences = []
        for _ in range(ROUNDS):
            times = {}
            for on in (True, False):
                half.meter.enabled = on
                began = time.perf_counter()
                for _ in range(STEPS):
                    scheduler.update_from_output(scheduler.schedule())
                times[on] = (time.perf_counter() - began) / STEPS * 1e6
            differences.append(times[True] - times[False])
        cost = statistics.median(differences)
        spread = [round(min(differences), 2), round(max(differences), 2)]
        print(json.dumps({"batch": batch, "microseconds_a_step": round(cost, 2), "spread": spread,
                          "percent_of_a_step": round(cost / step_ms / 10, 3)}))  # fmt: skip


if __name__ == "__main__":
    main()
