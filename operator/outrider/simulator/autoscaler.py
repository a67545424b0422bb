"""How KEDA and the HPA turn a load into a number of replicas: triggers that are sums with AverageValue.

Their arithmetic is restated here, not called: for each trigger ceil(total / target) unless the ratio is within the
tolerance, and the highest of these; scaling down follows the highest wish of its window, scaling up the lowest of its
own; both are limited in pods a period. A trigger without a value may not lower the number.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Signal = Literal["in-flight", "waiting", "kv-cache", "requests", "tokens"]
"""What a trigger sums over the pods: requests running or waiting; those waiting; use of the KV cache in percent;
requests and output tokens a second over the last minute."""
Totals = Mapping[Signal, float | None]
"""The sums of a moment; None where the metric is missing."""


class Scaler(Protocol):
    """Whoever sets the number of replicas."""

    target: float | None
    """Of the first trigger; None for one that has none."""
    held: int
    """Requests that the trigger for those in flight answers with at the least, while there are any."""
    wanted: int | None
    """Replicas that the load asked for at the last turn, before any bound; None if that is not known."""
    most: int | None
    """The upper bound, patched in place by whoever shares GPUs out; None for one that has none."""

    def desired(self, now_s: float, totals: Totals, replicas: int) -> int:
        """Replicas wanted now, of which there are ``replicas``."""


@dataclass(frozen=True, slots=True)
class AutoscalerConfig:
    """What a ScaledObject and the HPA's flags set. Times are seconds."""

    target: float
    """Of the first trigger, for one replica: by default requests in flight."""
    signal: Signal = "in-flight"
    waiting_target: Callable[[int], int] | None = None
    """Waiting requests that one replica may have, by the first trigger's target; None: no such trigger."""
    kv_cache_target: float | None = None
    """Percent of the KV cache that one replica may use; None: no such trigger."""
    min_replicas: int = 1
    max_replicas: int = 6
    sync_s: float = 15.0
    tolerance: float = 0.1
    """The HPA's default: a smaller move of the ratio is no move."""
    scale_up_window_s: float = 60.0
    scale_up_pods: int = 4
    """Pods that may come within ``scale_up_period_s``, or as many again as there were, if that is more."""
    scale_up_period_s: float = 60.0
    scale_down_window_s: float = 300.0
    scale_down_pods: int = 1
    """Pods that may go within ``scale_down_period_s``."""
    scale_down_period_s: float = 60.0

    def scaler(self) -> Autoscaler:
        """One that has seen nothing yet."""
        return Autoscaler(self)


@dataclass(frozen=True, slots=True)
class Plan:
    """Numbers of replicas fixed in advance by someone who knows the load."""

    steps: Sequence[tuple[float, int]]
    """From when on, seconds, how many; the first one from 0."""
    sync_s: float = 15.0

    def at(self, now_s: float) -> int:
        """The number of a moment."""
        return self.steps[max(0, bisect_right(self.steps, (now_s, 1 << 30)) - 1)][1]

    def scaler(self) -> Planned:
        """One that keeps to the plan."""
        return Planned(self)


@dataclass(slots=True)
class Planned:
    """Keeps to a plan, whatever the metrics say."""

    plan: Plan
    target: float | None = None
    held: int = 0
    wanted: int | None = None
    most: int | None = None

    def desired(self, now_s: float, totals: Totals, replicas: int) -> int:  # noqa: ARG002
        """What the plan says."""
        return self.plan.at(now_s)


@dataclass(slots=True)
class Autoscaler:
    """The HPA's memory: its wishes and its moves."""

    config: AutoscalerConfig
    target: float | None = field(init=False)
    """Patched in place by a controller; the memory stays, as with the same HPA object."""
    held: int = field(default=0, init=False)
    wanted: int | None = field(default=None, init=False)
    most: int | None = field(init=False)
    """A number below the replicas that there are takes the others at once, as the HPA does."""
    _wishes: list[tuple[float, int]] = field(default_factory=list)
    _moves: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.target, self.most = self.config.target, self.config.max_replicas

    def desired(self, now_s: float, totals: Totals, replicas: int) -> int:
        """Replicas wanted now; without any metric they stay."""
        config = self.config
        wish = self._wish(totals, replicas)
        if self.most is not None and replicas > self.most:
            return self.most
        if wish is None:
            return replicas
        longest_s = max(config.scale_up_window_s, config.scale_down_window_s)
        self._wishes = [(at_s, count) for at_s, count in self._wishes if now_s - at_s < longest_s] + [(now_s, wish)]
        highest = max(count for at_s, count in self._wishes if now_s - at_s <= config.scale_down_window_s)
        lowest = min(count for at_s, count in self._wishes if now_s - at_s <= config.scale_up_window_s)
        lowest, highest = self._bounded(lowest), self._bounded(highest)
        if replicas < lowest:
            return self._limited(now_s, lowest, replicas)
        if replicas > highest:
            return self._limited(now_s, highest, replicas)
        return replicas

    def _bounded(self, wanted: int) -> int:
        least = max(wanted, self.config.min_replicas)
        return least if self.most is None else min(least, self.most)

    def _triggers(self) -> dict[Signal, float]:
        """The target of each; the first one's moves, and that for waiting requests with it."""
        config, target = self.config, self.config.target if self.target is None else self.target
        triggers: dict[Signal, float] = {config.signal: target}
        if config.waiting_target is not None:
            triggers["waiting"] = float(config.waiting_target(int(target)))
        if config.kv_cache_target is not None:
            triggers["kv-cache"] = config.kv_cache_target
        return triggers

    def _wish(self, totals: Totals, replicas: int) -> int | None:
        config, wishes, missing = self.config, [], False
        for signal, target in self._triggers().items():
            total = totals.get(signal)
            if total is None:
                missing = True
                continue
            if signal == "in-flight" and total > 0:
                total = max(total, self.held)
            ratio = total / (target * max(1, replicas))
            near = 1.0 - config.tolerance <= ratio <= 1.0 + config.tolerance
            wishes.append(replicas if near else math.ceil(total / target))
        if not wishes or (missing and max(wishes) < replicas):
            return None
        self.wanted = max(wishes)
        return self.wanted

    def _limited(self, now_s: float, wanted: int, replicas: int) -> int:
        """As far as the periods' limits let it go; moves up count against those up alone, and so down."""
        config = self.config
        longest_s = max(config.scale_up_period_s, config.scale_down_period_s)
        self._moves = [(at_s, change) for at_s, change in self._moves if now_s - at_s < longest_s]
        if wanted > replicas:
            came = sum(n for at_s, n in self._moves if n > 0 and now_s - at_s < config.scale_up_period_s)
            before = replicas - came
            after = max(replicas, min(wanted, max(2 * before, before + config.scale_up_pods)))
        else:
            went = -sum(n for at_s, n in self._moves if n < 0 and now_s - at_s < config.scale_down_period_s)
            after = max(wanted, replicas - max(0, config.scale_down_pods - went))
        if after != replicas:
            self._moves.append((now_s, after - replicas))
        return after
