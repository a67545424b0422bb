"""What the live Deployment tells of an update of the engines: whether one is under way, how far it is, its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outrider.core.words import share
from outrider.manifests.meta import REVISION_LABEL
from outrider.reconcile.engine_pod import EnginePod


def under_way(deployment: Mapping[str, Any], pods: Sequence[EnginePod]) -> bool:
    """Whether engines of an older template are being replaced, or the last of the new ones is still to come.

    A Deployment that its controller has not looked at since may only have got another number of replicas: the pods
    tell whether its template is news.
    """
    status, meta = deployment.get("status", {}), deployment["metadata"]
    wanted, stale = revision(deployment), status.get("observedGeneration", 0) < meta.get("generation", 0)
    if status.get("updatedReplicas", 0) < status.get("replicas", 0) or (
        stale and any(pod.revision != wanted for pod in pods)
    ):
        return True
    progressing = deployment_condition(deployment, "Progressing")
    first = meta.get("annotations", {}).get("deployment.kubernetes.io/revision", "1") == "1"
    return not first and progressing.get("reason", "NewReplicaSetAvailable") != "NewReplicaSetAvailable"


def share_updated(deployment: Mapping[str, Any]) -> str:
    """How many engines run the present template, in words."""
    desired = deployment["spec"].get("replicas", 1)
    return share(deployment.get("status", {}).get("updatedReplicas", 0), desired, "engine", "run")


def downtime(deployment: Mapping[str, Any]) -> str:
    """What an update costs a service that it leaves without any engine for a while; empty if it does not."""
    spec = deployment["spec"]
    desired, strategy = spec.get("replicas", 1), spec.get("strategy", {})
    missing = strategy.get("rollingUpdate", {}).get("maxUnavailable", 0)
    if strategy.get("type") != "Recreate" and not (isinstance(missing, int) and missing >= desired):
        return ""
    engines = "the only engine" if desired == 1 else "all engines"
    return f"; an update interrupts the service, since it ends {engines} before another one is ready (spec.rollout)"


def deadline_exceeded(deployment: Mapping[str, Any] | None) -> bool:
    """Whether the Deployment's controller has seen no progress for as long as it was told to wait."""
    return deployment_condition(deployment, "Progressing").get("reason") == "ProgressDeadlineExceeded"


def deployment_condition(deployment: Mapping[str, Any] | None, type_: str) -> Mapping[str, Any]:
    """A condition of the Deployment; empty if it does not have it."""
    found = (deployment or {}).get("status", {}).get("conditions", [])
    return next((one for one in found if one["type"] == type_), {})


def revision(deployment: Mapping[str, Any] | None) -> str:
    """The revision that the Deployment's template has; empty if that is not known."""
    template = (deployment or {}).get("spec", {}).get("template", {})
    found: str = template.get("metadata", {}).get("labels", {}).get(REVISION_LABEL, "")
    return found
