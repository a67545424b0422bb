"""Settings in force, as status shows them."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.api.defaults import resolve
from outrider.api.status import EffectiveSettings
from outrider.manifests import engine_container, engine_settings
from outrider.reconcile import effective
from tests.unit.manifests.builders import resource

ONLY_SOMETIMES = {"prompt_lookup_min", "prompt_lookup_max", "kv_cache_target_percent"}
NGRAM: dict[str, Any] = {"spec.speculation": {"method": "ngram", "maxSpeculativeTokens": 4}}


def shown(changes: dict[str, Any] | None = None) -> EffectiveSettings:
    """What status shows of the minimal example with these changes."""
    one = resource(changes or {})
    resolved = resolve(one.spec)
    container = engine_container.build(one, resolved, engine_settings.engine_config(one, resolved))
    return effective.in_force(resolved, container)


def test_every_setting_is_filled_in_by_one_service_or_another() -> None:
    plain = shown().model_dump()
    assert {name for name, value in plain.items() if value is None} <= ONLY_SOMETIMES
    full = shown({**NGRAM, "spec.autoscaling": {"maxReplicas": 3}}).model_dump()
    assert [name for name, value in full.items() if value is None] == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {"spec.resources.gpus": 8, "spec.parallelism": {"pipeline": 2, "data": 2}},
            {"gpus": 8, "tensor": 2, "pipeline": 2, "data": 2},
            id="parallelism",
        ),
        pytest.param({}, {"model_source": "Hub"}, id="the hub"),
        pytest.param({"spec.model.source": {"volume": {"claimName": "m"}}}, {"model_source": "Volume"}, id="a claim"),
        pytest.param({"spec.model.source": {"image": {"reference": "m:1"}}}, {"model_source": "Image"}, id="an image"),
        pytest.param(
            {"spec.model.source": {"objectStore": {"uri": "s3://m"}}}, {"model_source": "ObjectStore"}, id="a bucket"
        ),
        pytest.param({}, {"rollout": "RollingUpdate, maxSurge 0, maxUnavailable 1"}, id="one at a time"),
        pytest.param({"spec.rollout": {"strategy": "Recreate"}}, {"rollout": "Recreate"}, id="all at once"),
        pytest.param(NGRAM, {"prompt_lookup_min": 5, "prompt_lookup_max": 5}, id="bounds of n-grams"),
        pytest.param({}, {"prompt_lookup_min": None, "prompt_lookup_max": None}, id="no bounds of other methods"),
        pytest.param(
            {"spec.autoscaling": {"maxReplicas": 3, "kvCacheTargetPercent": 70}},
            {"kv_cache_target_percent": 70, "replicas": "1-3"},
            id="an autoscaler",
        ),
        pytest.param(
            {"spec.autoscaling": {"mode": "Off", "minReplicas": 2, "kvCacheTargetPercent": 70}},
            {"kv_cache_target_percent": None, "replicas": "2"},
            id="no autoscaler",
        ),
    ],
)
def test_what_is_shown(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    found = shown(changes).model_dump()
    assert {name: found[name] for name in expected} == expected
