"""When the first token comes, by requests in flight: the wait to be scheduled, the own prefill and that of the others.

Engines measure all of it at once, as the time to the first token. Own prefill and a step's wait hardly depend on the
load, the prefill of others and the queue for it do, so the percentile that users asked for is a line in the requests in
flight of one engine,

    TTFT_p(B) = q + b·(B - m)        0 <= b <= q/m

fitted to windows of mean q and m (llm-d's workload-variant-autoscaler uses the same form for the mean). While few loads
were seen half of the time is taken to grow with the load. The line holds no acceptance: tokens that come slower delay
no first one, and a limit that follows from it cannot rise because drafts got worse.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.core.histogram import Histogram
from outrider.core.step_cells import keep_after

HALF_LIFE_S = 600.0
"""Prompts and their cached parts change with the traffic."""
MIN_REQUESTS = 20.0
"""First tokens in a window before its percentile says anything."""
MIN_WEIGHT = 100.0
"""First tokens, discounted, before a limit follows."""
PRIOR_SPREAD = 0.25
"""Relative standard deviation of the load from which on its windows decide the slope, and not the prior."""


@dataclass(frozen=True, slots=True)
class FirstToken:
    """Discounted sums over windows, each weighted by its first tokens: of 1, B, q, B² and B·q."""

    sums: tuple[float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0)

    @property
    def known(self) -> bool:
        """Whether enough first tokens were seen."""
        return self.sums[0] >= MIN_WEIGHT and self.sums[1] > 0.0

    def limit(self, objective_s: float) -> tuple[float, float]:
        """Requests in flight of one engine at which the percentile reaches the objective, 0 to infinity, and seconds
        that it takes at the mean load of the windows; only where `known`."""
        weight, loads, times_s, squares, products = self.sums
        load, time_s = loads / weight, times_s / weight
        most = time_s / load
        prior = (PRIOR_SPREAD * load) ** 2
        variance, covariance = max(0.0, squares / weight - load**2), products / weight - load * time_s
        slope = min(max((covariance + prior * most / 2.0) / (variance + prior), 0.0), most)
        if slope <= 0.0:
            return (float("inf") if time_s <= objective_s else 0.0), time_s
        return max(0.0, load + (objective_s - time_s) / slope), time_s


def update(state: FirstToken, ttft: Histogram, percentile: float, in_flight: float, elapsed_s: float) -> FirstToken:
    """Add a window in which one engine had so many requests in flight, ``elapsed_s`` after the last one."""
    time_s = ttft.quantile(percentile)
    if time_s is None or ttft.count < MIN_REQUESTS or in_flight <= 0.0:
        return state
    keep, count = keep_after(elapsed_s, HALF_LIFE_S), ttft.count
    new = (1.0, in_flight, time_s, in_flight**2, in_flight * time_s)
    first, load, time, square, product = (keep * old + count * one for old, one in zip(state.sums, new, strict=True))
    return FirstToken((first, load, time, square, product))
