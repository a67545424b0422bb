"""Replays of a service: routing, pods that start and drain, a controller's commands, and what it sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from outrider.core.observation import Observation, observe
from outrider.core.schedule import Schedule, constant
from outrider.core.series import Series
from outrider.engine.command_line import HISTOGRAM_BUCKETS
from outrider.simulator.autoscaler import AutoscalerConfig
from outrider.simulator.fleet import Commands, Fleet, FleetConfig
from outrider.simulator.results import FleetResult, quantile
from outrider.simulator.workload import (
    Phase,
    constant_rate,
    geometric,
    poisson,
    with_phases,
)
from tests.unit.simulator.builders import profile, settings

DURATION_S = 60.0


@dataclass
class Script:
    """A controller that follows a list of times and remembers what it saw."""

    plan: dict[float, Commands] = field(default_factory=dict)
    seen: list[tuple[float, Sequence[Series], int]] = field(default_factory=list)

    def control(self, now_s: float, series: Sequence[Series], replicas: int) -> Commands:
        self.seen.append((now_s, series, replicas))
        return self.plan.get(now_s, Commands())


def config(schedule: Schedule | str | int = 3, **changes: Any) -> FleetConfig:
    chosen: dict[str, Any] = {"settings": settings(schedule), "profile": profile(), "replicas": 2, "seed": 1}
    return FleetConfig(**(chosen | changes))


def test_the_same_seed_gives_the_same_result() -> None:
    def run(seed: int) -> FleetResult:
        load = poisson(6, 25, prompt_tokens=500, output_tokens=150, seed=5)
        return Fleet(config(seed=seed, autoscaler=AutoscalerConfig(target=4))).run(load, 25)

    assert run(1) == run(1)
    assert run(1).records != run(2).records


def test_every_request_is_answered_and_every_token_counted() -> None:
    load = list(poisson(6, DURATION_S, prompt_tokens=500, output_tokens=150))
    result = Fleet(config()).run(load, DURATION_S)
    assert result.num_arrived == result.num_completed == len(load)
    late = sum(record.output_tokens for record in result.records if record.finished_s > DURATION_S)
    total = 150 * len(load)
    assert total - late <= result.generation_tokens <= total
    assert result.replica_seconds == 2 * DURATION_S


def test_requests_go_to_the_replica_with_the_fewest_in_flight() -> None:
    controller = Script()
    load = constant_rate(8, DURATION_S, prompt_tokens=500, output_tokens=400)
    Fleet(config(replicas=3), controller).run(load, DURATION_S)
    _, series, _ = controller.seen[-1]
    tokens = [one.last[1] for one in series if one.name == "vllm:generation_tokens_total"]
    assert len(tokens) == 3
    assert max(tokens) < 1.3 * min(tokens)


def test_a_controller_sees_what_the_operators_observation_reads() -> None:
    controller = Script()
    load = constant_rate(8, DURATION_S, prompt_tokens=500, output_tokens=400)
    Fleet(config("1-4:5 5-256:2"), controller).run(load, DURATION_S)
    now_s, series, replicas = controller.seen[3]
    assert (now_s, replicas) == (60.0, 2)
    labels = series[0].labels
    assert labels["namespace"] == "ml"
    assert labels["serving_outrider_dev_service"] == "chat"
    assert labels["serving_outrider_dev_track"] == "stable"
    assert labels["pod_uid"] == "uid-chat-0"
    window = observe(series, now_s - 30, now_s)
    assert isinstance(window, Observation)
    assert len(window.engines) == 2
    shares = [kept / drafted for kept, drafted in zip(window.accepted_per_pos, window.drafted_per_pos, strict=True)]
    assert shares[0] == pytest.approx(0.75, abs=0.05)
    assert window.generation_tokens / 30 == pytest.approx(8 * 400, rel=0.1)
    assert {cell.num_speculative_tokens for cell in window.cells} == {2, 5}
    assert window.tpot.mean == pytest.approx(0.005, abs=0.003)


def test_attainment_read_from_the_operators_buckets_is_that_of_the_requests() -> None:
    """With vLLM's own bounds all of these answers lie below the lowest one."""
    grids = {family: tuple(grid) for family, grid in HISTOGRAM_BUCKETS.items()}
    steered, controller = settings("1-256:3", histogram_buckets=grids), Script()
    load = constant_rate(8, DURATION_S, prompt_tokens=500, output_tokens=400)
    result = Fleet(replace(config(), settings=steered, window_s=DURATION_S), controller).run(load, DURATION_S)
    now_s, series, _ = controller.seen[3]
    window = observe(series, 0.0, now_s)
    assert isinstance(window, Observation)
    first_scrape_s = 5.0
    tpots = [record.tpot_s or 0.0 for record in result.records if first_scrape_s < record.finished_s <= now_s]
    objective_s = next(bound for bound in grids["inter_token_latency"] if bound > sorted(tpots)[len(tpots) // 2])
    assert objective_s < 0.01
    assert window.tpot.count == len(tpots)
    assert window.tpot.share_at_most(objective_s) == sum(tpot_s <= objective_s for tpot_s in tpots) / len(tpots)


def test_a_schedule_reaches_ready_pods_and_those_that_come_later() -> None:
    controller = Script({15.0: Commands(schedule=constant(1, 256))})
    scaler = AutoscalerConfig(target=4, max_replicas=2, scale_up_window_s=0)
    load = constant_rate(12, DURATION_S, prompt_tokens=500, output_tokens=400)
    fleet = Fleet(config(3, replicas=1, autoscaler=scaler, pod_start_s=20.0), controller)
    result = fleet.run(load, DURATION_S)
    assert [sample.schedule for sample in result.timeline if sample.time_s in (10.0, 20.0)] == ["1-256:3", "1-256:1"]
    at_the_end = next(sample for sample in result.timeline if sample.time_s == DURATION_S)
    assert (at_the_end.ready, at_the_end.num_speculative_tokens) == (2, 1.0)


def test_a_lower_target_brings_replicas_after_their_start_up_time() -> None:
    controller = Script({15.0: Commands(in_flight_target=3)})
    scaler = AutoscalerConfig(target=50, max_replicas=6, scale_up_window_s=0)
    load = constant_rate(10, 90, prompt_tokens=500, output_tokens=300)
    fleet = Fleet(config(replicas=1, autoscaler=scaler, pod_start_s=30.0), controller)
    result = fleet.run(load, 90)
    wanted = {sample.time_s: (sample.replicas, sample.ready) for sample in result.timeline}
    assert wanted[15.0] == (1, 1)
    assert wanted[20.0][0] > 1
    assert wanted[40.0][1] == 1
    assert wanted[50.0][1] > 1


def test_a_pod_that_must_go_finishes_what_it_has() -> None:
    scaler = AutoscalerConfig(
        target=10, max_replicas=3, scale_up_window_s=0, scale_down_window_s=0, scale_down_period_s=15
    )
    load = [*constant_rate(20, 30, prompt_tokens=500, output_tokens=800)]
    result = Fleet(config(replicas=3, autoscaler=scaler)).run(load, 240)
    assert result.num_completed == len(load)
    assert result.timeline[-1].replicas == 1
    assert result.replica_seconds < 3 * 240


def test_a_pod_that_is_refused_is_tried_again_and_asked_for_meanwhile() -> None:
    load = constant_rate(8, DURATION_S, prompt_tokens=500, output_tokens=400)
    fleet = Fleet(config(replicas=1, autoscaler=AutoscalerConfig(target=4, max_replicas=3), pod_start_s=5.0))
    attempts = iter([False] * 4)
    fleet.admit = lambda: next(attempts, True)
    result = fleet.run(load, DURATION_S)
    before = [one for one in result.timeline if 15.0 < one.time_s < 55.0]
    assert {(one.asked, one.replicas, one.pods) for one in before} == {(3, 1, 1)}, "refused at 15, 20, 25 and 35 s"
    assert {(one.asked, one.replicas) for one in result.timeline if one.time_s > 55.0} == {(3, 3)}


def test_a_drain_that_takes_too_long_aborts_the_rest() -> None:
    scaler = AutoscalerConfig(target=1000, max_replicas=2, scale_down_window_s=0)
    load = constant_rate(4, 10, prompt_tokens=500, output_tokens=20_000)
    result = Fleet(config(replicas=2, autoscaler=scaler, drain_s=5.0)).run(load, 120)
    aborted = [record for record in result.records if record.finish_reason == "abort"]
    assert aborted
    assert {record.finished_s for record in aborted} == {20.0}
    assert result.num_completed == len(result.records) - len(aborted)


def test_falling_acceptance_shows_in_the_answers() -> None:
    phases = [Phase(0, geometric(0.8, 6)), Phase(30, geometric(0.2, 6))]
    load = constant_rate(6, DURATION_S, prompt_tokens=300, output_tokens=200)
    result = Fleet(config(5)).run(with_phases(load, phases), DURATION_S)
    good = [record.tpot_s for record in result.records if record.request.arrival_s < 25 and record.tpot_s]
    poor = [record.tpot_s for record in result.records if record.request.arrival_s > 35 and record.tpot_s]
    assert sum(poor) / len(poor) > 2 * sum(good) / len(good)


def test_attainment_and_goodput_count_unanswered_requests_as_missed() -> None:
    load = constant_rate(4, 10, prompt_tokens=500, output_tokens=50_000)
    result = Fleet(config(tail_s=1.0)).run(load, 10)
    assert (result.num_arrived, result.num_completed) == (40, 0)
    assert result.slo_attainment(tpot_s=1, ttft_s=1) == 0.0
    assert result.tpot_attainment(1) == 1.0
    assert quantile(result.tpots_s(), 0.5) is None


def test_a_schedule_that_the_engines_refuse_is_a_mistake_of_the_controller() -> None:
    controller = Script({15.0: Commands(schedule=constant(9, 256))})
    with pytest.raises(ValueError, match="refused the controller's schedule"):
        Fleet(config(), controller).run([], DURATION_S)
