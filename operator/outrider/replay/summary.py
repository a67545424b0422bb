"""One run in numbers: totals, and its course by interval.

A request counts as good if it was answered and met every objective of the resource. What became of a request is
booked in the interval in which it arrived: every policy then answers for the same requests in the same interval, and a
slow one is not credited later with what a fast one has already delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.replay.experiment import Run
from outrider.simulator.request import RequestRecord
from outrider.simulator.results import FleetResult, FleetSample, quantile

INTERVALS_S = (5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
MOST_INTERVALS = 80
"""More points than this no plot of a page's width shows apart."""

Floats = NDArray[np.float64]


def interval_s(duration_s: float) -> float:
    """The length of the intervals that a course is told in: the shortest that gives at most `MOST_INTERVALS`."""
    return float(next((one for one in INTERVALS_S if duration_s <= one * MOST_INTERVALS), INTERVALS_S[-1]))


def summarise(run: Run, tpot_s: float | None, ttft_s: float | None, gpus: int = 1) -> dict[str, Any]:
    """The run as a document; the objectives are seconds, None where there is none, ``gpus`` those of a replica."""
    result = run.result
    edges = edges_s(result.duration_s)
    good = [record for record in result.records if is_good(record, tpot_s, ttft_s)]
    good_tokens, _ = np.histogram(
        [one.request.arrival_s for one in good], edges, weights=[one.output_tokens for one in good]
    )
    return {
        "name": run.policy,
        "totals": {
            **_totals(result, float(good_tokens.sum()), len(good), tpot_s, ttft_s),
            **_held(run, gpus),
        },
        "timeline": {
            "goodput_tps": [round(float(rate), 1) for rate in good_tokens / np.diff(edges)],
            **_latencies(result, edges),
            **_samples(result.timeline, edges),
        },
        "decisions": [
            {"at_s": one.at_s, "kind": one.kind, "before": one.before, "after": one.after, "reason": one.reason}
            for one in run.decisions
            if one.at_s <= result.duration_s
        ],
    }


def edges_s(duration_s: float) -> Floats:
    """The bounds of the intervals, from 0 to the end."""
    return np.append(np.arange(0.0, duration_s, interval_s(duration_s)), duration_s)


def is_good(record: RequestRecord, tpot_s: float | None, ttft_s: float | None) -> bool:
    """Whether a request was answered within every objective."""
    if record.finish_reason == "abort" or record.ttft_s > (inf if ttft_s is None else ttft_s):
        return False
    return record.tpot_s is None or record.tpot_s <= (inf if tpot_s is None else tpot_s)


def _totals(
    result: FleetResult, good_tokens: float, good: int, tpot_s: float | None, ttft_s: float | None
) -> dict[str, Any]:
    tpots, ttfts, duration_s = result.tpots_s(), result.ttfts_s(), result.duration_s
    within = [one for one in result.timeline if one.time_s <= duration_s]
    return {
        "requests": result.num_arrived,
        "answered": result.num_completed,
        "tokens_tps": round(sum(one.output_tokens for one in result.records) / duration_s, 1),
        "generated_tps": round(result.token_goodput_tps, 1),
        "goodput_tps": round(good_tokens / duration_s, 1),
        "goodput_per_replica_tps": round(good_tokens / max(result.replica_seconds, 1e-9), 1),
        "requests_met": _share(good, result.num_arrived),
        "tpot_met": None if tpot_s is None else _share(sum(one <= tpot_s for one in tpots), len(tpots)),
        "ttft_met": None if ttft_s is None else _share(sum(one <= ttft_s for one in ttfts), len(ttfts)),
        "tpot_s": _quantiles(tpots),
        "ttft_s": _quantiles(ttfts),
        "schedule_changes": _changes(one.schedule for one in within if one.schedule),
        "target_changes": _changes(one.in_flight_target for one in within),
    }


def _held(run: Run, gpus: int) -> dict[str, Any]:
    """What the replicas took, and for which share of the time the load asked for more than there may be."""
    result = run.result
    within = [one for one in result.timeline if one.time_s <= result.duration_s]
    short = sum(one.wanted is not None and one.wanted > (run.max_replicas or inf) for one in within)
    return {
        "replica_seconds": round(result.replica_seconds, 1),
        "gpu_seconds": round(gpus * result.replica_seconds, 1),
        "most_replicas": max((one.replicas for one in within), default=0),
        "short_share": None if run.max_replicas is None else _share(short, len(within)),
    }


def _latencies(result: FleetResult, edges: Floats) -> dict[str, list[float | None]]:
    """Quantiles over the answers to the requests that arrived in each interval."""
    tpots: list[list[float]] = [[] for _ in edges[1:]]
    ttfts: list[list[float]] = [[] for _ in edges[1:]]
    for record in result.records:
        at = int(np.searchsorted(edges, record.request.arrival_s, side="right")) - 1
        if record.finish_reason == "abort":
            continue
        ttfts[at].append(record.ttft_s)
        if record.tpot_s is not None:
            tpots[at].append(record.tpot_s)
    return {
        "tpot_p50_s": [_at(values, 0.5) for values in tpots],
        "tpot_p95_s": [_at(values, 0.95) for values in tpots],
        "ttft_p95_s": [_at(values, 0.95) for values in ttfts],
    }


def _samples(timeline: Sequence[FleetSample], edges: Floats) -> dict[str, list[float | None]]:
    """What scrapes saw, averaged over each interval; K only where something ran."""
    samples: list[list[FleetSample]] = [[] for _ in edges[1:]]
    for sample in timeline:
        at = int(np.searchsorted(edges, sample.time_s, side="left")) - 1
        if 0 <= at < len(samples):
            samples[at].append(sample)

    def mean(value: Callable[[FleetSample], float | None], digits: int) -> list[float | None]:
        return [_mean([one for sample in part if (one := value(sample)) is not None], digits) for part in samples]

    return {
        "speculative_tokens": mean(lambda one: one.num_speculative_tokens if one.running else None, 2),
        "batch": mean(lambda one: one.running / one.ready if one.ready else None, 1),
        "waiting": mean(lambda one: float(one.waiting), 1),
        "replicas": mean(lambda one: float(one.replicas), 2),
        "target": [part[-1].in_flight_target if part else None for part in samples],
    }


def _quantiles(values: Sequence[float]) -> dict[str, float | None]:
    return {f"p{round(100 * share)}": _at(values, share) for share in (0.5, 0.95, 0.99)}


def _at(values: Sequence[float], share: float) -> float | None:
    value = quantile(values, share)
    return None if value is None else round(value, 5)


def _mean(values: Sequence[float], digits: int) -> float | None:
    return round(sum(values) / len(values), digits) if values else None


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 1.0


def _changes(values: Iterable[Any]) -> int:
    return max(0, sum(1 for _ in groupby(values)) - 1)
