"""Services that share a quota in virtual time: what holds at every moment, and who gets what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.core.budget import Claim, fair
from outrider.replay.experiment import Run
from outrider.replay.experiment import run as run_alone
from outrider.replay.quota.experiment import QuotaExperiment
from outrider.replay.quota.run import QuotaRun, run

from .builders import SETTLE_S, manifest, rates, service, two

BUSY = [12.0] * 4
"""More than four replicas carry."""
GPUS = 4


def replayed(experiment: QuotaExperiment) -> QuotaRun:
    return run(experiment, lambda _share: None)


def alone(experiment: QuotaExperiment, name: str) -> Run:
    return run_alone(experiment.services[name], "outrider", lambda _share: None)


def held(runs: Mapping[str, Run]) -> list[int]:
    """Pods of all services at each scrape, draining ones too."""
    courses = [run.result.timeline for run in runs.values()]
    return [sum(one.pods for one in samples) for samples in zip(*courses, strict=False)]


def ends_with(done: QuotaRun) -> dict[str, int]:
    return {name: one.most for name, one in done.looks[-1][1].items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rates")


@pytest.fixture(scope="module")
def later(folder: Path) -> QuotaRun:
    """Code has most of the GPUs when chat's load begins."""
    return replayed(two(folder, GPUS, chat=[1.0, *BUSY], code=[12.0, *BUSY]))


def test_the_quota_is_full_and_never_exceeded(later: QuotaRun) -> None:
    assert max(held(later.runs)) == GPUS


def test_a_running_replica_goes_once_it_has_been_needed_more_elsewhere_and_none_goes_back(later: QuotaRun) -> None:
    assert [(one.donor, one.gainer) for one in later.moves] == [("code", "chat")]
    assert ends_with(later) == {"chat": 2, "code": 2}
    replicas = {name: [one.replicas for one in run.result.timeline] for name, run in later.runs.items()}
    assert max(replicas["code"]) == 3
    assert list(dict.fromkeys(replicas["chat"])) == [1, 2]


def test_a_pod_that_drains_still_counts_and_the_next_one_is_refused_until_it_is_gone(folder: Path) -> None:
    loads = {"chat": [0.05, 1.0, 1.0, 1.0], "code": [1.0] * 4}
    services = {
        name: service(rates(folder, f"long-{name}", one, output_tokens=4000), len(one), manifest(name))
        for name, one in loads.items()
    }
    done = replayed(QuotaExperiment(services, GPUS, settle_s=SETTLE_S))
    assert done.moves
    assert max(held(done.runs)) == GPUS
    waited = [one for one in done.runs["chat"].result.timeline if one.asked > one.replicas]
    assert waited
    assert done.runs["chat"].result.timeline[-1].replicas == 2


def test_who_wants_more_than_its_share_is_told_so_as_the_operator_tells_it(later: QuotaRun) -> None:
    first = next(standings["code"] for _, standings in later.looks if standings["code"].reason)
    assert first.reason == "GPUQuota"
    assert "ResourceQuota simulated allows 4 nvidia.com/gpu; of the others may have chat 1" in first.message


def test_who_waits_for_its_share_is_seen_to(later: QuotaRun) -> None:
    below = [at_s for at_s, standings in later.looks if standings["chat"].below]
    (move,) = later.moves
    assert below
    assert below[-1] <= move.at_s


def test_all_services_step_on_one_clock(later: QuotaRun) -> None:
    first, second = (run.result.timeline for run in later.runs.values())
    assert [one.time_s for one in first][:60] == [one.time_s for one in second][:60]


def test_a_higher_priority_has_the_share_that_the_budget_gives_it(folder: Path) -> None:
    done = replayed(two(folder, GPUS, BUSY, BUSY, priorities={"chat": -5, "code": 1000}))
    known = {"gpus": 1, "least": 1, "most": 6, "wanted": 6, "present": 1}
    assert ends_with(done) == fair([Claim("chat", **known), Claim("code", **known, weight=2.0)], GPUS)  # type: ignore[arg-type]
    assert ends_with(done) == {"chat": 1, "code": 3}


def test_a_service_that_misses_its_objectives_gets_more_than_one_that_meets_them(folder: Path) -> None:
    """Both need more than there is; no answer of code's is in time, and every one of chat's is."""
    experiment = two(folder, GPUS, BUSY, BUSY)
    objectives = {"chat": {"tpotMilliseconds": 1000}, "code": {"tpotMilliseconds": 1}}
    services = {
        name: replace(one, manifest=manifest(name, objectives=objectives[name]))
        for name, one in experiment.services.items()
    }
    done = replayed(replace(experiment, services=services))
    assert ends_with(done) == {"chat": 1, "code": 3}


def test_a_lone_service_under_a_quota_is_one_with_as_many_replicas_at_most(folder: Path) -> None:
    busy = service(rates(folder, "lone", [1.0, 12.0, 12.0, 12.0, 1.0]), 5, manifest("chat"))
    shared = replayed(QuotaExperiment({"chat": busy}, 3)).runs["chat"]
    bounded = alone(QuotaExperiment({"chat": replace(busy, max_replicas=3)}, 3), "chat")
    assert max(one.replicas for one in bounded.result.timeline) == 3
    assert shared.result == bounded.result


def test_services_with_room_for_all_are_as_if_each_were_alone(folder: Path) -> None:
    experiment = two(folder, 12, [4.0, 8.0], [8.0, 4.0])
    done = replayed(experiment)
    for name in experiment.services:
        assert done.runs[name].result == alone(experiment, name).result


def test_the_same_services_give_the_same_result(folder: Path) -> None:
    experiment = two(folder, 3, [8.0, 8.0], [8.0, 8.0])
    assert replayed(experiment) == replayed(experiment)


def test_a_service_that_nobody_scales_keeps_what_it_has(folder: Path) -> None:
    fixed = service(rates(folder, "fixed", BUSY), 2, manifest("fixed"), replicas=2)
    done = replayed(
        QuotaExperiment({"fixed": fixed, "chat": service(rates(folder, "chat", BUSY), 2, manifest("chat"))}, 3)
    )
    assert {one.replicas for one in done.runs["fixed"].result.timeline} == {2}
    assert {one.replicas for one in done.runs["chat"].result.timeline} == {1}


def test_replicas_of_several_gpus_count_as_many(folder: Path) -> None:
    large = service(rates(folder, "large", BUSY), 3, manifest("large", gpus=2))
    small = service(rates(folder, "small", BUSY), 3, manifest("small"))
    done = replayed(QuotaExperiment({"large": large, "small": small}, 5))
    first, second = (done.runs[name].result.timeline for name in ("large", "small"))
    together = [2 * one.pods + other.pods for one, other in zip(first, second, strict=False)]
    assert max(together) <= 5
    assert max(one.pods for one in first) >= 1
