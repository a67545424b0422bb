"""What a field means when the user leaves it out."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.api.defaults import resolve
from tests.unit.api.bodies import resource

FIXED_ONE = {"spec.autoscaling": None}


@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        pytest.param({"spec.model.servedName": None}, "served_name", "meta-llama/Llama-3.1-8B-Instruct", id="name"),
        pytest.param({}, "mode", "Adaptive", id="mode"),
        pytest.param({}, "policy", "Goodput", id="policy"),
        pytest.param({}, "initial_speculative_tokens", 3, id="initial K is 3"),
        pytest.param(
            {"spec.speculation.maxSpeculativeTokens": 2}, "initial_speculative_tokens", 2, id="or a smaller ceiling"
        ),
        pytest.param(
            {"spec.speculation.tuning.minSpeculativeTokens": 4},
            "initial_speculative_tokens",
            4,
            id="and not under the least",
        ),
        pytest.param({}, "tpot_s", 0.04, id="milliseconds become seconds"),
        pytest.param({"spec.objectives": None}, "ttft_s", None, id="no objective stays none"),
        pytest.param({}, "percentile", 0.95, id="percent becomes a fraction"),
        pytest.param({"spec.resources": None, "spec.parallelism": {"tensor": 4}}, "gpus", 4, id="GPUs from tensor"),
        pytest.param({"spec.resources.gpus": 2}, "tensor_parallel_size", 2, id="tensor from GPUs"),
        pytest.param({"spec.resources": None}, "gpus", 1, id="one GPU"),
        pytest.param({}, "max_num_batched_tokens", 8192, id="token budget"),
        pytest.param(
            {"spec.engine": {"maxNumSeqs": 2048}},
            "max_num_batched_tokens",
            12288,
            id="token budget that holds one step of the largest batch",
        ),
        pytest.param({}, "autoscaled", True, id="KEDA where there are bounds"),
        pytest.param(FIXED_ONE, "autoscaled", False, id="no autoscaling without the block"),
        pytest.param(FIXED_ONE, "min_replicas", 1, id="then one replica"),
        pytest.param(
            {"spec.autoscaling": {"mode": "Off", "minReplicas": 3}}, "max_replicas", 3, id="Off keeps minReplicas"
        ),
        pytest.param({}, "termination_grace_s", 90, id="grace covers pause and drain"),
        pytest.param(
            {"spec.drain": {"preStopSeconds": 0, "shutdownTimeoutSeconds": 600}},
            "termination_grace_s",
            615,
            id="and a longer drain",
        ),
        pytest.param(
            {"spec.monitoring": {"podMonitor": False}}, "pod_monitor", False, id="no PodMonitor where unwanted"
        ),
    ],
)
def test_resolved(changes: dict[str, Any], field: str, expected: object) -> None:
    assert getattr(resolve(resource(changes).spec), field) == expected


@pytest.mark.parametrize(("own", "expected"), [(None, 300), (0, 0), (900, 900)])
def test_scale_down_stabilization(own: int | None, expected: int) -> None:
    spec = resource({"spec.autoscaling.scaleDownStabilizationSeconds": own}).spec
    assert resolve(spec).scale_down_stabilization_s == expected
