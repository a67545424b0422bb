"""A resource in virtual time: what its engine becomes, and that the control law steers it."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.core.schedule import constant
from outrider.errors import InvalidSpec
from outrider.replay.virtual import VirtualOperator, read_manifest, render
from outrider.simulator.fleet import Fleet, FleetConfig
from outrider.simulator.profile import load_profile
from outrider.simulator.workload import constant_rate

EXAMPLE = Path("examples/01-minimal.yaml")


def test_a_resource_renders_to_an_engine_that_may_run_the_k_of_the_control_law() -> None:
    rendered = render(read_manifest(EXAMPLE), 15.0)
    assert rendered.settings.speculation is not None
    assert rendered.settings.speculation.values == rendered.config.values
    assert rendered.settings.start_schedule == rendered.config.initial


def test_an_engine_of_one_k_keeps_the_rest() -> None:
    rendered = render(read_manifest(EXAMPLE), 15.0)
    flat = rendered.with_constant(2)
    assert flat.start_schedule == constant(2, rendered.settings.max_num_seqs)
    assert flat.speculation == rendered.settings.speculation


def test_a_resource_that_the_operator_would_refuse_is_refused() -> None:
    manifest = read_manifest(EXAMPLE)
    spec = {**manifest["spec"], "speculation": {**manifest["spec"]["speculation"], "method": "eagle9"}}
    with pytest.raises(InvalidSpec):
        render({**manifest, "spec": spec}, 15.0)


def test_the_control_law_learns_and_steers_the_fleet() -> None:
    rendered = render(read_manifest(EXAMPLE), 15.0)
    operator = VirtualOperator(rendered.config, window_s=60.0)
    fleet = Fleet(FleetConfig(rendered.settings, load_profile(), window_s=75.0), operator)
    result = fleet.run(constant_rate(2.0, 90.0, prompt_tokens=100, output_tokens=100), 90.0)
    assert operator.state.acceptance.drafts > 0
    assert result.timeline[-1].schedule == str(operator.state.schedule)
