"""Fleets that step together: none is ahead of another, and alone each does the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from outrider.core.series import Series
from outrider.simulator.autoscaler import AutoscalerConfig
from outrider.simulator.fleet import Commands, Fleet, FleetConfig
from outrider.simulator.request import Request
from outrider.simulator.together import run_together
from outrider.simulator.workload import poisson
from tests.unit.simulator.builders import profile, settings

DURATION_S = 45.0
NAMES = ("chat", "code", "mail")


@dataclass
class Diary:
    """A controller that notes when it was asked, among others that do."""

    name: str
    pages: list[tuple[float, str]] = field(default_factory=list)

    def control(self, now_s: float, series: Sequence[Series], replicas: int) -> Commands:
        self.pages.append((now_s, self.name))
        return Commands()


def fleet(seed: int, controller: Diary | None = None, control_s: float = 15.0) -> Fleet:
    scaler = AutoscalerConfig(target=1, max_replicas=4, scale_up_window_s=0.0)
    return Fleet(
        FleetConfig(settings(3), profile(), autoscaler=scaler, control_s=control_s, pod_start_s=5.0, seed=seed),
        controller,
    )


def load(seed: int) -> list[Request]:
    return list(poisson(6, DURATION_S, prompt_tokens=200, output_tokens=300, seed=seed))


def test_each_fleet_does_what_it_does_alone() -> None:
    fleets = {name: fleet(seed) for seed, name in enumerate(NAMES)}
    run_together(fleets, {name: load(seed) for seed, name in enumerate(NAMES)}, DURATION_S, lambda _now_s: None)
    for seed, name in enumerate(NAMES):
        alone = fleet(seed).run(load(seed), DURATION_S)
        assert fleets[name].result == alone
        assert max(sample.replicas for sample in alone.timeline) > 1


def test_the_turn_between_comes_when_all_have_decided_and_none_has_scaled() -> None:
    pages: list[tuple[float, str]] = []
    fleets = {name: fleet(seed, Diary(name, pages)) for seed, name in enumerate(NAMES)}

    def between(now_s: float) -> None:
        pages.append((now_s, "between"))
        before[now_s] = [one.asked for one in fleets.values()]

    before: dict[float, list[int]] = {}
    run_together(fleets, {name: load(seed) for seed, name in enumerate(NAMES)}, DURATION_S, between)
    assert pages[:8] == [(now_s, who) for now_s in (15.0, 30.0) for who in (*NAMES, "between")]
    assert before[15.0] == [1, 1, 1], "what the first turn of the autoscalers finds"
    assert before[30.0] != [1, 1, 1]


def test_fleets_of_different_periods_are_refused() -> None:
    with pytest.raises(AssertionError, match="periods or tails of their own"):
        run_together({"a": fleet(0), "b": fleet(1, control_s=30.0)}, {"a": [], "b": []}, DURATION_S, lambda _s: None)
