"""What to look at before a service is deployed: who sees it, and who reaches it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from outrider.cli.preflight_operations import replicas
from outrider.cli.preflight_outcome import PreflightCheck, Subject, Verdict, doubt, ok
from outrider.manifests import scaled_object

SECRET_NAME = re.compile(r"(KEY|TOKEN|PASSWORD|SECRET|CREDENTIAL)S?$")
GATED_OWNERS = ("meta-llama/", "google/gemma")
"""Owners of the best-known repositories that a hub shows only to those who accepted a licence."""


def _monitoring(subject: Subject) -> Iterator[Verdict]:
    if not subject.resolved.pod_monitor:
        yield doubt(
            "spec.monitoring.podMonitor",
            "spec.monitoring.podMonitor is false: unless something else scrapes port 8000 of the pods,"
            " nothing is tuned and nothing scales",
        )
    elif not subject.resource.spec.monitoring.labels:
        yield doubt(
            "spec.monitoring.labels",
            "spec.monitoring.labels is empty: a Prometheus that selects PodMonitors by label does not find this one;"
            " add its label, for example release: prometheus, if yours does",
        )
    yield ok("the engines' metrics are asked for")


def _secrets(subject: Subject) -> Iterator[Verdict]:
    spec = subject.resource.spec
    for variable in spec.engine.env:
        if variable.value is not None and SECRET_NAME.search(variable.name):
            yield doubt(
                "spec.engine.env",
                f"spec.engine.env: {variable.name} has its value in the resource, where everybody who may read it sees"
                " it; move it to a Secret and name that",
            )
    gated = [owner for owner in GATED_OWNERS if spec.model.id.startswith(owner)]
    if gated and spec.model.token_secret is None and subject.resolved.model_source == "hub":
        yield doubt(
            "spec.model.tokenSecret",
            f"spec.model.tokenSecret is not set, and {spec.model.id} belongs to an owner whose repositories ask for a"
            " licence: the download may be refused; name a Secret with a token",
        )
    yield ok("no secret stands in the resource")


def _access(subject: Subject) -> Iterator[Verdict]:
    spec = subject.resource.spec
    keyed = any(variable.name == "VLLM_API_KEY" for variable in spec.engine.env)
    limited = subject.resolved.network_policy and spec.network_policy.allow_from
    if not keyed and not limited:
        yield doubt(
            "spec.networkPolicy.allowFrom",
            "spec.networkPolicy.allowFrom names nobody in force, and VLLM_API_KEY is not in spec.engine.env: whoever"
            " reaches the Service may send requests; set one of them, or a policy of your own",
        )
    if subject.resolved.service_type != "ClusterIP" and not keyed:
        yield doubt(
            "spec.service.type",
            f"spec.service.type is {subject.resolved.service_type} without VLLM_API_KEY: the engines answer from"
            " outside the cluster without a key; set one from a Secret",
        )
    if subject.resolved.trust_remote_code and spec.model.revision is None:
        yield doubt(
            "spec.security.trustRemoteCode",
            "spec.security.trustRemoteCode is true and spec.model.revision is not set: the code that runs may change"
            " from one pod to the next; set the commit that you have read",
        )
    yield ok("requests need a key or are limited by a policy")


def _prefixes(subject: Subject) -> Iterator[Verdict]:
    workload = subject.workload
    repeats = workload in ("chat", "rag", "agent", "code", None)
    if subject.resource.spec.engine.prefix_caching is False and repeats:
        yield doubt(
            "spec.engine.prefixCaching",
            "spec.engine.prefixCaching is false: system prompts and earlier turns are computed again for each request;"
            " leave it out unless prompts share nothing",
        )
    elif workload in ("chat", "agent") and replicas(subject) > 1 and subject.resolved.session_affinity_s is None:
        yield doubt(
            "spec.service.sessionAffinitySeconds",
            f"spec.service.sessionAffinitySeconds is not set: turns of one {workload} session go to any of"
            f" {replicas(subject)} replicas, and each has a prefix cache of its own; set it, or use a router that knows"
            " prefixes",
        )
    else:
        yield ok("equal beginnings of prompts are kept")


def _triggers(subject: Subject) -> Iterator[Verdict]:
    for sentence in scaled_object.warnings(subject.resource):
        yield doubt("spec.autoscaling.triggers", sentence)
    yield ok("further triggers divide once, or there are none")


CHECKS = (
    PreflightCheck(
        name="monitoring",
        why="Tuning and scaling rest on the metrics of the engines.",
        remedy="Keep the PodMonitor, with the labels that your Prometheus selects by.",
        source="prometheus-operator: podMonitorSelector",
        look=_monitoring,
    ),
    PreflightCheck(
        name="triggers",
        why="KEDA divides an AverageValue by the number of replicas, so a query that is an average is divided twice.",
        remedy="Give a sum, or metricType Value.",
        source="kedacore/keda#5781, volcano-sh/kthena#831",
        look=_triggers,
    ),
    PreflightCheck(
        name="secrets",
        why="Whoever may read the resource reads the values in it.",
        remedy="Name Secrets instead of values.",
        source="gke-labs/kube-agents#608; kubernetes/kubernetes: Secret",
        look=_secrets,
    ),
    PreflightCheck(
        name="access",
        why="An engine without a key answers whoever reaches it, and code of a repository runs with its rights.",
        remedy="A key from a Secret, or a network policy; a pinned revision for remote code.",
        source="vllm/entrypoints/openai/api_server.py of vLLM 0.33.0",
        look=_access,
    ),
    PreflightCheck(
        name="prefix-caching",
        why="Prompts that begin alike are computed once, if they reach the replica that remembers.",
        remedy="Leave prefix caching on, and keep sessions on their replica.",
        source="vllm/config/cache.py of vLLM 0.33.0; vllm-project/vllm#53670",
        look=_prefixes,
    ),
)
