"""Resources of every kind, right and wrong: each is refused in words that name a field, or rendered whole.

The short form of `make fuzz`, which tries twenty thousand.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.outcome import Outcome, names_a_field, outcome
from tests.fuzz.strategies import bodies


@pytest.fixture(scope="module")
def tally() -> Counter[str]:
    """How the resources fared; a fuzz run in which nearly all are refused at the door tries little."""
    return Counter()


def test_a_resource_is_refused_by_a_field_or_rendered(request: pytest.FixtureRequest, tally: Counter[str]) -> None:
    @settings(
        max_examples=request.config.getoption("--fuzz-examples"),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(bodies())
    def one(body: dict[str, Any]) -> None:
        found = outcome(body)
        tally[found.refused_by or "rendered"] += 1
        if found.refused_by:
            assert names_a_field(found.message), found.message
        else:
            _whole(found)
            assert outcome(body) == found, "the same resource is rendered in two ways"

    one()
    assert tally["rendered"] > 0.15 * tally.total(), tally


def _whole(found: Outcome) -> None:
    """What is sent to the API server is JSON, and so is what stands in arguments."""
    json.dumps(found.children, allow_nan=False)
    (deployment,) = [child for child in found.children if child["kind"] == "Deployment"]
    containers = deployment["spec"]["template"]["spec"]["containers"]
    (engine,) = [container for container in containers if container["name"] == "engine"]
    assert all(isinstance(argument, str) for argument in engine["args"])
    for flag, value in zip(engine["args"], engine["args"][1:], strict=False):
        if flag in ("--speculative-config", "--kv-transfer-config", "--custom-histogram-buckets"):
            json.loads(value.replace("$$", "$"))
