"""The autoscaler of a replay looks back as the operator's ScaledObject says."""

from __future__ import annotations

import pytest

from outrider.replay.experiment import CONTROL_S, autoscaler_config
from outrider.replay.virtual import render
from tests.unit.api.bodies import changed, example


@pytest.mark.parametrize(
    ("own", "cold_start_s", "look_back_s"),
    [
        pytest.param(None, None, 300.0, id="the operator's"),
        pytest.param(None, 400.0, 600.0, id="no shorter than a cold start"),
        pytest.param(60, 400.0, 60.0, id="the user's own"),
    ],
)
def test_a_replay_looks_back_as_the_scaled_object_does(
    own: int | None, cold_start_s: float | None, look_back_s: float
) -> None:
    changes = {} if own is None else {"spec.autoscaling.scaleDownStabilizationSeconds": own}
    rendered = render(changed(example(), changes), CONTROL_S, cold_start_s)
    assert autoscaler_config(rendered, 32.0).scale_down_window_s == look_back_s
