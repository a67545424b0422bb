"""The half of the plugin that lives in vLLM's engine core: the schedule in force, and what steps cost.

All calls come from the engine core's one thread, between or within steps, so nothing needs a lock. What it touches of
vLLM arrives as values and callables; `vllm_adapter` binds them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.core.schedule import Schedule, constant, from_lookup, parse_rows
from outrider_runtime.meter import StepMeter
from outrider_runtime.protocol import Reply, ScheduleKeeper, not_controllable, parse_json
from outrider_runtime.settings import INITIAL_SCHEDULE


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine core says of itself once, at start."""

    vllm_version: str
    max_num_seqs: int
    max_speculative_tokens: int
    """Ceiling of K; 0 without speculation."""
    start_table: tuple[int, ...] | None
    """K by batch size from 1; None where every step drafts the ceiling."""
    capture_sizes: tuple[int, ...]
    model_runner: str
    attention_backend: str
    cudagraph_mode: str
    not_controllable_because: str = ""


class EngineHalf:
    """Keeps the schedule of one engine and measures its steps."""

    def __init__(
        self,
        facts: EngineFacts,
        install: Callable[[list[list[int]]], None],
        unfinished: Callable[[], bool] = lambda: False,
        *,
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``install`` puts rows into the scheduler, checked by vLLM's own builder; ``unfinished``
        says whether any request is left.

        Raises:
            InvalidSchedule: the initial schedule of the environment is none that this engine can run.
        """
        now_s = clock()
        self.facts, self.meter = facts, StepMeter(last_step_s=now_s, last_token_s=now_s)
        self._install, self._unfinished, self._clock = install, unfinished, clock
        self._warming = False
        self._work_since_s: float | None = None
        self._values = tuple(sorted(set(facts.start_table or ())))
        initial = self._initial(environment.get(INITIAL_SCHEDULE, ""))
        self.keeper = ScheduleKeeper(
            initial,
            ceiling=facts.max_speculative_tokens,
            values=self._values,
            max_num_seqs=facts.max_num_seqs,
            apply=self._apply,
            not_controllable_because=facts.not_controllable_because,
        )
        self.meter.longest_step_s("admin")
        self.meter.longest_step_s("scrape")
        self._stalls_read = (0, 0.0)
        if not facts.not_controllable_because:
            self._apply(initial)

    def before_step(self) -> float:
        """The time, after a lease that has run out was ended."""
        now_s = self._clock()
        self.keeper.expire(now_s)
        return now_s

    def now_s(self) -> float:
        """The clock that steps are measured by."""
        return self._clock()

    def put(self, document: object) -> Reply:
        """``PUT /schedule``."""
        return self.keeper.put(document, self._clock())

    def get(self) -> Reply:
        """``GET /schedule``: steps count from the end of the warm-up, longest step and stalls since the last read."""
        facts, meter, now_s = self.facts, self.meter, self.before_step()
        since, since_s = self._stalls_read
        self._stalls_read = (meter.stalls, meter.stall_seconds)
        body = self.keeper.effective() | {
            "maxSpeculativeTokens": facts.max_speculative_tokens,
            "speculativeTokens": list(self._values),
            "captureSizes": list(facts.capture_sizes),
            "vllmVersion": facts.vllm_version,
            "modelRunner": facts.model_runner,
            "attentionBackend": facts.attention_backend,
            "cudagraphMode": facts.cudagraph_mode,
            "controllable": not facts.not_controllable_because,
            "reason": facts.not_controllable_because,
            "leaseSecondsLeft": self.keeper.lease_left_s(now_s),
            "initial": self.keeper.initial,
            "stepsBySpeculativeTokens": {str(k): steps for k, steps in sorted(meter.steps_by_k.items())},
            "longestStepSeconds": meter.longest_step_s("admin"),
            "stalls": {"count": meter.stalls - since, "seconds": meter.stall_seconds - since_s},
            "secondsSinceToken": round(now_s - meter.last_token_s, 6),
        }
        return Reply(200, body)

    def snapshot(self) -> dict[str, Any]:
        """What a scrape wants to know; the longest step counts from the scrape before."""
        meter, now_s = self.meter, self.before_step()
        return {
            "controllable": not self.facts.not_controllable_because,
            "generation": self.keeper.generation,
            "initial": self.keeper.initial,
            "schedule": str(self.keeper.schedule),
            "lease_s": self.keeper.lease_left_s(now_s) or 0.0,
            "cells": meter.as_rows(),
            "longest_step_s": meter.longest_step_s("scrape"),
            "stalls": meter.stalls,
            "stall_s": meter.stall_seconds,
            "since_token_s": round(now_s - meter.last_token_s, 6),
        }

    def state(self) -> dict[str, Any]:
        """What a probe wants to know: how long no step ended while requests were there, as far as probes have seen."""
        now_s = self._clock()
        if not self._unfinished():
            self._work_since_s = None
            return {"silent_s": 0.0}
        if self._work_since_s is None:
            self._work_since_s = now_s
        return {"silent_s": now_s - max(self.meter.last_step_s, self._work_since_s)}

    def warm(self, k: int | None) -> Reply:
        """Run every batch size with this K until `end_warm_up`; schedules that arrive meanwhile wait for that.

        None changes nothing: the answer names the K to run.
        """
        if self.facts.not_controllable_because:
            return not_controllable(self.facts.not_controllable_because)
        self._warming = True
        if k is not None:
            self._install(constant(k, self.facts.max_num_seqs).as_lists())
        return Reply(200, {"speculativeTokens": list(self._values)})

    def end_warm_up(self) -> Reply:
        """Run the schedule in force, and forget the steps of the warm-up."""
        self._warming = False
        if not self.facts.not_controllable_because:
            self._apply(self.keeper.schedule)
        self.meter.reset()
        self.meter.longest_step_s("admin")
        self.meter.longest_step_s("scrape")
        self._stalls_read = (0, 0.0)
        return Reply(200, {})

    def measure(self, enabled: bool) -> Reply:
        """Switch the measuring of steps on or off, to find out what it costs."""
        self.meter.switch(enabled)
        return Reply(200, {"measuring": enabled})

    def _apply(self, schedule: Schedule) -> None:
        if not self._warming:
            self._install(schedule.as_lists())

    def _initial(self, text: str) -> Schedule:
        facts = self.facts
        if text and facts.start_table:
            return parse_rows(
                parse_json(text),
                ceiling=facts.max_speculative_tokens,
                max_batch_size=facts.max_num_seqs,
                allowed=self._values,
            )
        if facts.start_table:
            return from_lookup(facts.start_table)
        return constant(facts.max_speculative_tokens, facts.max_num_seqs)
