"""A service on paper: engines that behave as a measured card does, for playing whole stretches of control through.

No queueing and no randomness: the batch and the acceptance are given by the scenario, the step times are the measured
ones, and what is left to see is the controller alone. Where counters, restarts and routers matter,
`tests.golden.service` plays the simulator's fleet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from outrider.core import memory
from outrider.core.controller import Outcome, control
from outrider.core.decision import Change
from outrider.core.observation import EngineWindow, Histogram, Observation, StepCell
from outrider.core.series import Missing
from outrider.core.state import ControllerConfig, ControllerState, initial_state
from outrider.simulator.profile import DEFAULT_PROFILE, load_profile

from .narrator import Narrator

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
    replicas: tuple[Callable[[float], float], ...] = (lambda _: 1.0,)
    """Factor on the step time of each replica; every one of them runs the batch."""
    slowdown: Callable[[float, int], float] = lambda _t, _k: 1.0
    """Factor on the step time, by time and K: a fault that no model knows of."""
    metrics: Callable[[float], bool] = lambda _: True
    restarts: tuple[float, ...] = ()
    """When the operator starts anew, with what its memory document holds."""
    profile: str = DEFAULT_PROFILE
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the controller's configuration."""
    duration_s: float = 600.0
    brief: bool = False
    """Note only what moves."""


@dataclass
class Plant:
    """Plays a scenario against the controller and narrates it."""

    config: ControllerConfig
    scenario: Scenario
    state: ControllerState = field(init=False)
    outcomes: list[tuple[float, Outcome]] = field(default_factory=list)
    declining: bool = False
    """Whether a slow decline is told at present."""
    narrator: Narrator = field(init=False)

    def __post_init__(self) -> None:
        self.state = initial_state(self.config)
        self.narrator = Narrator(brief=self.scenario.brief)
        self.profile = load_profile(self.scenario.profile)

    def play(self) -> Plant:
        """Run the whole scenario, a control pass each period."""
        period_s = self.config.period_s
        for number in range(1, int(self.scenario.duration_s / period_s) + 1):
            self.tick(number * period_s)
        return self

    @property
    def log(self) -> str:
        """All that happened, in text."""
        return self.narrator.text

    def changes(self, kind: str = "Schedule") -> list[Change]:
        """The changes of one kind, in order."""
        return [change for _, outcome in self.outcomes for change in outcome.changes if change.kind == kind]

    def k(self, now_s: float, batch: int) -> int:
        """K at this batch size after the pass at this time."""
        return next(outcome.state.schedule.at(batch) for at_s, outcome in self.outcomes if at_s == now_s)

    def tick(self, now_s: float) -> Outcome:
        if now_s in self.scenario.restarts:
            document = json.loads(json.dumps(memory.to_document(self.state)))
            self.state, complaint = memory.from_document(document, self.config)
            assert complaint is None
            self.narrator.event(now_s, "the operator starts anew and reads its memory document")
        period_s = self.config.period_s
        increment = self.observe(now_s - period_s, now_s)
        window = self.observe(max(0.0, now_s - 2 * period_s), now_s)
        outcome = control(self.config, self.state, window, increment, now_s)
        self.state = outcome.state
        self.outcomes.append((now_s, outcome))
        self.narrator.tell(now_s, window, outcome)
        trend = outcome.state.acceptance.trend
        if trend is not None and trend.declining and not self.declining:
            self.narrator.event(
                now_s, f"told: {trend.baseline.value:.2f} tokens a step after the start, {trend.now.value:.2f} now"
            )
        self.declining = trend is not None and trend.declining
        return outcome

    def observe(self, since_s: float, until_s: float) -> Observation | Missing:
        """What engines under the present schedule export for a stretch of time."""
        if not self.scenario.metrics(until_s):
            return Missing("PrometheusUnreachable", "Prometheus does not answer")
        batch, alpha = self.scenario.batch(until_s), self.scenario.alpha(until_s)
        k = self.state.schedule.at(batch)
        base_s = self.profile.step_time_s(batch, k, self.config.capture_size, context=1000.0)
        base_s *= self.scenario.slowdown(until_s, k)
        times_s = [base_s * factor(until_s) for factor in self.scenario.replicas]
        runs = [(step_s, (until_s - since_s) / (step_s * PREFILL_FACTOR)) for step_s in times_s]
        steps = sum(number for _, number in runs)
        drafts = steps * batch if k else 0.0
        accepted = tuple(drafts * alpha ** (j + 1) for j in range(k))
        tokens = steps * batch + sum(accepted)
        tpot_s, finished = (until_s - since_s) * len(runs) * batch / tokens, tokens / 200.0
        usage = batch * TOKENS_PER_REQUEST / KV_CACHE_TOKENS
        waiting, bucket = self.scenario.waiting(until_s), 1 << (round(batch) - 1).bit_length()
        return Observation(
            since_s=since_s,
            until_s=until_s,
            engines=tuple(
                EngineWindow(f"chat-{number}", "0", batch, waiting, usage, KV_CACHE_TOKENS, None)
                for number in range(len(runs))
            ),
            num_drafts=drafts,
            drafted_per_pos=(drafts,) * k,
            accepted_per_pos=accepted,
            generation_tokens=tokens,
            prompt_tokens=tokens * 5.0,
            cells=tuple(StepCell(bucket, k, False, number, number * step_s, number * batch) for step_s, number in runs),
            tpot=Histogram(
                finished, finished * tpot_s, ((tpot_s * 0.9, 0.0), (tpot_s * 1.1, finished), (float("inf"), finished))
            ),
        )
