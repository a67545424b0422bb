"""What a measured cold start changes: how far ahead replicas are asked for, and how long the HPA looks back."""

from __future__ import annotations

import pytest

from outrider.api.defaults import resolve
from outrider.api.resource import parse
from outrider.reconcile.configuration import lead_s, look_back_s

from .builders import World, body, pod


@pytest.mark.parametrize(
    ("cold_start_s", "look_back", "expected_s"),
    [
        pytest.param(None, 300, 120.0, id="none was seen"),
        pytest.param(20.0, 300, 120.0, id="shorter than what peaks can tell"),
        pytest.param(20.0, 45, 60.0, id="short, and replicas are to go soon"),
        pytest.param(0.0, 0, 30.0, id="no time at all"),
        pytest.param(250.0, 0, 270.0, id="in half minutes"),
        pytest.param(270.0, 300, 270.0, id="just a half minute"),
        pytest.param(5000.0, 300, 900.0, id="longer than what peaks can tell"),
    ],
)
def test_replicas_are_asked_for_a_cold_start_ahead(
    cold_start_s: float | None, look_back: int, expected_s: float
) -> None:
    assert lead_s(cold_start_s, look_back) == expected_s


@pytest.mark.parametrize(
    ("own", "usual_s", "cold_start_s", "expected_s"),
    [
        pytest.param(None, 300, None, 300, id="the operator's"),
        pytest.param(None, 300, 300.0, 300, id="a start within it"),
        pytest.param(None, 300, 301.0, 600, id="a longer start"),
        pytest.param(None, 5, 7.0, 10, id="of a short look back too"),
        pytest.param(None, 0, 7.0, 0, id="none is wanted"),
        pytest.param(None, 300, 9000.0, 3600, id="no more than the HPA takes"),
        pytest.param(60, 300, 301.0, 60, id="the user's own number stands"),
    ],
)
def test_a_replica_goes_no_sooner_than_one_would_come(
    own: int | None, usual_s: int, cold_start_s: float | None, expected_s: int
) -> None:
    changes = {} if own is None else {"spec.autoscaling.scaleDownStabilizationSeconds": own}
    spec = parse(body(changes)).spec
    assert look_back_s(spec, resolve(spec, usual_s), cold_start_s) == expected_s


async def test_both_follow_the_pods_of_a_service() -> None:
    world = World()
    world.add()
    started = pod(created="2027-01-15T08:00:00Z", ready_since="2027-01-15T08:07:00Z")
    world.registry.child_event("ADDED", started)
    await world.settle()
    service = world.service()
    assert service.config is not None
    assert service.config.lead_s == 420.0
    scaled = world.kube.objects["ScaledObject", "ml", "chat"]
    behavior = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 600
