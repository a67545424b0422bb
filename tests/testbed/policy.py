"""Policies of a cluster that refuse something in one namespace, as platform teams write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import yaml

from tests.testbed.cluster import Cluster


@contextmanager
def denied(
    cluster: Cluster, namespace: str, rule: Mapping[str, Any], message: str, *attempt: str, input: str | None = None
) -> Iterator[None]:
    """A policy that refuses what matches the rule, with this message, for the length of the block.

    The API server takes a policy up a moment after it was written, and drops it a moment after it was deleted: the
    block begins when ``attempt``, a command of kubectl's, is refused in a dry run, and ends when it no longer is.
    """
    text = yaml.safe_dump_all(_policy(namespace, rule, message))
    cluster.kubectl("apply", "-f", "-", input=text)

    def refused() -> bool:
        answer = cluster.kubectl(*attempt, "-n", namespace, "--dry-run=server", input=input, check=False)
        return message in answer.stderr

    try:
        cluster.wait_until(f"refusal by the policy {namespace}", refused)
        yield
    finally:
        cluster.kubectl("delete", "-f", "-", input=text)
    cluster.wait_until(f"end of the policy {namespace}", lambda: not refused())


def _policy(namespace: str, rule: Mapping[str, Any], message: str) -> list[Mapping[str, Any]]:
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false", "message": message}],
    }
    binding = {"policyName": namespace, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": here}}
    kinds = {"ValidatingAdmissionPolicy": policy, "ValidatingAdmissionPolicyBinding": binding}
    return [
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": namespace}, "spec": spec}
        for kind, spec in kinds.items()
    ]
