"""The time of every step that an engine may run, looked up from tables made of a profile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outrider.simulator.profile import Floats, Profile
from outrider.simulator.settings import EngineSettings


class StepTimes:
    """Step times of one engine; a table by batch size is made for each K at its first use."""

    def __init__(self, profile: Profile, settings: EngineSettings) -> None:
        self._profile = profile
        self._max_batch = settings.max_num_seqs
        self._capture_size = settings.capture_size
        self._drafter = settings.speculation is not None
        self._pass_s = profile.draft_pass_s if self._drafter else 0.0
        self._tables: dict[int, list[float]] = {}

    def step_s(self, decoding: int, width: int, k: int, prefill_tokens: int, context_sum: int) -> float:
        """Seconds of a step in which ``decoding`` requests verify ``width`` drafts each and K more are drafted.

        ``prefill_tokens`` run beside them; ``context_sum`` is the number of cached tokens of the decoding requests. The
        measured rows verify and draft the same K, so a step after a change is corrected by the difference in passes.
        """
        seconds = 0.0
        if decoding:
            seconds = self._table(width)[decoding] + (k - width) * self._pass_s
        if prefill_tokens:
            tokens = prefill_tokens + decoding * (width + 1)
            seconds = max(seconds, self._profile.prefill_time_s(tokens) + k * self._pass_s)
        return seconds + self._profile.context_s * context_sum

    def stretch_s(self, decoding: int, k: int, context_sum: int, num_emitted: NDArray[np.int64]) -> Floats:
        """Seconds of each of several steps in a row that verify K drafts and draft K more, with no prefill.

        ``context_sum`` is what is cached when the first one starts, ``num_emitted`` what each of them adds.
        """
        cached = context_sum + num_emitted.cumsum() - num_emitted
        return np.asarray(self._table(k)[decoding] + self._profile.context_s * cached)

    def _table(self, width: int) -> list[float]:
        table = self._tables.get(width)
        if table is None:
            table = self._tables[width] = self._profile.base_times_s(
                width, self._max_batch, self._capture_size, drafter=self._drafter
            )
        return table
