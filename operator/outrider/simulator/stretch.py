"""Decode-only steps in a row, drawn ahead of time.

Between two events of an engine (a request comes or ends, the schedule changes) its steps differ by chance and context
alone. They are computed at once and counted when somebody looks; what has not ended by then may still be dropped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from outrider.simulator.batch import Foresight
from outrider.simulator.profile import Floats


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps that follow each other without a gap; at most the last one ends a request."""

    moments_s: Sequence[float]
    """The start of the first step, then the end of each."""
    num_speculative_tokens: int
    """K, verified and drafted by all of them."""
    foreseen: Foresight

    @classmethod
    def starting(cls, now_s: float, seconds: Floats, k: int, foreseen: Foresight) -> Stretch:
        """Steps of these lengths from now on."""
        return cls(list(accumulate(seconds.tolist(), initial=now_s)), k, foreseen)

    def __len__(self) -> int:
        """The number of steps."""
        return len(self.moments_s) - 1

    def ended(self, now_s: float) -> int:
        """Steps that are over at this moment."""
        return max(0, bisect_right(self.moments_s, now_s) - 1)

    def seconds(self, steps: int) -> list[float]:
        """The lengths of the first so many steps."""
        return [end_s - start_s for start_s, end_s in pairwise(self.moments_s[: steps + 1])]

    def after(self, steps: int) -> Stretch:
        """What is left when so many steps are over."""
        return Stretch(self.moments_s[steps:], self.num_speculative_tokens, self.foreseen.after(steps))

    def until(self, steps: int) -> Stretch:
        """The first so many steps alone."""
        return Stretch(self.moments_s[: steps + 1], self.num_speculative_tokens, self.foreseen.until(steps))
