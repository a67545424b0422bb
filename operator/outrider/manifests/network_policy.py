"""The NetworkPolicy: who may reach the engines, and on which port. What engines reach is left open.

Kubelets always reach the pods of their node, so probes need no rule.
"""

from __future__ import annotations

from outrider.api.resource import SpeculativeInferenceService
from outrider.engine.command_line import ADMIN_PORT, HTTP_PORT
from outrider.manifests.meta import (
    COMPONENT_LABEL,
    EVALUATES_LABEL,
    MANAGED_BY_LABEL,
    MANAGER,
    SERVICE_LABEL,
    Manifest,
    metadata,
)

OPERATOR = {"matchLabels": {"app.kubernetes.io/name": "outrider"}}
"""The operator's own pods."""
PROMETHEUS = {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}
"""What both the Prometheus operator and the community's chart put on their pods."""
NAMESPACE_NAME = "kubernetes.io/metadata.name"  # the API server labels every namespace so


def network_policy(resource: SpeculativeInferenceService, operator_namespace: str | None) -> Manifest:
    """The policy; ``operator_namespace`` is where the operator runs, None when it does not know."""
    allowed = list(resource.spec.network_policy.allow_from)
    inference: Manifest = {"ports": [_port(HTTP_PORT)]}
    if allowed:
        inference["from"] = [*allowed, {"namespaceSelector": {}, "podSelector": PROMETHEUS}, *_evaluation(resource)]
    rules = [inference, {"from": [_operator(operator_namespace)], "ports": [_port(ADMIN_PORT)]}]
    if resource.spec.engine.kv_transfer is not None:
        rules.append(_engines())
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(resource, resource.name),
        "spec": {
            "podSelector": {"matchLabels": {SERVICE_LABEL: resource.name}},
            "policyTypes": ["Ingress"],
            "ingress": rules,
        },
    }


def _operator(namespace: str | None) -> Manifest:
    """The operator's pods, in any namespace when its own is not known: the admin port also asks for a key."""
    namespaces = {} if namespace is None else {"matchLabels": {NAMESPACE_NAME: namespace}}
    return {"namespaceSelector": namespaces, "podSelector": OPERATOR}


def _evaluation(resource: SpeculativeInferenceService) -> list[Manifest]:
    """Its own Job asks the engines like any client."""
    if resource.spec.rollout.quality is None:
        return []
    return [{"podSelector": {"matchLabels": {EVALUATES_LABEL: resource.name}}}]


def _engines() -> Manifest:
    """Engines of the namespace hand each other KV caches, over ports that their connectors choose as they like."""
    engines = {"matchLabels": {COMPONENT_LABEL: "engine", MANAGED_BY_LABEL: MANAGER}}
    ranges = [(1024, HTTP_PORT - 1), (ADMIN_PORT + 1, 65535)]
    return {
        "from": [{"podSelector": engines}],
        "ports": [{"protocol": "TCP", "port": first, "endPort": last} for first, last in ranges],
    }


def _port(number: int) -> Manifest:
    return {"protocol": "TCP", "port": number}
