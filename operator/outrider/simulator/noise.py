"""Step times that waver: a slow random factor of the moment, and one that an engine keeps from its start on.

Both are log-normal, and noise changes no average: the mean over steps is 1. The factor of the moment follows an
autoregressive process of first order (AR(1)) in time: windows of a few seconds are off together, as in measurements,
and do not average out within a control period. It depends on the clock and the seed alone, so that two policies meet
the same good and bad moments, and a difference between them is theirs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from outrider.simulator.profile import Floats

DRAWS = 1024  # normal numbers drawn at a time
GRID = 20  # moments with a factor of their own in the time that correlation takes to fall to 1/e


@dataclass(frozen=True, slots=True)
class Noise:
    """How much step times waver; the default is not at all."""

    step_cv: float = 0.0
    """Standard deviation of a step's factor."""
    correlation_s: float = 10.0
    """Time after which the autocorrelation of the (logarithmic) factors has fallen to 1/e."""
    boot_cv: float = 0.0
    """Standard deviation of an engine's own factor, drawn when its process starts."""


QUIET = Noise()
MODEST = Noise(step_cv=0.05, correlation_s=10.0, boot_cv=0.03)
"""For benchmarks. Published spread between boots of one engine: 13.9 % with CUDA graphs (a small card, 12 boots) and
1.4 % without; 3 % is towards the quiet end, so that a policy is not judged by luck. Steps: windows of half a second of
our own measurement are off by some 10 % at most, which 5 % gives."""


class StepNoise:
    """The factors of one engine's steps, by the moment at which they start."""

    def __init__(self, noise: Noise, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 1])  # apart from the engine's other draws
        self._sigma = math.sqrt(math.log1p(noise.step_cv**2))
        self._grid_s = noise.correlation_s / GRID
        boot_sigma = math.sqrt(math.log1p(noise.boot_cv**2))
        self.boot_factor = math.exp(boot_sigma * float(self._rng.standard_normal()) - boot_sigma**2 / 2)
        """The engine's own, on every step."""
        self._state = self._sigma * float(self._rng.standard_normal())
        self._factors = np.zeros(0)

    def at(self, start_s: float, steps: int, step_s: float) -> Floats:
        """The factors of steps in a row that take about ``step_s`` each, the first one from ``start_s`` on."""
        if not self._sigma:
            return np.full(steps, self.boot_factor)
        moments = ((start_s + step_s * np.arange(steps)) / self._grid_s).astype(int)
        while moments[-1] >= len(self._factors):
            self._go_on()
        return np.asarray(self._factors[moments])

    def _go_on(self) -> None:
        kept = math.exp(-1.0 / GRID)
        fresh, states = self._sigma * math.sqrt(1.0 - kept * kept), []
        for normal in self._rng.standard_normal(DRAWS).tolist():
            self._state = kept * self._state + fresh * normal
            states.append(self._state)
        # Fewer steps fit into a slow moment: with this shift the mean over steps, not that over time, is 1.
        factors = self.boot_factor * np.exp(np.array(states) + self._sigma**2 / 2)
        self._factors = np.concatenate([self._factors, factors])
