"""How KEDA and the HPA turn a load into a number of replicas: one trigger, a sum with AverageValue.

Their arithmetic is restated here, not called: ceil(total / target) unless the ratio is within the tolerance; scaling
down follows the highest wish of its window, scaling up the lowest of its own; going down is limited in pods a period.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AutoscalerConfig:
    """What a ScaledObject and the HPA's flags set. Times are seconds."""

    target: float
    """In-flight requests that one replica may carry."""
    min_replicas: int = 1
    max_replicas: int = 6
    sync_s: float = 15.0
    tolerance: float = 0.1
    """The HPA's default: a smaller move of the ratio is no move."""
    scale_up_window_s: float = 60.0
    scale_down_window_s: float = 300.0
    scale_down_pods: int = 1
    """Pods that may go within ``scale_down_period_s``."""
    scale_down_period_s: float = 60.0


@dataclass(slots=True)
class Autoscaler:
    """The HPA's memory: its wishes and its moves."""

    config: AutoscalerConfig
    target: float = field(init=False)
    """Patched in place by a controller; the memory stays, as with the same HPA object."""
    _wishes: list[tuple[float, int]] = field(default_factory=list)
    _removals: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.target = self.config.target

    def desired(self, now_s: float, total: float | None, replicas: int) -> int:
        """Replicas wanted now; ``total`` is the sum over all pods, None when the metric is missing (they then stay)."""
        config = self.config
        if total is None:
            return replicas
        wish = self._wish(total, replicas)
        longest_s = max(config.scale_up_window_s, config.scale_down_window_s)
        self._wishes = [(at_s, count) for at_s, count in self._wishes if now_s - at_s < longest_s] + [(now_s, wish)]
        highest = max(count for at_s, count in self._wishes if now_s - at_s <= config.scale_down_window_s)
        lowest = min(count for at_s, count in self._wishes if now_s - at_s <= config.scale_up_window_s)
        if replicas < lowest:
            return lowest
        if replicas > highest:
            return self._limited_down(now_s, highest, replicas)
        return replicas

    def _wish(self, total: float, replicas: int) -> int:
        config = self.config
        ratio = total / (self.target * max(1, replicas))
        near = 1.0 - config.tolerance <= ratio <= 1.0 + config.tolerance
        wish = replicas if near else math.ceil(total / self.target)
        return min(max(wish, config.min_replicas), config.max_replicas)

    def _limited_down(self, now_s: float, wanted: int, replicas: int) -> int:
        config = self.config
        self._removals = [(at_s, n) for at_s, n in self._removals if now_s - at_s < config.scale_down_period_s]
        may_go = config.scale_down_pods - sum(count for _, count in self._removals)
        after = max(wanted, replicas - max(0, may_go))
        if after < replicas:
            self._removals.append((now_s, replicas - after))
        return after
