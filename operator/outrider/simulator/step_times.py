"""The time of every step that an engine may run: looked up from tables made of a profile, then disturbed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.simulator.noise import StepNoise
from outrider.simulator.profile import Floats, Profile
from outrider.simulator.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class Slowdown:
    """How many times longer steps take than they should."""

    every: float = 1.0
    """All steps of an engine."""
    by_k: Mapping[int, float] = field(default_factory=dict)
    """Moreover those that draft this K."""

    def factor(self, k: int) -> float:
        """For a step that drafts K."""
        return self.every * self.by_k.get(k, 1.0)


UNDISTURBED = Slowdown()


class StepTimes:
    """Step times of one engine; a table by batch size is made for each K at its first use."""

    def __init__(self, profile: Profile, settings: EngineSettings, noise: StepNoise | None = None) -> None:
        self._profile = profile
        self._max_batch = settings.max_num_seqs
        self._capture_size = settings.capture_size
        self._drafter = settings.speculation is not None
        self._pass_s = profile.draft_pass_s if self._drafter else 0.0
        self._tables: dict[int, list[float]] = {}
        self._noise = noise
        self._slowdown = UNDISTURBED

    def step_s(self, now_s: float, decoding: int, width: int, k: int, prefill_tokens: int, context_sum: int) -> float:
        """Seconds of a step in which ``decoding`` requests verify ``width`` drafts each and K more are drafted.

        It starts at ``now_s``. ``prefill_tokens`` run beside them; ``context_sum`` is the number of cached tokens of
        the decoding requests. The measured rows verify and draft the same K, so a step after a change is corrected by
        the difference in passes.
        """
        seconds = 0.0
        if decoding:
            seconds = self._table(width)[decoding] + (k - width) * self._pass_s
        if prefill_tokens:
            profile, decode_tokens = self._profile, decoding * (width + 1)
            tokens = prefill_tokens + decode_tokens
            seconds += prefill_tokens * profile.prompt_s
            if decode_tokens <= self._capture_size < tokens:
                seconds += profile.jump_s
            seconds = max(seconds, profile.prefill_time_s(tokens, beside=bool(decoding)) + k * self._pass_s)
        seconds += self._profile.context_s * context_sum
        return float(seconds * self._factors(now_s, 1, k, seconds)[0]) if self._disturbed else seconds

    def stretch_s(
        self, now_s: float, decoding: int, k: int, context_sum: int, num_emitted: NDArray[np.int64]
    ) -> Floats:
        """Seconds of each of several steps in a row that verify K drafts and draft K more, with no prefill.

        The first one starts at ``now_s`` with ``context_sum`` tokens cached; ``num_emitted`` is what each of them adds.
        """
        cached = context_sum + num_emitted.cumsum() - num_emitted
        base_s = self._table(k)[decoding]
        seconds = base_s + self._profile.context_s * cached
        return np.asarray(seconds * self._factors(now_s, len(seconds), k, base_s) if self._disturbed else seconds)

    def slow_down(self, slowdown: Slowdown) -> None:
        """From the next step told on."""
        self._slowdown = slowdown

    @property
    def _disturbed(self) -> bool:
        return self._noise is not None or self._slowdown != UNDISTURBED

    def _factors(self, now_s: float, steps: int, k: int, step_s: float) -> Floats:
        slow = self._slowdown.factor(k)
        return np.full(steps, slow) if self._noise is None else slow * self._noise.at(now_s, steps, step_s)

    def _table(self, width: int) -> list[float]:
        table = self._tables.get(width)
        if table is None:
            table = self._tables[width] = self._profile.base_times_s(
                width, self._max_batch, self._capture_size, drafter=self._drafter
            )
        return table
