"""What the autoscaler's triggers read: sums over the pods of a service, as old as the last scrape."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from outrider.core import engine_metrics as names
from outrider.simulator.autoscaler import Totals
from outrider.simulator.store import MetricsStore

RATE_S = 60.0
"""Of the rates: the usual ``rate(…[1m])``."""


def totals(
    store: MetricsStore, pods: Collection[str], arrived: Sequence[tuple[float, int]], now_s: float, stale_s: float
) -> Totals:
    """The sums at a moment.

    ``pods`` are the pods by uid; ``arrived`` what the gateway has counted, by scrape, oldest first; samples older than
    ``stale_s`` seconds are missing.
    """
    since_s = now_s - stale_s
    running = store.total(names.NUM_REQUESTS_RUNNING, pods, since_s)
    waiting = store.total(names.NUM_REQUESTS_WAITING, pods, since_s)
    cached = store.total(names.KV_CACHE_USAGE, pods, since_s)
    return {
        "in-flight": None if running is None else running + (waiting or 0.0),
        "waiting": waiting,
        "kv-cache": None if cached is None else 100.0 * cached,
        "requests": _rate(arrived, now_s),
        "tokens": store.rate(names.GENERATION_TOKENS, pods, now_s - RATE_S),
    }


def _rate(counted: Sequence[tuple[float, int]], now_s: float) -> float | None:
    """A second, between the first and the last count of the last minute."""
    window = [one for one in counted if one[0] >= now_s - RATE_S]
    if len(window) < 2:
        return None
    (first_s, first), (last_s, last) = window[0], window[-1]
    return (last - first) / (last_s - first_s)
