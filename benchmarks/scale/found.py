"""What a run is made of and what it found: values, without the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

STATUS = "speculativeinferenceservices/status"
"""The writes that users see as news."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How long each phase takes, seconds."""

    settle_s: float
    """Before the rest: schedules and targets find their place, which they began to do when the engines came. Emulated
    in virtual time, a thousand services write 350 statuses a minute in the first ten minutes, and ten after half an
    hour."""
    rest_s: float
    changes_s: float
    """Single changes, one after another, over this time."""
    moving_s: float
    profile_s: float


FULL = Extent(settle_s=600.0, rest_s=90.0, changes_s=45.0, moving_s=45.0, profile_s=30.0)
QUICK = Extent(settle_s=15.0, rest_s=30.0, changes_s=10.0, moving_s=15.0, profile_s=15.0)


@dataclass(slots=True)
class Run:
    """What was found at one size; durations in seconds, None and empty where no phase told."""

    services: int
    command: str = ""
    """What it was measured with."""
    ended_at: str = ""
    """The phase that did not end in time, and why; empty for a whole run."""
    created_s: float | None = None
    """The client's writing of all resources, before the operator runs."""
    cold_start_s: float | None = None
    restart_s: float | None = None
    passes_s: list[float] = field(default_factory=list)
    """Control passes at rest and while single specs change."""
    passes_moving_s: list[float] = field(default_factory=list)
    single_s: list[float] = field(default_factory=list)
    burst_s: list[float] = field(default_factory=list)
    rest_minutes: float = 0.0
    rest_writes: dict[str, int] = field(default_factory=dict)
    rest_reads: int = 0
    rest_changes: dict[str, int] = field(default_factory=dict)
    """What the operator decided meanwhile, by kind of decision."""
    moving_minutes: float = 0.0
    moving_writes: dict[str, int] = field(default_factory=dict)
    queries_per_minute: float = 0.0
    rest_cpu_cores: float | None = None
    rest_rss_mib: float | None = None
    peak_rss_mib: float | None = None
    series: int = 0
    """In Prometheus' head."""
    warnings: dict[str, int] = field(default_factory=dict)
    """The operator's, by reason."""
    passes_alone_s: list[float] = field(default_factory=list)
    """Control passes in a process of their own, whose writes nobody takes; only where a whole run did not reach any."""
    alone_with_metrics: int = 0
    """Services that the last of these passes had metrics of."""
    alone_cpu_s: float | None = None
    """Processor time of that process, from its start."""
    alone_peak_rss_mib: float | None = None
    shares: dict[str, float] = field(default_factory=dict)
    """Of the operator's time, by part."""
    profile: str = ""
    """Folded stacks of the operator; not kept."""


def decisions(log: Iterable[Mapping[str, Any]], since_s: float, until_s: float) -> dict[str, int]:
    """Decisions in the operator's log between two Unix times, by kind."""
    found = Counter[str]()
    for line in log:
        at_s = datetime.fromisoformat(line["time"]).timestamp()
        kind, _, rest = line["message"].partition(" ")
        if since_s <= at_s < until_s and kind in ("Schedule", "Target", "Probe") and "→" in rest:
            found[kind] += 1
    return dict(found)
