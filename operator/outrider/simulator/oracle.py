"""What a perfect table would do: the best K at every batch size, by the rows that the engines themselves run on.

The yardstick of policies. It knows the step times and the acceptance that a policy has to find out; it knows nothing of
the future, of prefill or of queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outrider.core.schedule import Schedule, from_lookup
from outrider.simulator.profile import Profile
from outrider.simulator.request import extended
from outrider.simulator.settings import CAPTURE_LIMIT


@dataclass(frozen=True, slots=True)
class Oracle:
    """One engine's step times and one kind of text."""

    profile: Profile
    acceptance: Sequence[float]
    """Unconditional by position; goes on with its last ratio."""
    capture_size: int = CAPTURE_LIMIT
    """The largest CUDA graph, in tokens."""
    context: float = 0.0
    """Mean number of cached tokens a request."""

    def tokens_per_step(self, k: int) -> float:
        """E(K) = 1 + the sum of the acceptance up to K: tokens that a request gets from a step, 1 to K + 1."""
        return 1.0 + sum(extended(self.acceptance, k)) if k else 1.0

    def rate_tps(self, batch: float, k: int, *, drafter: bool = True) -> float:
        """B * E(K) / T(B, K): output tokens a second of ``batch`` decoding requests."""
        seconds = self.profile.step_time_s(batch, k, self.capture_size, self.context, drafter=drafter)
        return batch * self.tokens_per_step(k) / seconds

    def tpot_s(self, batch: float, k: int, *, drafter: bool = True) -> float:
        """Seconds that one request waits for a token: at one batch size the best rate is the best TPOT as well."""
        return batch / self.rate_tps(batch, k, drafter=drafter)

    def scheduled_rate_tps(self, batch: int, schedule: Schedule) -> float:
        """Output tokens a second at a batch size under a schedule."""
        return self.rate_tps(batch, schedule.at(batch))

    def best_k(self, batch: int, values: Iterable[int]) -> int:
        """The K among ``values`` with the highest rate; the smaller one of two alike."""
        return max(sorted(values), key=lambda k: self.rate_tps(batch, k))

    def best_schedule(self, values: Iterable[int], max_batch: int) -> Schedule:
        """The best K for every batch size from 1 to ``max_batch``, as few rows as that takes."""
        allowed = tuple(values)
        return from_lookup([self.best_k(batch, allowed) for batch in range(1, max_batch + 1)])
