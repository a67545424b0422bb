"""Bodies of resources for tests: the examples, and small changes to them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from outrider.api.resource import SpeculativeInferenceService, parse

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
Body = dict[str, Any]


def example(name: str = "01-minimal") -> Body:
    """An example as a user would apply it."""
    body: Body = yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text(encoding="utf-8"))
    return body


def changed(body: Mapping[str, Any], changes: Mapping[str, Any]) -> Body:
    """A copy with values set at dotted paths; None removes one."""
    result = copy.deepcopy(dict(body))
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = result
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = copy.deepcopy(value)
    return result


def resource(changes: Mapping[str, Any] | None = None, name: str = "01-minimal") -> SpeculativeInferenceService:
    """A parsed example with changes."""
    return parse(changed(example(name), {"metadata.uid": "5f0c", "metadata.generation": 3} | dict(changes or {})))


def refused() -> list[Body]:
    """The table of changes that must be refused."""
    table: list[Body] = yaml.safe_load((Path(__file__).parent / "refused.yaml").read_text(encoding="utf-8"))
    return table


ADMITTED: dict[str, Body] = {
    "no tuning block at all": {"spec.speculation.tuning": None},
    "speculation off": {"spec.speculation.tuning": {"mode": "Off"}},
    "one fixed K without a schedule": {"spec.speculation.tuning": {"mode": "Fixed", "initialSpeculativeTokens": 3}},
    "a schedule with a hole, which the row before it fills": {
        "spec.speculation.tuning": {
            "mode": "Fixed",
            "schedule": [
                {"first": 1, "last": 16, "speculativeTokens": 3},
                {"first": 64, "last": 128, "speculativeTokens": 2},
                {"first": 256, "last": 4096, "speculativeTokens": 0},
            ],
        }
    },
    "ngram without a drafter": {"spec.speculation.method": "ngram", "spec.speculation.draft": None},
    "mtp, whose drafter is in the model": {"spec.speculation.method": "mtp", "spec.speculation.draft": None},
    "mtp with a drafter of its own": {"spec.speculation.method": "mtp"},
    "no objectives": {"spec.objectives": None},
    "no autoscaling": {"spec.autoscaling": None},
    "a fixed number of replicas": {"spec.autoscaling": {"mode": "Off", "minReplicas": 3}},
    "tensor parallelism alone": {"spec.resources": None, "spec.parallelism": {"tensor": 4}},
    "both numbers of GPUs, equal": {"spec.resources.gpus": 2, "spec.parallelism": {"tensor": 2}},
    "a drafter on as many GPUs as the model": {
        "spec.resources.gpus": 4,
        "spec.speculation.draft.tensorParallelSize": 4,
    },
    "processors as a bare number": {"spec.resources.cpu": 8, "spec.resources.memory": "64Gi"},
    "a grace period just long enough": {"spec.drain": {"terminationGraceSeconds": 86}},
    "a grace period under a short drain": {
        "spec.drain": {"preStopSeconds": 0, "shutdownTimeoutSeconds": 0, "terminationGraceSeconds": 30}
    },
    "the user's own arguments and variables": {
        "spec.engine": {
            "extraArgs": ["--enable-prefix-caching", "--seed", "-1", "--model-impl=auto"],
            "env": [
                {"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"},
                {"name": "VLLM_API_KEY", "secret": {"name": "chat-clients", "key": "key"}},
            ],
        }
    },
    "a name of 54 characters": {"metadata.name": "n23456789012345678901234567890123456789012345678901234"},
}
"""Changes to the minimal example that must be admitted."""
