"""The few numbers of each size, by their definitions; `DEFINITIONS` says them in words for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.figures import Target
from benchmarks.scale.found import STATUS, Run

DEFINITIONS: Mapping[str, str] = {
    "pass_seconds_p99": "Duration of a control pass over the whole fleet, while nothing changes and while single specs"
    " do; of the few passes of a run the slowest, as a rule. Where a whole run did not get that far, of passes in a"
    " process of their own, whose writes nobody takes.",
    "change_to_applied_seconds_p99": "From sending a change of one spec until the API server's watch tells of the"
    " changed child, one change after another while the rest of the fleet is idle.",
    "rss_mib": "The most memory that the operator's process held in any phase, as the kernel counts it, MiB.",
    "status_writes_per_minute_at_rest": "Writes of a status in the API server's audit log, under constant noisy load"
    " and without a change by anybody.",
    "prometheus_queries_per_minute": "Queries that Prometheus counted in the same time; the operator alone asks it.",
}
TARGETS: Mapping[str, Mapping[str, Target]] = {
    "1000": {
        "pass_seconds_p99": Target(2.0, False),
        "change_to_applied_seconds_p99": Target(1.0, False),
        "rss_mib": Target(350.0, False),
        "status_writes_per_minute_at_rest": Target(0.0, False),
    },
    "5000": {"pass_seconds_p99": Target(15.0, False)},
}


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value that so large a share of them stays at or under; None without any."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, -(-round(share * 1e6) * len(ordered) // 1_000_000) - 1)]


def headline(run: Run) -> dict[str, float | None]:
    """The figures of one size; None for what a phase that was not reached would have told."""
    minutes = run.rest_minutes
    return {
        "pass_seconds_p99": quantile(run.passes_s or run.passes_alone_s, 0.99),
        "change_to_applied_seconds_p99": quantile(run.single_s, 0.99),
        "rss_mib": run.peak_rss_mib or None,
        "status_writes_per_minute_at_rest": run.rest_writes.get(STATUS, 0) / minutes if minutes else None,
        "prometheus_queries_per_minute": run.queries_per_minute if minutes else None,
    }


def met(size: str, figure: str, value: float | None) -> bool | None:
    """Whether a figure reaches what is asked of it; None where nothing is, or nothing was measured."""
    target = TARGETS.get(size, {}).get(figure)
    return None if target is None or value is None else target.met(value)
