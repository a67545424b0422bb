"""The plugin's metrics on vLLM's own ``/metrics``: the engine half's last snapshot, and what the front door saw itself.

They are put together at each scrape and not kept as counters of this process, because they are counted in the engine
core. In prometheus_client's multi-process mode (several API servers) collectors are not asked: these families are then
missing, and `GET /schedule` alone tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector

from outrider_runtime.meter import STALL_S
from outrider_runtime.progress import Progress

_OWN = ["engine"]
_ENGINE = ["0"]  # With data parallelism, where engines have other numbers, vLLM drops the schedule.
_CONTROLLABLE = "1 if K can change while the engine runs."
_CELL = ["engine", "batch", "speculative_tokens", "kind"]
_CELL_FAMILIES = {
    "outrider_engine_steps": 3,
    "outrider_engine_step_seconds": 4,
    "outrider_engine_step_seconds_squared": 5,
    "outrider_engine_step_requests": 6,
}
"""Column of a snapshot's row by family."""


class Exposition(Collector):
    """Turns the last snapshot into metrics."""

    def __init__(self, progress: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self.snapshot: dict[str, Any] | None = None
        self._progress, self._clock = progress, clock
        self._stalls_shown, self._stall_s_shown = 0.0, 0.0

    def describe(self) -> list[Metric]:
        """Nothing in advance: cells appear as steps of their kind do."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families; without a snapshot only what this process knows, and that nothing can be told."""
        rejected = CounterMetricFamily(
            "outrider_engine_rejected", "Requests refused at once, by reason.", labels=["engine", "reason"]
        )
        for reason, count in self._progress.rejected.items():
            rejected.add_metric([*_ENGINE, reason], count)
        yield rejected
        if self.snapshot is None:
            yield _gauge("controllable", _CONTROLLABLE, 0.0)
        else:
            yield from self._gauges(self.snapshot)
            yield from self._stalls(self.snapshot)
            yield from self._cells(self.snapshot["cells"])

    def _gauges(self, snapshot: dict[str, Any]) -> Iterator[Metric]:
        silent_s = self._progress.silent_s(self._clock())
        for name, text, value in (
            ("schedule_generation", "Generation of the last schedule taken over.", snapshot["generation"]),
            ("schedule_initial", "1 while the initial schedule runs.", snapshot["initial"]),
            ("schedule_lease_seconds", "Seconds until the initial schedule returns.", snapshot["lease_s"]),
            ("controllable", _CONTROLLABLE, snapshot["controllable"]),
            ("longest_step_seconds", "Longest step since the scrape before.", snapshot["longest_step_s"]),
            ("seconds_since_token", "Seconds since the last token.", max(silent_s, snapshot["since_token_s"])),
        ):
            yield _gauge(name, text, float(value))
        info = InfoMetricFamily("outrider_engine_schedule", "The schedule in force.", labels=_OWN)
        info.add_metric(_ENGINE, {"schedule": snapshot["schedule"]})
        yield info

    def _stalls(self, snapshot: dict[str, Any]) -> Iterator[Metric]:
        # A step that hangs now has not ended, so the engine core has not counted it. Silence may turn out to have been
        # no step at all; a counter must not go back for that, or it would look like a restart.
        silent_s = self._progress.silent_s(self._clock())
        hangs = silent_s if silent_s > STALL_S else 0.0
        self._stalls_shown = max(self._stalls_shown, snapshot["stalls"] + bool(hangs))
        self._stall_s_shown = max(self._stall_s_shown, snapshot["stall_s"] + hangs)
        stalls = CounterMetricFamily("outrider_engine_stalls", "Steps of over a second.", labels=_OWN)
        stalls.add_metric(_ENGINE, self._stalls_shown)
        seconds = CounterMetricFamily("outrider_engine_stall_seconds", "Seconds of such steps.", labels=_OWN)
        seconds.add_metric(_ENGINE, self._stall_s_shown)
        yield from (stalls, seconds)

    def _cells(self, rows: list[list[Any]]) -> Iterator[Metric]:
        for name, column in _CELL_FAMILIES.items():
            family = CounterMetricFamily(name, "Engine steps by batch bucket, scheduled K and kind.", labels=_CELL)
            for row in rows:
                batch, k, mixed = row[:3]
                family.add_metric([*_ENGINE, str(batch), str(k), "mixed" if mixed else "decode"], row[column])
            yield family


def _gauge(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(f"outrider_engine_{name}", text, labels=_OWN)
    family.add_metric(_ENGINE, value)
    return family


def register(exposition: Exposition) -> None:
    """Show it on ``/metrics``."""
    REGISTRY.register(exposition)
