"""The Job that evaluates a candidate's answers: the user's pod, tied down as the engines' are.

Whoever may write the resource gets no more by it than by `spec.podTemplate`: the restricted profile, an account without
rights or token, and nothing of the node. The Job belongs to the candidate's Deployment and goes with it, so that the
operator needs no right to delete Jobs.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.api.defaults import Resolved
from outrider.api.quality import EvaluationTemplate
from outrider.api.resource import SpeculativeInferenceService
from outrider.engine.command_line import HTTP_PORT
from outrider.errors import InvalidSpec
from outrider.manifests import pod_security
from outrider.manifests.meta import COMPONENT_LABEL, EVALUATES_LABEL, MANAGED_BY_LABEL, MANAGER, Manifest, labels
from outrider.manifests.pod_template_merge import POD_SECURITY, REFUSED, metadata_faults, shape_faults
from outrider.manifests.service_account import service_account_name

JOB = ("batch/v1", "Job")
COMPONENT = "evaluation"
PATH = "spec.rollout.quality.template"
VARIABLES = "OUTRIDER_"
"""How the names of the operator's variables begin."""
RESULT_FILE = "/dev/termination-log"
"""Kubernetes' own default: what is written there is in the pod's status, and no right is needed to read it."""
MAX_NAME = 63
_OURS = ("serviceAccountName", "serviceAccount", "hostNetwork", "hostPID", "hostIPC", "ephemeralContainers")
"""Of what `spec.podTemplate` may not have, that which a Job's pod may not have either, for the same reason."""
_OF_A_JOB = {
    "restartPolicy": "is Never, so that one evaluation gives one result; remove it",
    "activeDeadlineSeconds": "is set from spec.rollout.quality.maxMinutes; set it there",
    "automountServiceAccountToken": "is set by the operator: the pod gets no token of the API server; remove it",
    "enableServiceLinks": "is set by the operator; remove it",
    "nodeName": "goes past the scheduler; use nodeSelector",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """Whom an evaluation asks."""

    revision: str
    """Of the candidate."""
    pod_uid: str
    """Of the candidate's pod: another pod is evaluated anew."""
    address: str
    stable_address: str
    """Of one engine of the stable track."""
    deployment: Mapping[str, Any]
    """The candidate's, as the API server has it."""


def check(resource: SpeculativeInferenceService) -> None:
    """Refuse a template that no Job may be made of.

    Raises:
        InvalidSpec: the message names every field by its path, why it is refused, and what to do instead.
    """
    quality = resource.spec.rollout.quality
    if quality is None:
        return
    added = quality.template
    faults = [*metadata_faults(added.metadata), *shape_faults(added.spec)] or [*_faults(added.spec)]
    if faults:
        raise InvalidSpec("PodTemplateRefused", "; ".join(f"{PATH}.{fault}" for fault in faults))


def name(resource: SpeculativeInferenceService, revision: str, pod_uid: str) -> str:
    """Name of the Job that evaluates this pod with the present template."""
    quality = resource.spec.rollout.quality
    assert quality is not None
    asked = [resource.name, revision, pod_uid, quality.template.model_dump(by_alias=True)]
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:8]
    end = f"-quality-{digest}"
    return resource.name[: MAX_NAME - len(end)].rstrip("-.") + end


def job(resource: SpeculativeInferenceService, settings: Resolved, asked: Asked) -> Manifest:
    """The Job of a resource whose template `check` has let through; one try, and no result after its time."""
    quality, owner = resource.spec.rollout.quality, asked.deployment["metadata"]
    assert quality is not None
    assert settings.evaluation_max_s is not None
    own = {"apiVersion": "apps/v1", "kind": "Deployment", "name": owner["name"], "uid": owner["uid"]}
    return {
        "apiVersion": JOB[0],
        "kind": JOB[1],
        "metadata": {
            "name": name(resource, asked.revision, asked.pod_uid),
            "namespace": resource.namespace,
            "labels": labels(resource),
            "ownerReferences": [own],
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(settings.evaluation_max_s),
            "template": _pod(resource, settings, quality.template, asked),
        },
    }


def _pod(
    resource: SpeculativeInferenceService, settings: Resolved, added: EvaluationTemplate, asked: Asked
) -> Manifest:
    given: Manifest = dict(added.spec)
    (container,) = given["containers"]
    secrets = [{"name": secret} for secret in resource.spec.engine.image_pull_secrets]
    spec = {
        **({"imagePullSecrets": secrets} if secrets else {}),
        **given,
        "serviceAccountName": service_account_name(resource.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "securityContext": given.get("securityContext", {}) | pod_security.context(settings),
        "containers": [_container(container, resource, settings, asked)],
    }
    if given.get("initContainers"):
        spec["initContainers"] = [pod_security.restricted(one) for one in given["initContainers"]]
    ours = {COMPONENT_LABEL: COMPONENT, MANAGED_BY_LABEL: MANAGER, EVALUATES_LABEL: resource.name}
    metadata: Manifest = {"labels": {**added.metadata.labels, **ours}}
    if added.metadata.annotations:
        metadata["annotations"] = dict(added.metadata.annotations)
    return {"metadata": metadata, "spec": spec}


def _container(
    given: Mapping[str, Any], resource: SpeculativeInferenceService, settings: Resolved, asked: Asked
) -> Manifest:
    variables = {
        "CANDIDATE_URL": _url(asked.address),
        "STABLE_URL": _url(asked.stable_address),
        "MODEL": settings.served_name,
        "SERVICE": resource.name,
        "REVISION": asked.revision,
        "RESULT": given.get("terminationMessagePath") or RESULT_FILE,
    }
    env = [{"name": VARIABLES + key, "value": value} for key, value in variables.items()]
    # Of a harness that fails without a word, the end of its log is the reason.
    said = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    return pod_security.restricted({**said, **given, "env": [*env, *(given.get("env") or [])]})


def _url(address: str) -> str:
    bracketed = f"[{address}]" if ipaddress.ip_address(address).version == 6 else address
    return f"http://{bracketed}:{HTTP_PORT}"


def _faults(spec: Mapping[str, Any]) -> Iterator[str]:
    for field, why in {**{one: REFUSED[one] for one in _OURS}, **_OF_A_JOB}.items():
        if field in spec:
            yield f"spec.{field} {why}"
    for field in spec.get("securityContext", {}):
        if field not in POD_SECURITY:
            yield f"spec.securityContext.{field} is the operator's to set; use spec.security, or remove it"
    if len(spec.get("containers") or ()) != 1:
        yield "spec.containers must have one container, whose result counts; what comes before it is an initContainer"
    for volume in spec.get("volumes") or ():
        for fault in pod_security.volume_faults(volume):
            yield f"spec.volumes[{volume['name']}]: {fault}"
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            for fault in (*pod_security.container_faults(container), *_variables(container)):
                yield f"spec.{field}[{container['name']}]: {fault}"


def _variables(container: Mapping[str, Any]) -> Iterator[str]:
    given = container.get("env") or []
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        yield "env must be a list of variables, as in a pod"
        return
    for variable in given:
        if str(variable.get("name")).startswith(VARIABLES):
            yield f"env: {variable['name']} begins like the operator's own; take another name"
