"""The runtime plugin's admin port, for a simulated engine in virtual and in real time.

The rules for a schedule are the plugin's own code; what an engine knows of itself is said here.
"""

from __future__ import annotations

from outrider.simulator.engine import SimulatedEngine
from outrider_runtime.protocol import Reply, ScheduleKeeper

VLLM_VERSION = "0.33.0"
NO_PROGRESS_S = 10.0  # of the clock on the wall, as long as probes and those who wait for them live by it
NO_PROGRESS_STEPS = 3  # but never less than a few of the longest steps, or a slow card would count as hung


class AdminPort(ScheduleKeeper):
    """What the plugin of one engine knows."""

    def __init__(self, engine: SimulatedEngine) -> None:
        settings = engine.settings
        super().__init__(
            settings.start_schedule,
            ceiling=settings.max_speculative_tokens,
            values=settings.speculation.values if settings.speculation else (),
            max_num_seqs=settings.max_num_seqs,
            apply=engine.set_schedule,
            not_controllable_because=settings.not_controllable_because,
        )
        self.engine = engine
        self._stalls_read = (0, 0.0)

    def get(self, now_s: float) -> Reply:
        """``GET /schedule``; steps count from the start, the longest step and stalls since the last read."""
        self.expire(now_s)
        engine, settings = self.engine, self.engine.settings
        stalls, stall_s = total_stalls(engine, now_s)
        since, since_s = self._stalls_read
        self._stalls_read = (stalls, stall_s)
        body = self.effective() | {
            "maxSpeculativeTokens": settings.max_speculative_tokens,
            "speculativeTokens": list(settings.speculation.values) if settings.speculation else [],
            "captureSizes": list(settings.capture_sizes),
            "vllmVersion": VLLM_VERSION,
            "modelRunner": settings.model_runner,
            "attentionBackend": settings.attention_backend,
            "cudagraphMode": "FULL_AND_PIECEWISE" if settings.capture_sizes else "NONE",
            "controllable": not settings.not_controllable_because,
            "reason": settings.not_controllable_because,
            "leaseSecondsLeft": self.lease_left_s(now_s),
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


def total_stalls(engine: SimulatedEngine, now_s: float) -> tuple[int, float]:
    """Stalls since the start and their seconds; one that goes on counts as one more."""
    stalls, seconds = engine.counters.stalls, engine.counters.stall_seconds
    silent_s = now_s - engine.last_progress_s
    if engine.hung and engine.num_running + engine.num_waiting and silent_s > engine.profile.dilation:
        return stalls + 1, seconds + silent_s
    return stalls, seconds
