"""Faults of a replay: they begin and end when they should, and leave the traces that a real one leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from outrider.core.engine_metrics import GENERATION_TOKENS, PROCESS_START
from outrider.core.schedule import constant
from outrider.core.series import Series
from outrider.simulator.autoscaler import AutoscalerConfig
from outrider.simulator.faults import Collapse, Fault, MetricsOutage, Restart, SlowReplica, slowdown
from outrider.simulator.fleet import Commands, Fleet, FleetConfig
from outrider.simulator.results import FleetResult
from outrider.simulator.step_times import Slowdown
from outrider.simulator.workload import closed_loop, constant_rate
from tests.unit.simulator.builders import profile, settings

DURATION_S = 60.0


@dataclass
class Watcher:
    """Keeps what it sees, and changes K to 1 once."""

    change_s: float = float("inf")
    seen: dict[float, Sequence[Series]] = field(default_factory=dict)

    def control(self, now_s: float, series: Sequence[Series], replicas: int) -> Commands:
        self.seen[now_s] = series
        return Commands(schedule=constant(1, 256)) if now_s >= self.change_s else Commands()

    def of(self, now_s: float, pod: str, aliases: Sequence[str]) -> Series:
        return next(one for one in self.seen[now_s] if one.labels["pod"] == pod and one.name in aliases)


def run(*faults: Fault, watcher: Watcher | None = None, **changes: Any) -> FleetResult:
    chosen: dict[str, Any] = {"settings": settings(3), "profile": profile(), "replicas": 2, "seed": 1}
    fleet = Fleet(FleetConfig(**(chosen | changes), faults=faults), watcher)
    return fleet.run(constant_rate(4, DURATION_S, prompt_tokens=300, output_tokens=300), DURATION_S)


def mean_tpot_s(result: FleetResult, from_s: float, until_s: float) -> float:
    """Of requests that lie in the span as a whole."""
    tpots = [
        record.tpot_s
        for record in result.records
        if record.tpot_s and from_s <= record.request.arrival_s and record.finished_s < until_s
    ]
    return sum(tpots) / len(tpots)


def test_no_sample_falls_into_an_outage_and_counters_go_on_through_it() -> None:
    watcher = Watcher()
    result = run(MetricsOutage(20.0, 40.0), watcher=watcher)
    tokens = watcher.of(60.0, "chat-0", GENERATION_TOKENS).samples
    assert [time_s for time_s, _ in tokens] == [5.0, 10.0, 15.0, 40.0, 45.0, 50.0, 55.0, 60.0]
    assert tokens[3][1] > 1.5 * tokens[2][1]
    assert result.records == run().records


def test_an_outage_keeps_the_autoscaler_where_it_is() -> None:
    scaler = AutoscalerConfig(target=2, max_replicas=4, scale_up_window_s=0)
    with_metrics, without = (run(*faults, autoscaler=scaler) for faults in ((), (MetricsOutage(0.0, DURATION_S),)))
    assert max(sample.replicas for sample in with_metrics.timeline) > 2
    assert {sample.replicas for sample in without.timeline if sample.time_s < DURATION_S} == {2}


def test_a_restart_sets_counters_back_in_the_same_pod_and_aborts_what_ran() -> None:
    watcher = Watcher(change_s=15.0)
    result = run(Restart(0, 22.0), watcher=watcher, pod_start_s=8.0)
    tokens = dict(watcher.of(60.0, "chat-0", GENERATION_TOKENS).samples)
    assert 25.0 not in tokens
    assert tokens[30.0] < tokens[20.0] < tokens[60.0] + tokens[20.0]
    starts = [value for _, value in watcher.of(60.0, "chat-0", PROCESS_START).samples]
    assert sorted(set(starts)) == [0.0, 22.0]
    aborted = [record.finished_s for record in result.records if record.finish_reason == "abort"]
    assert aborted
    assert set(aborted) == {22.0}
    assert result.num_completed == result.num_arrived - len(aborted)
    assert result.replica_seconds == 2 * DURATION_S
    late = [sample.num_speculative_tokens for sample in result.timeline if sample.time_s > 30.0]
    assert set(late) == {1.0}, "the engine that came back got the present schedule"


def test_a_collapse_slows_one_k_alone_from_its_moment_on() -> None:
    plain, collapsed = run(), run(Collapse(3, 4.0, from_s=30.0))
    assert mean_tpot_s(collapsed, 0, 30) == pytest.approx(mean_tpot_s(plain, 0, 30))
    assert mean_tpot_s(collapsed, 30, 200) > 3 * mean_tpot_s(plain, 30, 200)
    assert run(Collapse(2, 4.0)).records == plain.records
    saved = run(Collapse(3, 4.0, from_s=20.0), watcher=Watcher(change_s=30.0))
    assert mean_tpot_s(saved, 30, 200) < 0.5 * mean_tpot_s(collapsed, 30, 200)


def test_a_slow_replica_is_the_only_slow_one_and_recovers() -> None:
    fleet = Fleet(
        FleetConfig(settings(3), profile(), replicas=2, seed=1, faults=(SlowReplica(1, 3.0, until_s=30.0),), tail_s=0.0)
    )
    fleet.run(closed_loop(2, prompt_tokens=200, output_tokens=50_000), 60.0)
    fast, slow = (
        [value for _, value in one.samples] for one in fleet.store.window(0, 60) if one.name in GENERATION_TOKENS
    )
    at = {moment: moment // 5 - 1 for moment in (30, 35, 60)}
    assert fast[at[30]] / slow[at[30]] == pytest.approx(3.0, rel=0.1)
    assert (fast[at[60]] - fast[at[35]]) / (slow[at[60]] - slow[at[35]]) == pytest.approx(1.0, rel=0.1)


def test_faults_at_one_moment_multiply() -> None:
    faults = (SlowReplica(0, 2.0), SlowReplica(0, 1.5, from_s=10.0), Collapse(3, 5.0), Collapse(3, 2.0, until_s=5.0))
    assert slowdown(faults, 0, 0.0) == Slowdown(2.0, {3: 10.0})
    assert slowdown(faults, 0, 10.0) == Slowdown(3.0, {3: 5.0})
    assert slowdown(faults, 1, 10.0).factor(2) == 1.0
