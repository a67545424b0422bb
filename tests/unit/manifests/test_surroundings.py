"""Children around the pods: Service, NetworkPolicy, PodDisruptionBudget; and where pods are placed."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.manifests import network_policy, passed_on
from tests.unit.api.bodies import resource
from tests.unit.manifests.builders import made

EVERYBODY: dict[str, Any] = {"enabled": True}
SOME: dict[str, Any] = {"allowFrom": [{"podSelector": {"matchLabels": {"app": "gateway"}}}]}


def rules(settings: dict[str, Any], **changes: Any) -> list[dict[str, Any]]:
    """What a policy lets in."""
    found: list[dict[str, Any]] = made({"spec.networkPolicy": settings, **changes})["NetworkPolicy"]["spec"]["ingress"]
    return found


def ports(rule: dict[str, Any]) -> list[int]:
    """Ports of a rule."""
    return [port["port"] for port in rule["ports"]]


@pytest.mark.parametrize(
    ("settings", "there"),
    [
        pytest.param(None, False, id="nobody asked"),
        pytest.param({"enabled": False, **SOME}, False, id="turned off"),
        pytest.param(EVERYBODY, True, id="turned on"),
        pytest.param(SOME, True, id="somebody named"),
    ],
)
def test_there_is_a_policy_when_it_is_asked_for(settings: dict[str, Any] | None, there: bool) -> None:
    assert ("NetworkPolicy" in made({"spec.networkPolicy": settings})) is there


def test_requests_come_from_everybody_or_from_those_named_and_prometheus() -> None:
    assert ports(rules(EVERYBODY)[0]) == [8000]
    assert "from" not in rules(EVERYBODY)[0]
    assert ports(rules(SOME)[0]) == [8000]
    assert rules(SOME)[0]["from"] == [
        *SOME["allowFrom"],
        {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}},
    ]


@pytest.mark.parametrize("settings", [EVERYBODY, SOME])
def test_the_admin_port_is_for_the_operator_alone(settings: dict[str, Any]) -> None:
    (rule,) = [rule for rule in rules(settings) if 8001 in ports(rule)]
    assert ports(rule) == [8001]
    (peer,) = rule["from"]
    assert peer["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "outrider"}}
    assert peer["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "outrider-system"}}


def test_an_operator_that_does_not_know_its_namespace_is_let_in_from_any() -> None:
    made_policy = network_policy.network_policy(resource({"spec.networkPolicy": EVERYBODY}), None)
    assert made_policy["spec"]["ingress"][1]["from"] == [
        {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "outrider"}}}
    ]


def test_engines_reach_each_other_only_to_hand_on_caches_and_never_on_our_ports() -> None:
    assert len(rules(EVERYBODY)) == 2
    transfer = {"spec.engine": {"kvTransfer": {"connector": "NixlConnector", "role": "Both"}}}
    rule = rules(EVERYBODY, **transfer)[2]
    assert not [port for port in rule["ports"] if port["port"] <= 8001 <= port["endPort"]]
    assert not [port for port in rule["ports"] if port["port"] <= 8000 <= port["endPort"]]
    assert [port for port in rule["ports"] if port["port"] <= 5600 <= port["endPort"]], "NIXL's side channel"
    assert rule["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "engine"
    assert "namespaceSelector" not in rule["from"][0]


def test_what_engines_reach_is_left_open() -> None:
    assert made({"spec.networkPolicy": EVERYBODY})["NetworkPolicy"]["spec"]["policyTypes"] == ["Ingress"]


def test_the_policy_is_about_the_pods_of_the_service() -> None:
    policy, deployment = (made({"spec.networkPolicy": EVERYBODY})[kind] for kind in ("NetworkPolicy", "Deployment"))
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels


def test_the_service_as_it_was_and_as_it_is_asked_for() -> None:
    plain = made()["Service"]
    assert plain["spec"]["type"] == "ClusterIP"
    assert not {"sessionAffinity", "sessionAffinityConfig"} & set(plain["spec"])
    settings = {"type": "LoadBalancer", "annotations": {"b": "1", "a": "2"}, "sessionAffinitySeconds": 600}
    asked = made({"spec.service": settings})["Service"]
    assert asked["spec"]["type"] == "LoadBalancer"
    assert asked["spec"]["sessionAffinity"] == "ClientIP"
    assert asked["spec"]["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 600}}
    assert list(asked["metadata"]["annotations"]) == ["a", "b"]
    assert asked["spec"]["ports"] == plain["spec"]["ports"]


@pytest.mark.parametrize(
    ("disruption", "expected"), [(None, 1), ({"maxUnavailable": 0}, 0), ({"maxUnavailable": 3}, 3)]
)
def test_how_many_may_be_evicted(disruption: dict[str, int] | None, expected: int) -> None:
    assert made({"spec.disruption": disruption})["PodDisruptionBudget"]["spec"]["maxUnavailable"] == expected


def pod(placement: dict[str, Any]) -> dict[str, Any]:
    """The pod's spec with a placement."""
    spec: dict[str, Any] = made({"spec.placement": placement})["Deployment"]["spec"]["template"]["spec"]
    return spec


def test_placement_is_passed_on() -> None:
    placement = {
        "affinity": {"nodeAffinity": {"x": 1}},
        "priorityClassName": "serving",
        "runtimeClassName": "nvidia",
        "schedulerName": "volcano",
    }
    assert {name: pod(placement)[name] for name in placement} == placement
    assert not set(placement) & set(pod({}))


def test_a_spread_without_a_selector_counts_the_pods_of_the_service() -> None:
    own = {"maxSkew": 1, "topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
    bare = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    found = pod({"topologySpreadConstraints": [bare, own]})["topologySpreadConstraints"]
    ours = {"labelSelector": {"matchLabels": {"serving.outrider.dev/service": "chat"}}}
    assert found == [{**bare, **ours}, own]


def test_devices_by_claims_take_the_place_of_the_gpu_resource() -> None:
    claims = [
        {"name": "gpus", "resourceClaimTemplateName": "two", "request": "gpu"},
        {"name": "nic", "resourceClaimTemplateName": "one"},
    ]
    changes = {"spec.resources": {"gpus": 2, "memory": "64Gi", "resourceClaims": claims}}
    spec = made(changes)["Deployment"]["spec"]["template"]["spec"]
    assert spec["resourceClaims"] == [
        {"name": "gpus", "resourceClaimTemplateName": "two"},
        {"name": "nic", "resourceClaimTemplateName": "one"},
    ]
    assert spec["containers"][0]["resources"] == {
        "requests": {"memory": "64Gi"},
        "limits": {"memory": "64Gi"},
        "claims": [{"name": "gpus", "request": "gpu"}, {"name": "nic"}],
    }
    assert "--tensor-parallel-size" in spec["containers"][0]["args"]


def test_ids_and_images() -> None:
    changes = {
        "spec.security": {"runAsUser": 2000, "runAsGroup": 3000, "fsGroup": 4000},
        "spec.engine": {"imagePullPolicy": "Never", "imagePullSecrets": ["b", "a"]},
    }
    spec = made(changes)["Deployment"]["spec"]["template"]["spec"]
    ids = {name: spec["securityContext"][name] for name in ("runAsUser", "runAsGroup", "fsGroup")}
    assert ids == {"runAsUser": 2000, "runAsGroup": 3000, "fsGroup": 4000}
    assert spec["imagePullSecrets"] == [{"name": "b"}, {"name": "a"}]
    assert spec["containers"][0]["imagePullPolicy"] == "Never"


@pytest.mark.parametrize(
    ("kind", "changes", "expected"),
    [
        pytest.param("Deployment", {}, (), id="nothing"),
        pytest.param(
            "Deployment",
            {"spec.podTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"dnsPolicy": "x"}}},
            ("spec.podTemplate.metadata", "spec.podTemplate.spec"),
            id="a template",
        ),
        pytest.param(
            "Deployment",
            {"spec.placement": {"affinity": {"a": 1}, "topologySpreadConstraints": [{}]}},
            ("spec.placement.affinity", "spec.placement.topologySpreadConstraints"),
            id="placement",
        ),
        pytest.param("NetworkPolicy", {"spec.networkPolicy": SOME}, ("spec.networkPolicy.allowFrom",), id="peers"),
        pytest.param("ConfigMap", {"spec.networkPolicy": SOME}, (), id="another kind"),
    ],
)
def test_fields_that_only_kubernetes_can_judge(kind: str, changes: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert passed_on.fields(resource(changes), kind) == expected
