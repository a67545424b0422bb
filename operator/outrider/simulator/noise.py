"""Step times that waver: a slow random factor on every step, and one that an engine keeps from its start on.

Both are log-normal with mean 1, so that noise changes no average. The factor of a step follows an autoregressive
process of first order (AR(1)): windows of a few seconds are off together, as in measurements, and do not average out
within a control period.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from outrider.simulator.profile import Floats

DRAWS = 1024  # normal numbers drawn at a time


@dataclass(frozen=True, slots=True)
class Noise:
    """How much step times waver; the default is not at all."""

    step_cv: float = 0.0
    """Standard deviation of a step's factor."""
    correlation_s: float = 10.0
    """Time spent in steps after which the autocorrelation of their (logarithmic) factors has fallen to 1/e."""
    boot_cv: float = 0.0
    """Standard deviation of an engine's own factor, drawn when its process starts."""


QUIET = Noise()
MODEST = Noise(step_cv=0.05, correlation_s=10.0, boot_cv=0.03)
"""For benchmarks. Published spread between boots of one engine: 13.9 % with CUDA graphs (a small card, 12 boots) and
1.4 % without; 3 % is towards the quiet end, so that a policy is not judged by luck. Steps: windows of half a second of
our own measurement are off by some 10 % at most, which 5 % gives."""


class StepNoise:
    """The factors of one engine's steps, in their order; what was looked at and not taken comes again."""

    def __init__(self, noise: Noise, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 1])  # apart from the engine's other draws
        self._sigma = math.sqrt(math.log1p(noise.step_cv**2))
        self._correlation_s = noise.correlation_s
        boot_sigma = math.sqrt(math.log1p(noise.boot_cv**2))
        self.boot_factor = math.exp(boot_sigma * float(self._rng.standard_normal()) - boot_sigma**2 / 2)
        """The engine's own, on every step."""
        self._shift = math.log(self.boot_factor) - self._sigma**2 / 2
        self._state = self._sigma * float(self._rng.standard_normal())
        self._ahead: list[float] = []
        self._normals: list[float] = []

    def ahead(self, steps: int, step_s: float) -> Floats:
        """The factors of the next steps, which take about ``step_s`` each."""
        if not self._sigma:
            return np.full(steps, self.boot_factor)
        if len(self._normals) < steps:
            self._normals += self._rng.standard_normal(max(DRAWS, steps)).tolist()
        kept = math.exp(-step_s / self._correlation_s)
        fresh = self._sigma * math.sqrt(1.0 - kept * kept)
        state, self._ahead = self._state, []
        for normal in self._normals[:steps]:
            state = kept * state + fresh * normal
            self._ahead.append(state)
        return np.exp(np.array(self._ahead) + self._shift)

    def take(self, steps: int) -> None:
        """So many of the steps looked at last did run."""
        if self._sigma:
            self._state = self._ahead[steps - 1]
            del self._ahead[:steps], self._normals[:steps]
