"""The arms of a comparison: which engine each runs, and what its rule makes of what engines show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo import stage
from outrider.core.observation import EngineWindow, Observation, StepCell
from outrider.core.schedule import Schedule, constant, parse_text
from outrider.core.series import Series
from outrider.replay import policies
from outrider.replay.policies import AcceptedLength, Arm, SmartSpec, StepTable
from outrider.replay.virtual import Rendered, read_manifest, render
from outrider.simulator.fleet import Commands, Fleet, FleetConfig
from outrider.simulator.profile import Profile, load_profile
from outrider.simulator.request import Request
from outrider.simulator.workload import geometric, poisson

LARGEST = 256


@cache
def rendered(ceiling: int = 7) -> Rendered:
    manifest = read_manifest(stage.EXAMPLE)
    manifest["spec"]["speculation"]["maxSpeculativeTokens"] = ceiling
    return render(manifest, 15.0)


@cache
def profile() -> Profile:
    return load_profile()


def arm(name: str, acceptance: Sequence[float] = ()) -> Arm:
    return policies.arm(name, rendered(), profile(), lambda _: acceptance or profile().acceptance)


def times() -> StepTable:
    return StepTable(profile(), rendered().settings, rendered().config.allowed)


def seen(acceptance: float, *, k: int = 3, batch: int = 4, drafts: int = 10_000) -> Observation:
    """A window of steps of one batch size and K, every draft accepted with one conditional probability."""
    curve = geometric(acceptance, k)
    return Observation(
        since_s=0.0,
        until_s=60.0,
        engines=(EngineWindow("a", "0", float(batch), 0.0, 0.0, 1e6, 1),),
        num_drafts=float(drafts if k else 0),
        drafted_per_pos=(float(drafts),) * k,
        accepted_per_pos=tuple(drafts * share for share in curve),
        generation_tokens=1e4,
        cells=(StepCell(1 << (batch - 1).bit_length(), k, False, 1000.0, 10.0, 1000.0 * batch),),
    )


def load(seconds: float) -> Iterator[Request]:
    return poisson(4.0, seconds, prompt_tokens=200, output_tokens=100, seed=1)


@pytest.mark.parametrize("name", policies.POLICIES)
def test_every_arm_serves_a_load_and_stays_within_what_its_engine_can_run(name: str) -> None:
    one = arm(name)
    result = Fleet(FleetConfig(one.settings, profile(), scrape_s=5.0), one.controller).run(load(60.0), 60.0)
    assert result.num_completed == result.num_arrived
    if name in ("no-drafter", "k0"):
        assert {sample.num_speculative_tokens for sample in result.timeline} == {0.0}
    if name[1:].isdigit():
        assert {sample.schedule for sample in result.timeline} == {str(constant(int(name[1:]), LARGEST))}


def test_the_engine_without_a_drafter_is_faster_than_the_one_that_never_asks_its_own() -> None:
    goodput = {}
    for name in ("no-drafter", "k0"):
        fleet = Fleet(FleetConfig(arm(name).settings, profile(), scrape_s=5.0))
        requests = [Request(f"r{i}", 0.0, 100, 4000) for i in range(8)]
        goodput[name] = fleet.run(requests, 20.0).generation_tokens
    assert goodput["no-drafter"] > goodput["k0"]


def test_constants_above_the_ceiling_are_no_arms_of_a_resource() -> None:
    assert "k7" not in policies.available(rendered(5))
    with pytest.raises(ValueError, match="k7"):
        policies.arm("k7", rendered(5), profile(), lambda _: ())


def test_the_documented_table_is_clamped_to_the_graphs_of_the_engine() -> None:
    settings = arm("vllm-table").settings
    assert str(settings.start_schedule) == "1-64:3 65-128:1 129-256:0"
    only_two = policies.arm("vllm-table", rendered(2), profile(), lambda _: ()).settings
    assert str(only_two.start_schedule) == "1-64:2 65-128:1 129-256:0"


class Fixed:
    def __init__(self, schedule: Schedule) -> None:
        self.commands = Commands(schedule)

    def control(self, now_s: float, series: Sequence[Series], replicas: int) -> Commands:
        return self.commands


@pytest.mark.parametrize("batch", [2, 16, 48, 150])
def test_no_constant_beats_the_oracle(batch: int) -> None:
    def tokens(one: Arm) -> int:
        requests = [Request(f"r{i}", 0.0, 60, 6000) for i in range(batch)]
        fleet = Fleet(FleetConfig(one.settings, profile(), scrape_s=1.0, control_s=1.0, tail_s=1.0), one.controller)
        return fleet.run(requests, 20.0).generation_tokens

    constants = [Arm("", rendered().with_constant(k), None) for k in rendered().config.allowed]
    # The oracle's first second runs the initial schedule: 2 % of the time, and the draws of acceptance differ.
    assert tokens(arm("oracle")) > 0.97 * max(tokens(one) for one in constants)


def test_the_oracle_follows_the_acceptance_of_the_moment() -> None:
    moments = {0.0: geometric(0.9, 7), 15.0: geometric(0.001, 7)}
    oracle = policies.Oracle(times(), moments.__getitem__, 60.0)
    found = [oracle.control(now_s, (), 1).schedule for now_s in moments]
    assert [schedule.at(1) for schedule in found if schedule is not None] == [7, 0]


@given(st.floats(0.31, 0.98), st.floats(0.31, 0.98), st.integers(1, LARGEST))
def test_smartspec_drafts_no_less_when_more_is_accepted(one: float, other: float, batch: int) -> None:
    k = [SmartSpec(times(), 60.0).schedule(seen(alpha)).at(batch) for alpha in sorted((one, other))]
    assert k[0] <= k[1]


def test_smartspec_prefers_off_within_a_tenth_and_tries_again_after_a_collapse() -> None:
    lengths = [1.0, *(1.0 + sum(geometric(0.2, k)) for k in range(1, 8))]
    assert times().best(lengths, 0.0).at(1) == 1  # 1.2 tokens for 0.6 % more time
    assert SmartSpec(times(), 60.0).schedule(seen(0.31)).at(1) > 0
    collapsed = SmartSpec(times(), 60.0)
    assert collapsed.schedule(seen(0.01)) == SmartSpec(times(), 60.0).schedule(seen(SmartSpec.RESET))


def test_smartspec_keeps_its_probability_while_it_sees_no_drafts() -> None:
    rule = SmartSpec(times(), 60.0)
    rule.schedule(seen(0.9))
    assert rule.schedule(seen(0.0, k=0)).at(1) == rule.schedule(seen(0.9)).at(1)


@pytest.mark.parametrize(
    ("start", "acceptance", "batch", "expected"),
    [
        pytest.param(3, 0.95, 4, 5, id="more than two and a half of three accepted: up a tier"),
        pytest.param(3, 0.75, 4, 3, id="within the band: stay"),
        pytest.param(3, 0.1, 4, 1, id="next to nothing accepted: down a tier"),
        pytest.param(1, 0.3, 16, 0, id="under half of one accepted where 0 is a tier: off"),
        pytest.param(0, 0.9, 16, 1, id="off for a period: look again"),
        pytest.param(0, 0.9, 100, 0, id="nothing but off at large batches"),
    ],
)
def test_accepted_length_moves_along_the_tiers(start: int, acceptance: float, batch: int, expected: int) -> None:
    rule = AcceptedLength((0, 1, 2, 3, 5, 7), constant(start, LARGEST), 15.0)
    assert rule.schedule(seen(acceptance, k=start, batch=batch)).at(batch) == expected


def test_accepted_length_leaves_the_slots_alone_where_nothing_runs() -> None:
    rule = AcceptedLength((0, 1, 2, 3, 5, 7), constant(3, LARGEST), 15.0)
    assert rule.schedule(seen(0.95, k=3, batch=4)) == parse_text("1-7:5 8-31:3 32-63:1 64-256:0")


def test_a_rule_that_knows_no_capacity_moves_no_target() -> None:
    controller = policies.ScheduleOnly(Fixed(constant(1, LARGEST)))
    assert controller.control(0.0, (), 1) == Commands(constant(1, LARGEST))
    targeted = Fixed(constant(1, LARGEST))
    targeted.commands = Commands(constant(1, LARGEST), 12)
    assert policies.ScheduleOnly(targeted).control(0.0, (), 1).in_flight_target is None
