"""Which services can share a quota, and what is said of those that cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outrider.replay.quota.experiment import QuotaExperiment, check, under_quota

from .builders import manifest, rates, service

CHAT = manifest("chat")


def experiment(folder: Path, gpus: int, *manifests: dict[str, Any], **more: Any) -> QuotaExperiment:
    trace = rates(folder, "any", [1.0, 1.0])
    services = {one["metadata"]["name"]: under_quota(service(trace, 1, one)) for one in manifests}
    return QuotaExperiment(services, gpus, **more)


def elsewhere() -> dict[str, Any]:
    code = manifest("code")
    code["metadata"]["namespace"] = "other"
    return code


def test_the_fewest_replicas_may_take_the_whole_quota(tmp_path: Path) -> None:
    check(experiment(tmp_path, 3, CHAT, manifest("code", gpus=2)))


@pytest.mark.parametrize(
    ("gpus", "code", "said"),
    [
        pytest.param(
            2, manifest("code", gpus=2),
            "--gpu-quota 2: the fewest replicas take chat 1 GPU, code 2 GPUs (spec.autoscaling.minReplicas); give 3 or"
            " more, or lower minReplicas",
            id="fewer than the fewest replicas take",
        ),
        pytest.param(
            4, manifest("code", gpus=8),
            "--gpu-quota 4: a replica of code takes 8 (spec.resources.gpus) and would never start; give 8 or more",
            id="a replica that never fits",
        ),
        pytest.param(
            4, elsewhere(),
            "metadata.namespace: chat has ml and code has other; a quota is of one: make them the same",
            id="two namespaces",
        ),
        pytest.param(
            4, manifest("code", resources={"gpus": 1, "gpuResource": "amd.com/gpu"}),
            "spec.resources.gpuResource: chat has nvidia.com/gpu and code has amd.com/gpu",
            id="two kinds of GPU",
        ),
        pytest.param(
            4, manifest("code", resources={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}),
            "code: spec.resources.resourceClaims count in no quota of GPUs",
            id="device claims",
        ),
    ],
)  # fmt: skip
def test_services_that_cannot_share_are_refused(tmp_path: Path, gpus: int, code: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("(", r"\(").replace(")", r"\)")):
        check(experiment(tmp_path, gpus, CHAT, code))


def test_a_priority_of_nobody_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--priority mail: no such service; there are chat"):
        check(experiment(tmp_path, 4, CHAT, priorities={"mail": 1}))


def test_who_is_scaled_by_nobody_begins_and_stays_with_its_own_number(tmp_path: Path) -> None:
    fixed = manifest("fixed", autoscaling={"mode": "Off", "minReplicas": 3})
    found = experiment(tmp_path, 4, CHAT, fixed).services
    assert (found["chat"].replicas, found["fixed"].replicas) == (None, 3)
    with pytest.raises(ValueError, match="chat 1 GPU, fixed 3 GPUs"):
        check(replace(experiment(tmp_path, 3, CHAT, fixed)))
