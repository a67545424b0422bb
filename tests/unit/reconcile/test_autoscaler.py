"""Our ScaledObject and the autoscalers of somebody else: never two on one Deployment."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.manifests import queries
from outrider.reconcile import autoscaler

from .builders import World
from .fakes import Manifest

SCALED: dict[str, Any] = {"spec.autoscaling": {"minReplicas": 2, "maxReplicas": 6}}
OURS = ("ScaledObject", "ml", "chat")


def hpa(name: str = "search", target: str = "chat", owner: str | None = None, kind: str = "Deployment") -> Manifest:
    """A HorizontalPodAutoscaler, perhaps one that a ScaledObject made."""
    meta: Manifest = {"name": name, "namespace": "ml", "uid": f"uid-of-{name}"}
    if owner is not None:
        meta["ownerReferences"] = [{"kind": "ScaledObject", "name": owner, "uid": f"uid-of-{owner}"}]
    spec = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": target}}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec}


def scaled_object(name: str = "by-hand", target: str = "chat") -> Manifest:
    """A ScaledObject that somebody else made; kind and version of its target are left to KEDA's defaults."""
    meta = {"name": name, "namespace": "ml"}
    spec = {"scaleTargetRef": {"name": target}, "triggers": []}
    return {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": meta, "spec": spec}


async def beside(*others: Manifest) -> World:
    """A new service whose Deployment others scale already."""
    world = World()
    for other in others:
        world.kube.put(other)
    world.add(SCALED)
    await world.settle()
    return world


@pytest.mark.parametrize(
    ("others", "named"),
    [
        pytest.param([hpa()], "HorizontalPodAutoscaler/search scales", id="an HPA"),
        pytest.param([scaled_object()], "ScaledObject/by-hand scales", id="a ScaledObject"),
        pytest.param([scaled_object("chat")], "ScaledObject/chat scales", id="a ScaledObject of our name"),
        pytest.param(
            [scaled_object(), hpa("keda-hpa-by-hand", owner="by-hand")],
            "ScaledObject/by-hand scales",
            id="its HPA is told under its name",
        ),
        pytest.param(
            [hpa("keda-hpa-gone", owner="gone")],
            "HorizontalPodAutoscaler/keda-hpa-gone scales",
            id="the HPA of a ScaledObject that has just gone",
        ),
        pytest.param(
            [hpa(), scaled_object()], "HorizontalPodAutoscaler/search, ScaledObject/by-hand scale", id="two of them"
        ),
    ],
)
async def test_where_somebody_else_scales_we_make_no_scaled_object_and_write_no_number(
    others: list[Manifest], named: str
) -> None:
    world = await beside(*others)
    assert all(write.target != "ScaledObject/chat" for write in world.kube.writes)
    assert world.kube.replicas() == 1, "the minimum is the other one's to set"
    status, reason, message = world.condition("AutoscalingReady") or ("", "", "")
    assert (status, reason) == ("False", "ForeignAutoscaler")
    assert message.startswith(named)
    assert "mode: External" in message


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(hpa(target="other"), id="an HPA on another Deployment"),
        pytest.param(hpa(kind="StatefulSet"), id="an HPA on something else of that name"),
        pytest.param(scaled_object(target="other"), id="a ScaledObject on another Deployment"),
        pytest.param(hpa("keda-hpa-chat", owner="chat"), id="the HPA of our own ScaledObject"),
    ],
)
async def test_an_autoscaler_of_something_else_is_none_of_our_business(other: Manifest) -> None:
    world = await beside(other)
    assert OURS in world.kube.objects
    assert world.kube.replicas() == 2


async def test_ours_comes_once_the_other_one_is_gone() -> None:
    world = await beside(hpa())
    world.kube.edit("Deployment", "chat", {"spec": {"replicas": 5}}, manager="kube-controller-manager")
    world.kube.take_away("HorizontalPodAutoscaler", "search")
    await world.settle()
    assert OURS in world.kube.objects
    assert world.kube.replicas() == 5
    assert (world.condition("AutoscalingReady") or ("", ""))[1] == "WaitingForKEDA"


async def test_with_mode_external_the_other_one_is_welcome() -> None:
    world = await beside(hpa())
    world.add({"spec.autoscaling": {"mode": "External"}})
    await world.settle()
    assert (world.condition("AutoscalingReady") or ("", ""))[:2] == ("True", "ExternalAutoscaler")
    assert world.service().foreign_scalers == ()


async def test_once_ours_is_there_nothing_is_listed_until_its_hpa_tells_of_another_one() -> None:
    world = await beside()
    ours = hpa(autoscaler.hpa_name("chat"), owner="chat")
    ours["metadata"]["labels"] = {"serving.outrider.dev/service": "chat"}
    world.kube.put(ours | {"status": {"conditions": [{"type": "ScalingActive", "status": "True"}]}})
    world.kube.put(hpa())
    world.kube.listed.clear()
    await world.settle()
    assert world.kube.listed == []
    shared = {"type": "ScalingActive", "status": "False", "reason": "AmbiguousSelector"}
    world.kube.put(ours | {"status": {"conditions": [shared]}})
    await world.settle()
    status, reason, message = world.condition("AutoscalingReady") or ("", "", "")
    assert (status, reason) == ("False", "ForeignAutoscaler")
    assert "neither may scale" in message
    assert OURS in world.kube.objects, "ours was there first, and is not taken away"
    world.kube.take_away("HorizontalPodAutoscaler", "search")
    world.kube.put(ours | {"status": {"conditions": []}})
    await world.settle()
    assert (world.condition("AutoscalingReady") or ("", ""))[1] != "ForeignAutoscaler"


def test_measurements_of_our_hpa_are_no_news_and_its_conclusions_are() -> None:
    world = World()
    world.add(SCALED)
    ours = hpa(autoscaler.hpa_name("chat"), owner="chat")
    ours["metadata"]["labels"] = {"serving.outrider.dev/service": "chat"}

    def news(**status: Any) -> bool:
        return world.registry.child_event("MODIFIED", ours | {"status": status})[1]

    active = {"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"}
    assert news(desiredReplicas=2, conditions=[active])
    assert not news(desiredReplicas=2, conditions=[active | {"message": "other"}], currentMetrics=[{"value": "3"}])
    assert news(desiredReplicas=3, conditions=[active])
    assert news(desiredReplicas=3, conditions=[active | {"status": "False"}])


def test_the_name_of_the_hpa_is_the_one_that_keda_gives() -> None:
    assert autoscaler.hpa_name("chat") == "keda-hpa-chat"
    assert queries.DESIRED_REPLICAS == "outrider_desired_replicas"
