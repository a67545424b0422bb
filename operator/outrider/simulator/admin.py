"""The runtime plugin's rules for a schedule from outside: generation, lease, ceiling; for virtual and real time.

    generation      schedule        answer
    ------------------------------------------------------------------
    newer           valid           200, taken over
    the present     the same        200, lease renewed
    the present     another         409
    older           any valid       409
    any             not valid       422, every fault named
    (K is fixed for this engine)    503, with the reason

Pure but for the schedule that it sets on its engine; the time is an argument.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outrider.core.schedule import InvalidSchedule, Schedule, parse_rows
from outrider.simulator.engine import SimulatedEngine

VLLM_VERSION = "0.33.0"
DEFAULT_LEASE_S = 3600.0  # as the operator's own documents have it
LONGEST_LEASE_S = 7 * 86400.0  # the operator's are a day at most; an engine must not keep for ever what nobody renews
LARGEST_GENERATION = 2**63 - 1  # of a Kubernetes object
NO_PROGRESS_S = 10.0  # of the clock on the wall, as long as probes and those who wait for them live by it
NO_PROGRESS_STEPS = 3  # but never less than a few of the longest steps, or a slow card would count as hung


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP status and a JSON body."""

    status: int
    body: dict[str, Any]


@dataclass(slots=True)
class AdminPort:
    """What the plugin of one engine knows."""

    engine: SimulatedEngine
    generation: int = -1
    """Of the last schedule taken over; -1 before the first. A lease that ran out keeps it."""
    delivered: Schedule | None = None
    lease_ends_s: float | None = None
    """On the engine's clock; None while the initial schedule runs."""
    _stalls_read: tuple[int, float] = field(default=(0, 0.0))

    @property
    def initial(self) -> bool:
        """Whether the engine runs its initial schedule: none was delivered yet, or the lease ran out."""
        return self.lease_ends_s is None

    def put(self, document: object, now_s: float) -> Reply:
        """``PUT /schedule``, or a mounted document that changed."""
        self.expire(now_s)
        reason = self.engine.settings.not_controllable_because
        if reason:
            return Reply(503, {"error": "not controllable", "reason": reason})
        generation, schedule, lease_s, faults = self._parse(document)
        if schedule is None or faults:
            return Reply(422, {"error": "the document is not a schedule for this engine", "faults": faults})
        if generation < self.generation:
            error = f"generation {generation} is older than {self.generation}"
            return Reply(409, {"error": error, "generation": self.generation})
        if generation == self.generation and schedule != self.delivered:
            error = f"generation {generation} was delivered with another schedule"
            return Reply(409, {"error": error, "generation": self.generation})
        self.generation, self.delivered, self.lease_ends_s = generation, schedule, now_s + lease_s
        self.engine.set_schedule(schedule)
        return Reply(200, self._effective())

    def expire(self, now_s: float) -> None:
        """Return to the initial schedule when the lease has run out."""
        if self.lease_ends_s is not None and now_s >= self.lease_ends_s:
            self.lease_ends_s = None
            self.engine.set_schedule(self.engine.settings.start_schedule)

    def get(self, now_s: float) -> Reply:
        """``GET /schedule``; steps count from the start, the longest step and stalls since the last read."""
        self.expire(now_s)
        engine, settings = self.engine, self.engine.settings
        stalls, stall_s = total_stalls(engine, now_s)
        since, since_s = self._stalls_read
        self._stalls_read = (stalls, stall_s)
        body = self._effective() | {
            "maxSpeculativeTokens": settings.max_speculative_tokens,
            "speculativeTokens": list(settings.speculation.values) if settings.speculation else [],
            "captureSizes": list(settings.capture_sizes),
            "vllmVersion": VLLM_VERSION,
            "modelRunner": settings.model_runner,
            "attentionBackend": settings.attention_backend,
            "cudagraphMode": "FULL_AND_PIECEWISE" if settings.capture_sizes else "NONE",
            "controllable": not settings.not_controllable_because,
            "reason": settings.not_controllable_because,
            "leaseSecondsLeft": None if self.lease_ends_s is None else round(self.lease_ends_s - now_s, 3),
            "initial": self.initial,
            "stepsBySpeculativeTokens": {
                str(k): steps for k, steps in engine.counters.steps_by_speculative_tokens().items()
            },
            "longestStepSeconds": engine.counters.take_longest_step_s("admin"),
            "stalls": {"count": stalls - since, "seconds": stall_s - since_s},
            "secondsSinceToken": round(now_s - engine.last_token_s, 6),
        }
        return Reply(200, body)

    def ready(self, now_s: float) -> Reply:
        """``GET /ready``: 200 while the engine makes progress, or has nothing to do."""
        engine = self.engine
        longest_s = engine.profile.prefill_time_s(engine.settings.max_num_batched_tokens)
        silent_s = now_s - engine.last_progress_s
        patience_s = max(NO_PROGRESS_S, NO_PROGRESS_STEPS * longest_s)
        if engine.num_running + engine.num_waiting and silent_s > patience_s:
            reason = f"no step ended for {silent_s:.0f} s while requests wait"
            return Reply(503, {"ready": False, "reason": reason})
        return Reply(200, {"ready": True, "reason": ""})

    def _effective(self) -> dict[str, Any]:
        schedule = self.engine.schedule
        return {
            "generation": self.generation,
            "schedule": schedule.as_lists(),
            "effective": schedule.lookup(self.engine.settings.max_num_seqs)[1:],
        }

    def _parse(self, document: object) -> tuple[int, Schedule | None, float, list[str]]:
        if not isinstance(document, Mapping):
            return -1, None, 0.0, ["the body is not a JSON object with generation, schedule and leaseSeconds"]
        faults = []
        generation, lease_s = document.get("generation"), document.get("leaseSeconds", DEFAULT_LEASE_S)
        if type(generation) is not int or not 0 <= generation <= LARGEST_GENERATION:
            faults.append(f"generation is {generation!r}; it must be an integer of 0 or more, 64 bits long")
            generation = -1
        if type(lease_s) not in (int, float) or not 0 < lease_s <= LONGEST_LEASE_S:
            faults.append(f"leaseSeconds is {lease_s!r}; it must be a number above 0, at most {LONGEST_LEASE_S:.0f}")
        settings, schedule = self.engine.settings, None
        assert settings.speculation is not None  # an engine without a drafter has answered 503 by now
        try:
            schedule = parse_rows(
                document.get("schedule"),
                ceiling=settings.max_speculative_tokens,
                max_batch_size=settings.max_num_seqs,
                allowed=settings.speculation.values,
            )
        except InvalidSchedule as error:
            faults += error.faults
        return generation, schedule, lease_s, faults


def total_stalls(engine: SimulatedEngine, now_s: float) -> tuple[int, float]:
    """Stalls since the start and their seconds; one that goes on counts as one more."""
    stalls, seconds = engine.counters.stalls, engine.counters.stall_seconds
    silent_s = now_s - engine.last_progress_s
    if engine.hung and engine.num_running + engine.num_waiting and silent_s > engine.profile.dilation:
        return stalls + 1, seconds + silent_s
    return stalls, seconds


def parse_json(text: str | bytes) -> object:
    """The value of a JSON text, None if it is none: `AdminPort.put` then names the fault."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
