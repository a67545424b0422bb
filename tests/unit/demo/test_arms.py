"""The control law on the simulator, and fixed K beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from demo import arms, scenario, stage
from demo.scenario import Scenario
from outrider.core.schedule import constant
from outrider.replay.virtual import VirtualOperator, read_manifest, render

SHORT = replace(Scenario(), seconds=40.0, shape=((0.0, 2.0), (1.0, 2.0)))


@pytest.mark.parametrize("path", [stage.EXAMPLE, stage.SECOND], ids=lambda path: path.name)
def test_both_resources_render_to_an_engine_that_the_simulator_starts(path: object) -> None:
    rendered = render(read_manifest(path), scenario.CONTROL_PERIOD_S)  # type: ignore[arg-type]
    assert rendered.settings.speculation is not None
    assert rendered.settings.speculation.values == rendered.config.values
    assert rendered.settings.start_schedule == rendered.config.initial


def test_the_example_and_the_second_service_are_those_of_the_story() -> None:
    for path, name in ((stage.EXAMPLE, scenario.SERVICE), (stage.SECOND, scenario.SECOND_SERVICE)):
        assert read_manifest(path)["metadata"] == {"name": name, "namespace": scenario.NAMESPACE}


def test_a_fixed_arm_keeps_its_k() -> None:
    rendered = render(read_manifest(stage.EXAMPLE), scenario.CONTROL_PERIOD_S)
    result = arms.replay(rendered, SHORT, rendered.with_constant(2), target=16)
    assert {one.schedule for one in result.timeline} == {str(constant(2, 256))}


def test_the_control_law_learns_and_decides_in_a_replay() -> None:
    rendered = render(read_manifest(stage.EXAMPLE), scenario.CONTROL_PERIOD_S)
    controller = VirtualOperator(rendered.config, arms.window_s(rendered))
    result = arms.replay(rendered, SHORT, rendered.settings, 32, controller)
    assert controller.outcome is not None
    assert controller.state.acceptance.drafts > 0
    assert {one.kind for one in controller.changes} >= {"Schedule"}
    assert result.timeline[-1].schedule == str(controller.state.schedule)


def test_a_hand_set_target_meets_the_objective_and_falls_with_it() -> None:
    rendered = render(read_manifest(stage.EXAMPLE), scenario.CONTROL_PERIOD_S)
    strict = replace(rendered, config=replace(rendered.config, tpot_objective_s=0.025))
    settings = rendered.with_constant(3)
    assert 1 <= arms.target_by_load_test(strict, SHORT, settings) < arms.target_by_load_test(rendered, SHORT, settings)


def test_arms_are_ranked_by_tokens_within_the_objective_per_replica_second() -> None:
    cheap, dear = arms.Arm(100.0, 90.0, 50.0, 1, 8), arms.Arm(100.0, 90.0, 100.0, 2, 4)
    missing = arms.Arm(100.0, 10.0, 50.0, 3, 30)
    every = arms.Arms(cheap, [], {3: missing, 2: dear, 1: cheap})
    assert every.ranked(100.0) == [cheap, dear, missing]
    assert cheap.tokens_within_objective_per_replica_second(100.0) == pytest.approx(180.0)
