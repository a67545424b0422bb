"""Small documents as `summary.summarise` makes them, for tests of what is done with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

EDGES_S = [0.0, 10.0, 20.0, 30.0, 40.0]


def policy(
    name: str, goodput: Sequence[float], tpot: Sequence[float | None] = (0.01,) * 4, **timeline: Any
) -> dict[str, Any]:
    """A policy of four intervals; what is not given is the same for every policy."""
    course = {
        "goodput_tps": list(goodput),
        "tpot_p50_s": list(tpot),
        "tpot_p95_s": [0.02] * 4,
        "ttft_p95_s": [0.3, None, 0.3, 0.3],
        "speculative_tokens": [3.0, None, 3.0, 3.0],
        "batch": [8.0] * 4,
        "waiting": [0.0] * 4,
        "replicas": [1.0] * 4,
        "target": [None] * 4,
    } | timeline
    totals = {
        "requests": 100,
        "answered": 100,
        "tokens_tps": 1000.0,
        "generated_tps": 990.0,
        "goodput_tps": sum(goodput) / 4,
        "goodput_per_replica_tps": sum(goodput) / 4,
        "requests_met": 0.9,
        "tpot_met": 0.9,
        "ttft_met": None,
        "tpot_s": {"p50": 0.01, "p95": 0.02, "p99": None},
        "ttft_s": {"p50": 0.1, "p95": 0.3, "p99": 0.4},
        "replica_seconds": 40.0,
        "gpu_seconds": 40.0,
        "most_replicas": 1,
        "short_share": None,
        "schedule_changes": 1,
        "target_changes": 0,
    }
    return {"name": name, "totals": totals, "timeline": course, "decisions": []}
