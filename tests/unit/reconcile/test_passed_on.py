"""Children that come and go with a field, and fields that Kubernetes alone can judge."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.errors import KubeError

from .builders import World, settings

POLICY: dict[str, Any] = {"spec.networkPolicy": {"enabled": True}}
SIDECAR: dict[str, Any] = {"spec.podTemplate": {"spec": {"containers": [{"name": "guard", "image": "guard:1"}]}}}
REFUSED: dict[str, Any] = {"spec.podTemplate": {"spec": {"hostNetwork": True}}}
SPREAD: dict[str, Any] = {"spec.placement": {"topologySpreadConstraints": [{"maxSkew": 0}]}}


@pytest.fixture
def world() -> World:
    """Knows `chat`, and nothing was done for it yet."""
    world = World()
    world.add()
    return world


def invalid() -> KubeError:
    """The API server's answer to a manifest that it cannot take."""
    return KubeError("ApplyRefused", "PATCH …: is invalid: spec.template.spec.x: Required value", 422)


class TestNetworkPolicy:
    async def test_it_is_made_before_the_engines_and_goes_when_it_is_no_longer_asked_for(self, world: World) -> None:
        world.add(POLICY, generation=4)
        await world.settle()
        applied = world.kube.applied()
        assert applied.index("NetworkPolicy/chat") < applied.index("Deployment/chat")
        world.add(generation=5)
        await world.settle()
        assert ("NetworkPolicy", "ml", "chat") not in world.kube.objects

    async def test_a_restarted_operator_takes_an_old_one_away(self, world: World) -> None:
        world.add(POLICY, generation=4)
        await world.settle()
        world.add(generation=5)
        world.restart()
        await world.settle()
        assert ("NetworkPolicy", "ml", "chat") not in world.kube.objects

    async def test_a_service_that_never_had_one_costs_no_question(self, world: World) -> None:
        await world.settle()
        assert not [read for read in world.kube.reads if read.startswith("NetworkPolicy")]

    async def test_one_of_somebody_elses_is_left_alone(self, world: World) -> None:
        await world.settle()
        labels = {"serving.outrider.dev/service": "chat"}
        foreign = {"name": "chat", "namespace": "ml", "uid": "theirs", "labels": labels}
        world.kube.put({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": foreign})
        await world.settle()
        assert world.kube.live("NetworkPolicy", "chat")["metadata"]["uid"] == "theirs"

    async def test_the_operators_own_namespace_is_a_setting(self) -> None:
        world = World(settings=settings(operator_namespace="platform"))
        world.add(POLICY)
        await world.settle()
        (peer,) = world.kube.live("NetworkPolicy", "chat")["spec"]["ingress"][1]["from"]
        assert peer["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "platform"}}


class TestFieldsThatKubernetesJudges:
    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            pytest.param(SIDECAR, "spec.podTemplate.spec", id="the template"),
            pytest.param(SPREAD, "spec.placement.topologySpreadConstraints", id="the placement"),
        ],
    )
    async def test_a_refusal_names_the_field_that_was_passed_on(
        self, world: World, changes: dict[str, Any], named: str
    ) -> None:
        world.add(changes, generation=4)
        world.kube.fail(invalid, "apply", "Deployment/chat")
        assert await world.reconcile() is not None
        status, reason, message = world.condition("Ready") or ("", "", "")
        assert (status, reason) == ("False", "FieldRefused")
        assert message.startswith(f"look at {named}: ")
        assert "spec.template.spec.x: Required value" in message
        world.kube.heal()
        world.add(generation=5)
        assert await world.reconcile() is None

    async def test_a_refusal_of_what_is_ours_alone_blames_nobody(self, world: World) -> None:
        world.kube.fail(invalid, "apply", "Deployment/chat")
        await world.reconcile()
        assert (world.condition("Ready") or ("", ""))[1] == "ApplyRefused"

    async def test_another_fault_of_the_api_server_is_told_as_it_is(self, world: World) -> None:
        world.add(SIDECAR, generation=4)
        world.kube.fail(lambda: KubeError("ApplyRefused", "no", 409), "apply", "Deployment/chat")
        await world.reconcile()
        assert (world.condition("Ready") or ("", ""))[1] == "ApplyRefused"

    async def test_what_may_not_be_added_is_refused_before_anything_is_touched(self, world: World) -> None:
        await world.settle()
        world.forget_writes()
        world.add(REFUSED, generation=4)
        assert await world.reconcile() is None
        assert world.kube.applied() == ["SpeculativeInferenceService/chat/status"]
        status, reason, message = world.condition("Stalled") or ("", "", "")
        assert (status, reason) == ("True", "PodTemplateRefused")
        assert message.startswith("spec.podTemplate.spec.hostNetwork ")


async def test_a_doubtful_trigger_is_said_and_made(world: World) -> None:
    trigger = {"name": "queue", "query": "avg(x)", "metricType": "AverageValue", "target": 5}
    world.add({"spec.autoscaling.triggers": [trigger]}, generation=4)
    await world.settle()
    status, reason, message = world.condition("Admitted") or ("", "", "")
    assert (status, reason) == ("True", "AdmittedWithWarnings")
    assert "divided twice" in message
    assert len(world.kube.live("ScaledObject", "chat")["spec"]["triggers"]) == 4
