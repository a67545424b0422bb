"""Fleets of a stable revision and a candidate, many at a time, with their true difference set.

Nothing of the analysis is used here: no logarithmic law, no like windows, no boots of a known spread. Requests arrive,
wait for nothing, are decoded together and leave; step times are the measured rows of one H100 (`outrider.simulator`),
so that the rate depends on the batch size as it did there. Second by second, of every pod:

- load wavers around its level (log-normal, 25 %, memory of five minutes), and requests come as a Poisson process;
- the router deals them evenly, so a quicker pod has a smaller batch, not more tokens;
- a step costs its measured time, times the pace of the boot, times a factor of the moment (the simulator's noise: 5 %,
  memory of ten seconds), and prompts take time off decoding;
- acceptance lengths waver with the traffic, for all pods together (4 %, three minutes), and with the requests that a
  pod happens to have (20 % of one request, eight seconds).

What the analysis sees of it are windows of 15 s as a plain vLLM tells them: the mean TPOT of the requests that ended,
and a batch size that is the mean of three samples; or, with the plugin, exact sums over decode-only steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from outrider.simulator.noise import MODEST
from outrider.simulator.profile import load_profile

Floats = NDArray[np.float64]

WINDOW_S, SCRAPE_S = 15, 5
WINDOWS = 64
"""Of one boot, sixteen minutes: what is left after the analysis has heard enough is thrown away."""
CAPTURE_SIZE, K, CONTEXT = 512, 3, 300.0
ANSWER_TOKENS = 400.0
PROMPT_S = 0.02
"""Of prefill, a request: the measured time of a short prompt."""
ACCEPTANCE_LENGTH = 2.73
LOAD_CV, LOAD_MEMORY_S = 0.25, 300.0
TRAFFIC_CV, TRAFFIC_MEMORY_S = 0.04, 180.0
REQUEST_CV, REQUEST_MEMORY_S = 0.20, 8.0
BATCHES = (6.0, 50.0)
"""Levels of the batch size: each fleet has one between these, evenly on a logarithmic scale."""
ERROR_SHARE, EMPTY_SHARE, CUT_SHARE = 0.001, 0.002, 0.08
OBJECTIVE, REQUEST_SPREAD = 1.25, 0.15
"""The TPOT objective over the usual time, and how far single requests lie apart."""
Boots = Literal["lognormal", "two kinds"]
SLOW_SHARE = 0.2


@dataclass(frozen=True)
class Arrangement:
    """One way to run a candidate."""

    boot_cv: float
    """Standard deviation of a boot's pace over its mean."""
    stable: int = 3
    candidates: int = 1
    plugin: bool = False
    """Decode-only steps are told apart, by the engine; else TPOT and three samples of the batch size."""
    load_share: float = 1.0
    """The candidate's share of requests over a stable pod's."""
    boots: Boots = "lognormal"
    """``two kinds``: a fifth of boots are slow, the rest quick, and 3/4 of the variance lies between the two."""


@dataclass(frozen=True)
class Stage:
    """What the pods of all fleets told from one start of the candidate on; arrays are (fleet, pod, window), stable pods
    first."""

    tokens: Floats
    batch: Floats
    rate_tps: Floats
    length: Floats
    """Tokens a request and step."""
    ended: Floats
    errors: Floats
    empty: Floats
    cut: Floats
    within: Floats


class Fleets:
    """Many fleets of one arrangement, each at a level of its own."""

    def __init__(
        self, arrangement: Arrangement, effect: float, *, draft: bool, fleets: int, seed: Sequence[int]
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self.arrangement, self.draft = arrangement, draft
        self.effect = 1.0 + effect
        self.level = np.exp(self._rng.uniform(math.log(BATCHES[0]), math.log(BATCHES[1]), fleets))
        profile = load_profile()
        self._grid = np.arange(1.0, 513.0)
        self._step_s = np.array([profile.step_time_s(batch, K, CAPTURE_SIZE, CONTEXT) for batch in self._grid])
        speed = ACCEPTANCE_LENGTH / np.interp(self.level, self._grid, self._step_s)
        rate = self.level * speed / ANSWER_TOKENS
        self.rate_rps = rate / (1.0 + PROMPT_S * rate)
        self.objective_s = OBJECTIVE / (speed * (1.0 - PROMPT_S * self.rate_rps))
        self.stable_pace = self.paces(arrangement.stable)
        self.shares = np.array([1.0] * arrangement.stable + [arrangement.load_share] * arrangement.candidates)
        self.load, self.traffic = self._normal(fleets, 1), self._normal(fleets, 1)

    def stage(self, chosen: NDArray[np.intp]) -> Stage:
        """The chosen fleets with their candidates newly started."""
        return _Play(self, chosen).run()

    def _normal(self, *shape: int) -> Floats:
        return self._rng.standard_normal(shape)

    def paces(self, pods: int) -> Floats:
        """Factors on step times, a boot each."""
        shape, cv = (len(self.level), pods), self.arrangement.boot_cv
        if self.arrangement.boots == "lognormal":
            sigma = math.sqrt(math.log1p(cv * cv))
            return np.asarray(np.exp(sigma * self._rng.standard_normal(shape) - sigma * sigma / 2))
        apart = cv * math.sqrt(0.75 / (SLOW_SHARE * (1.0 - SLOW_SHARE)))
        slow = self._rng.random(shape) < SLOW_SHARE
        return np.asarray(1.0 + apart * (slow - SLOW_SHARE) + cv / 2.0 * self._rng.standard_normal(shape))

    @property
    def rng(self) -> np.random.Generator:
        """Of all draws."""
        return self._rng

    def step_s(self, batch: Floats) -> Floats:
        """Measured time of a step."""
        return np.asarray(np.interp(batch, self._grid, self._step_s))


@dataclass(frozen=True)
class _Window:
    tokens: Floats
    batch: Floats
    rate_tps: Floats
    """What the analysis is told of the speed of a request."""
    length: Floats
    ended: Floats
    usual_tps: Floats
    """What it was."""


class _Play:
    """One stage, second by second."""

    def __init__(self, fleets: Fleets, chosen: NDArray[np.intp]) -> None:
        self.fleets, self.chosen, self.rng = fleets, chosen, fleets.rng
        arrangement = fleets.arrangement
        pods = arrangement.stable + arrangement.candidates
        self.shape = (len(chosen), pods)
        own = fleets.paces(arrangement.candidates)[chosen]
        self.pace = np.concatenate([fleets.stable_pace[chosen], own if fleets.draft else own / fleets.effect], axis=1)
        self.length = np.ones(self.shape)
        if fleets.draft:
            self.length[:, arrangement.stable :] = fleets.effect
        # The stable pods are in the midst of their work and the candidates empty.
        self.batch = np.repeat(fleets.level[chosen, None], pods, axis=1)
        self.batch[:, arrangement.stable :] = 0.0
        self.moment, self.requests = self.rng.standard_normal(self.shape), self.rng.standard_normal(self.shape)

    def run(self) -> Stage:
        shape = (*self.shape, WINDOWS)
        tokens, batch, rate_tps, length, ended, within = (np.zeros(shape) for _ in range(6))
        for window in range(WINDOWS):
            found = self._window()
            tokens[..., window], batch[..., window], ended[..., window] = found.tokens, found.batch, found.ended
            rate_tps[..., window], length[..., window] = found.rate_tps, found.length
            share = ndtr(np.log(self.fleets.objective_s[self.chosen, None] * found.usual_tps) / REQUEST_SPREAD)
            within[..., window] = self.rng.binomial(found.ended.astype(int), share)
        counts = ended.astype(int)
        errors, empty, cut = (
            self.rng.binomial(counts, share).astype(float) for share in (ERROR_SHARE, EMPTY_SHARE, CUT_SHARE)
        )
        return Stage(tokens, batch, rate_tps, length, ended, errors, empty, cut, within)

    def _window(self) -> _Window:
        tokens, steps, request_s, decode_s, sampled, ended, token_s = (np.zeros(self.shape) for _ in range(7))
        for second in range(WINDOW_S):
            busy, decoding, speed, left, step_s = self._second()
            steps += busy * decoding / step_s
            tokens += busy * decoding * speed
            request_s += busy * decoding
            decode_s += decoding
            ended += left
            token_s += left / (decoding * speed)
            if second % SCRAPE_S == SCRAPE_S - 1:
                sampled += self.batch * SCRAPE_S / WINDOW_S
        mean_s = token_s / np.maximum(ended, 1.0)
        usual_tps = 1.0 / np.where(ended > 0, mean_s, 1.0)
        length = np.maximum(tokens / np.maximum(steps, 1e-9), 1.0)
        if self.fleets.arrangement.plugin:
            rate_tps = tokens / np.maximum(request_s, 1e-9)
            return _Window(tokens, request_s / decode_s, rate_tps, length, ended, usual_tps)
        # The mean over the requests that ended, each with a scatter of its own.
        scatter = REQUEST_SPREAD / np.sqrt(np.maximum(ended, 1.0)) * self.rng.standard_normal(self.shape)
        rate_tps = np.where(ended > 0, usual_tps * np.exp(scatter), 0.0)
        return _Window(tokens, sampled, rate_tps, length, ended, usual_tps)

    def _second(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Of one second: requests in a step, the share of time that decodes, tokens a second of one request while it
        does, requests that left, and the time of a step."""
        fleets, chosen = self.fleets, self.chosen
        fleets.load[chosen] = self._wander(fleets.load[chosen], LOAD_MEMORY_S)
        fleets.traffic[chosen] = self._wander(fleets.traffic[chosen], TRAFFIC_MEMORY_S)
        self.moment = self._wander(self.moment, MODEST.correlation_s)
        self.requests = self._wander(self.requests, REQUEST_MEMORY_S)
        rate_rps = fleets.rate_rps[chosen, None] * np.exp(LOAD_CV * fleets.load[chosen] - LOAD_CV**2 / 2)
        arrived = self.rng.poisson(rate_rps * fleets.shares)
        own = REQUEST_CV / np.sqrt(np.maximum(self.batch, 1.0)) * self.requests
        length = ACCEPTANCE_LENGTH * self.length * np.exp(TRAFFIC_CV * fleets.traffic[chosen] + own)
        step_s = fleets.step_s(self.batch) * self.pace * np.exp(MODEST.step_cv * self.moment)
        speed, decoding = length / step_s, np.maximum(0.1, 1.0 - PROMPT_S * self.pace * arrived)
        busy = self.batch + 0.5 * arrived  # requests of this second are there for half of it on average
        left = np.minimum(self.rng.poisson(busy * decoding * speed / ANSWER_TOKENS), self.batch + arrived)
        self.batch = self.batch + arrived - left
        return busy, decoding, speed, left, step_s

    def _wander(self, state: Floats, memory_s: float) -> Floats:
        kept = math.exp(-1.0 / memory_s)
        return kept * state + math.sqrt(1.0 - kept * kept) * self.rng.standard_normal(state.shape)
