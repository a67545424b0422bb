"""What a field means when the user leaves it out."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.api.defaults import resolve
from tests.unit.api.bodies import resource

NGRAM = {"method": "ngram", "maxSpeculativeTokens": 4}
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
        pytest.param(
            {"spec.resources": None, "spec.parallelism": {"tensor": 2, "pipeline": 2, "data": 3}},
            "gpus",
            12,
            id="GPUs from all three",
        ),
        pytest.param(
            {"spec.resources.gpus": 8, "spec.parallelism": {"pipeline": 2, "data": 2}},
            "tensor_parallel_size",
            2,
            id="tensor from what the stages and copies leave",
        ),
        pytest.param(
            {"spec.resources": None, "spec.parallelism": {"pipeline": 2}},
            "tensor_parallel_size",
            1,
            id="one GPU a stage",
        ),
        pytest.param({"spec.parallelism": {"pipeline": 1}}, "data_parallel_size", 1, id="one copy"),
        pytest.param(
            {"spec.resources.gpus": 2, "spec.parallelism": {"pipeline": 2}}, "pipeline_parallel_size", 2, id="stages"
        ),
        pytest.param({}, "model_source", "hub", id="the hub"),
        pytest.param(
            {"spec.model.source": {"volume": {"claimName": "models"}}}, "model_source", "volume", id="a volume"
        ),
        pytest.param(
            {"spec.model.source": {"objectStore": {"uri": "s3://models"}}},
            "model_source",
            "object_store",
            id="a bucket",
        ),
        pytest.param(
            {"spec.speculation.draft.source": {"image": {"reference": "example.com/eagle"}}},
            "draft_source",
            "image",
            id="a drafter in an image",
        ),
        pytest.param({"spec.speculation": NGRAM}, "draft_source", "hub", id="no drafter"),
        pytest.param({}, "prompt_lookup", None, id="nothing to look up"),
        pytest.param({"spec.speculation": NGRAM}, "prompt_lookup", (5, 5), id="vLLM's own bounds of ngram"),
        pytest.param(
            {"spec.speculation": NGRAM | {"ngram": {"promptLookupMax": 3}}}, "prompt_lookup", (3, 3), id="one for both"
        ),
        pytest.param(
            {"spec.speculation": NGRAM | {"ngram": {"promptLookupMin": 9}}},
            "prompt_lookup",
            (9, 9),
            id="the other for both",
        ),
        pytest.param(
            {"spec.speculation": NGRAM | {"ngram": {"promptLookupMin": 2, "promptLookupMax": 6}}},
            "prompt_lookup",
            (2, 6),
            id="both as given",
        ),
        pytest.param({}, "kv_cache_target_percent", 80, id="cache target"),
        pytest.param(FIXED_ONE, "kv_cache_target_percent", 80, id="cache target that nobody uses"),
        pytest.param(
            {"spec.autoscaling.kvCacheTargetPercent": 65}, "kv_cache_target_percent", 65, id="own cache target"
        ),
        pytest.param({}, "strategy", "RollingUpdate", id="rolling"),
        pytest.param({}, "max_surge", 0, id="no spare GPU"),
        pytest.param({}, "max_unavailable", 1, id="one at a time"),
        pytest.param({"spec.rollout": {"maxSurge": 2, "maxUnavailable": 0}}, "max_surge", 2, id="a surge"),
        pytest.param({"spec.rollout": {"maxSurge": 2, "maxUnavailable": 0}}, "max_unavailable", 0, id="nobody missing"),
        pytest.param({}, "disruption_max_unavailable", 1, id="one evicted"),
        pytest.param({"spec.disruption": {"maxUnavailable": 0}}, "disruption_max_unavailable", 0, id="nobody evicted"),
        pytest.param({}, "service_type", "ClusterIP", id="reached in the cluster"),
        pytest.param({}, "session_affinity_s", None, id="no affinity"),
        pytest.param({}, "network_policy", False, id="no policy"),
        pytest.param({"spec.networkPolicy": {"allowFrom": [{}]}}, "network_policy", True, id="a policy for somebody"),
        pytest.param(
            {"spec.networkPolicy": {"enabled": False, "allowFrom": [{}]}},
            "network_policy",
            False,
            id="a policy put off",
        ),
        pytest.param({"spec.networkPolicy": {"enabled": True}}, "network_policy", True, id="a policy for all"),
        pytest.param({}, "run_as_user", 1000, id="user"),
        pytest.param({"spec.security": {"runAsUser": 7}}, "run_as_user", 7, id="own user"),
        pytest.param({"spec.security": {"runAsUser": 7}}, "run_as_group", 1000, id="and the group as ever"),
        pytest.param({"spec.security": {"fsGroup": 8}}, "fs_group", 8, id="own group of files"),
        pytest.param({}, "trust_remote_code", False, id="no strange code"),
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
        pytest.param(
            {"spec.autoscaling.gpuBudget": 7, "spec.resources.gpus": 2},
            "max_replicas",
            3,
            id="a budget of GPUs bounds the replicas",
        ),
        pytest.param(
            {"spec.autoscaling.gpuBudget": 14, "spec.resources.gpus": 2},
            "bounded_by_gpus",
            False,
            id="and maxReplicas where that is less",
        ),
        pytest.param(
            {"spec.autoscaling": {"mode": "External", "gpuBudget": 7}},
            "max_replicas",
            7,
            id="an external autoscaler's too",
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
