"""A service on paper: engines that behave as a measured card does, for playing whole stretches of control through.

No queueing and no randomness: the batch and the acceptance are given by the scenario, the step times are the measured
ones, and what is left to see is the controller alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from outrider.core.controller import Outcome, control
from outrider.core.observation import EngineWindow, Histogram, Observation, StepCell
from outrider.core.series import Missing
from outrider.core.state import ControllerConfig, ControllerState, initial_state
from outrider.simulator.profile import load_profile

PERIOD_S = 15.0
KV_CACHE_TOKENS = 375_000.0
TOKENS_PER_REQUEST = 1_300.0
PREFILL_FACTOR = 1.25
"""Measured TPOT over the decode-only step time: what other requests' prefill adds."""


@dataclass
class Scenario:
    """What happens to the service, as functions of time in seconds."""

    batch: Callable[[float], float]
    alpha: Callable[[float], float]
    """Conditional acceptance of each draft token."""
    waiting: Callable[[float], float] = lambda _: 0.0
    slowdown: Callable[[float, int], float] = lambda _t, _k: 1.0
    """Factor on the step time, by time and K: a fault that no model knows of."""
    metrics: Callable[[float], bool] = lambda _: True
    duration_s: float = 600.0


@dataclass
class Plant:
    """Plays a scenario against the controller and narrates it."""

    config: ControllerConfig
    scenario: Scenario
    state: ControllerState = field(init=False)
    log: list[str] = field(default_factory=list)
    _last: list[str] = field(default_factory=list)
    outcomes: list[tuple[float, Outcome]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = initial_state(self.config)
        self.profile = load_profile()

    def play(self) -> Plant:
        """Run the whole scenario, a control pass each period."""
        now_s = PERIOD_S
        while now_s <= self.scenario.duration_s:
            self.tick(now_s)
            now_s += PERIOD_S
        return self

    def tick(self, now_s: float) -> Outcome:
        increment = self.observe(now_s - PERIOD_S, now_s)
        window = self.observe(max(0.0, now_s - 2 * PERIOD_S), now_s)
        outcome = control(self.config, self.state, window, increment, now_s)
        self.state = outcome.state
        self.outcomes.append((now_s, outcome))
        self._narrate(now_s, window, outcome)
        return outcome

    def observe(self, since_s: float, until_s: float) -> Observation | Missing:
        """What engines under the present schedule export for a stretch of time."""
        if not self.scenario.metrics(until_s):
            return Missing("PrometheusUnreachable", "Prometheus does not answer")
        batch, alpha = self.scenario.batch(until_s), self.scenario.alpha(until_s)
        k = self.state.schedule.at(batch)
        step_s = self.profile.step_time_s(batch, k, self.config.capture_size, context=1000.0)
        step_s *= self.scenario.slowdown(until_s, k)
        steps = (until_s - since_s) / (step_s * PREFILL_FACTOR)
        drafts = steps * batch if k else 0.0
        accepted = tuple(drafts * alpha ** (j + 1) for j in range(k))
        tokens = steps * batch + sum(accepted)
        tpot_s, finished = step_s * PREFILL_FACTOR * steps * batch / tokens, tokens / 200.0
        usage = batch * TOKENS_PER_REQUEST / KV_CACHE_TOKENS
        return Observation(
            since_s=since_s,
            until_s=until_s,
            engines=(EngineWindow("chat-a", "0", batch, self.scenario.waiting(until_s), usage, KV_CACHE_TOKENS, None),),
            num_drafts=drafts,
            drafted_per_pos=(drafts,) * k,
            accepted_per_pos=accepted,
            generation_tokens=tokens,
            prompt_tokens=tokens * 5.0,
            cells=(StepCell(1 << (round(batch) - 1).bit_length(), k, False, steps, steps * step_s, steps * batch),),
            tpot=Histogram(
                finished, finished * tpot_s, ((tpot_s * 0.9, 0.0), (tpot_s * 1.1, finished), (float("inf"), finished))
            ),
        )

    def _narrate(self, now_s: float, window: Observation | Missing, outcome: Outcome) -> None:
        if isinstance(window, Missing):
            lines = [f"no metrics: {window}"]
        else:
            tpot_ms = (window.tpot.mean or 0.0) * 1e3
            length = f"{outcome.acceptance_length.value:.2f}" if outcome.acceptance_length else "?"
            lines = [f"batch {window.batch:.0f}, waiting {window.waiting:.0f}, E {length}, {tpot_ms:.1f} ms a token"]
        lines += list(outcome.proposal.steps)
        for change in outcome.changes:
            lines.append(f"{change.kind.upper()} {change.before} => {change.after}")
            lines.append(f"  because {change.reason}")
        if not any(change.kind == "Schedule" for change in outcome.changes):
            lines.append(f"schedule stays {outcome.state.schedule}")
        if lines != self._last:
            self.log += [f"{now_s:5.0f} s  {lines[0]}", *(f"         {line}" for line in lines[1:])]
        elif self.log[-1].startswith("         (so"):
            self.log[-1] = f"         (so until {now_s:.0f} s)"
        else:
            self.log.append(f"         (so until {now_s:.0f} s)")
        self._last = lines
