"""What a replay gave: every request, the fleet over time, and the few numbers that comparisons quote."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outrider.simulator.request import RequestRecord


@dataclass(frozen=True, slots=True)
class FleetSample:
    """The fleet at one moment."""

    time_s: float
    replicas: int
    """Starting ones included, draining ones not."""
    ready: int
    running: int
    waiting: int
    """Queued in engines, or for want of a ready one."""
    num_speculative_tokens: float
    """K by the schedules at the present batch sizes, mean over ready replicas."""
    schedule: str
    in_flight_target: float | None
    wanted: int | None = None
    """Replicas that the load asked the autoscaler for, before any bound; None without one."""
    replica_seconds: float = 0.0
    """Time that pods have held their GPUs so far, starting and draining included."""
    asked: int = 0
    """Set by the autoscaler; more than ``replicas`` while pods are refused."""
    pods: int = 0
    """Holding GPUs, draining ones too."""


@dataclass(frozen=True, slots=True)
class FleetResult:
    """The outcome of one replay; the same inputs give the same result."""

    duration_s: float
    records: Sequence[RequestRecord]
    """Finished requests, in the order they finished, those after ``duration_s`` included."""
    num_arrived: int
    generation_tokens: int
    """Generated within ``duration_s``, of unfinished requests too."""
    replica_seconds: float
    """Time that pods held their GPUs within ``duration_s``, starting and draining included."""
    timeline: Sequence[FleetSample]

    @property
    def token_goodput_tps(self) -> float:
        """Output tokens a second over the whole time."""
        return self.generation_tokens / self.duration_s

    @property
    def num_completed(self) -> int:
        """Requests answered in full."""
        return sum(record.finish_reason != "abort" for record in self.records)

    def tpot_attainment(self, objective_s: float) -> float:
        """Share of answers of two tokens or more whose TPOT is within the objective, 0 to 1; 1 without any."""
        tpots = self.tpots_s()
        return sum(tpot_s <= objective_s for tpot_s in tpots) / len(tpots) if tpots else 1.0

    def slo_attainment(self, *, tpot_s: float, ttft_s: float) -> float:
        """Share of all requests that arrived and met both objectives; an unanswered one met none."""
        met = sum(_meets(record, tpot_s, ttft_s) for record in self.records)
        return met / self.num_arrived if self.num_arrived else 1.0

    def goodput_rps(self, *, tpot_s: float, ttft_s: float) -> float:
        """Requests a second that met both objectives."""
        return self.slo_attainment(tpot_s=tpot_s, ttft_s=ttft_s) * self.num_arrived / self.duration_s

    def tpots_s(self) -> list[float]:
        """TPOT of every answer that has one."""
        return [
            record.tpot_s for record in self.records if record.finish_reason != "abort" and record.tpot_s is not None
        ]

    def ttfts_s(self) -> list[float]:
        """TTFT of every answer."""
        return [record.ttft_s for record in self.records if record.finish_reason != "abort"]

    @property
    def mean_replicas(self) -> float:
        """Pods holding GPUs, averaged over time."""
        return self.replica_seconds / self.duration_s


def quantile(values: Iterable[float], share: float) -> float | None:
    """The value that ``share`` of the values do not exceed; None without values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _meets(record: RequestRecord, tpot_s: float, ttft_s: float) -> bool:
    if record.finish_reason == "abort" or record.ttft_s > ttft_s:
        return False
    return record.tpot_s is None or record.tpot_s <= tpot_s
