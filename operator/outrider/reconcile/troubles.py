"""What keeps engines from serving: one word, and a sentence with the remedy and the path of the field that holds it.

Read from the pods and the Deployment alone, in the words of those who refuse: the scheduler, the kubelet, the API
server and the engine itself. Nothing else is read for it, so no right is needed beyond the watches that there are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from outrider.api.defaults import Resolved
from outrider.api.resource import Spec
from outrider.core.words import count
from outrider.manifests.meta import ENGINE_CONTAINER
from outrider.reconcile import remedies, rollout
from outrider.reconcile.engine_pod import EnginePod

PATIENCE_S = 60.0
"""For how long a pod may wait for a place before that is trouble: a scheduler that has backed off looks again within
ten seconds, and an autoscaler of nodes may take it from there."""

_IMAGE = frozenset(
    ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
     "RegistryUnavailable", "SignatureValidationFailed")
)  # fmt: skip
_REFUSED = frozenset(
    ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError",
     "PreStartHookError", "PostStartHookError")
)  # fmt: skip
_NO_OBJECT = re.compile(r'(?P<kind>secret|configmap) "(?P<name>[^"]+)" not found', re.I)
_NO_KEY = re.compile(r"couldn't find key (?P<key>\S+) in (?P<kind>Secret|ConfigMap) [^/\s]+/(?P<name>[^\s,]+)")
_NO_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
_PREEMPTION = re.compile(r"\s*(?:no new claims to deallocate,?|preemption:).*$", re.S)
_CLASSES = {"PriorityClass": "priorityClassName", "RuntimeClass": "runtimeClassName"}
_POD_NAME = re.compile(r'^(?:Pod|pods) "[^"]+" is (?:forbidden|invalid): ')


@dataclass(frozen=True, slots=True)
class Trouble:
    """One pod, or the making of pods, and what is the matter."""

    reason: str
    """CamelCase, fit for a condition."""
    message: str
    """What is so, and what mends it."""
    revision: str | None = None
    """Of the pod; None where no pod can be made at all."""
    passing: bool = False
    """It may be over in a moment by itself: no cause for alarm yet."""


def find(
    pods: Sequence[EnginePod],
    deployment: Mapping[str, Any] | None,
    spec: Spec | None,
    resolved: Resolved,
    now_s: float,
) -> list[Trouble]:
    """All troubles there are: first those of pods that the present template wants, by name.

    Pods that ended for good or are on their way out have none: others stand in for them.
    """
    wanted = rollout.revision(deployment)
    present = [pod for pod in pods if not pod.terminating and not pod.ready]
    living = [pod for pod in present if not pod.failed]
    drains = [pod.name for pod in pods if pod.terminating]
    found = [_of_deployment(deployment)]
    for pod in sorted(living or present, key=lambda pod: (pod.revision != wanted, pod.name)):
        trouble = _of_pod(pod, spec, resolved, drains, now_s)
        found.append(None if trouble is None else replace(trouble, revision=pod.revision))
    return [trouble for trouble in found if trouble is not None]


def _of_deployment(deployment: Mapping[str, Any] | None) -> Trouble | None:
    """Pods that the API server refuses to make."""
    failure = rollout.deployment_condition(deployment, "ReplicaFailure")
    if failure.get("status") != "True":
        return None
    words = _POD_NAME.sub("", failure.get("message", "")) or failure.get("reason", "")
    if "exceeded quota" in words or "failed quota" in words:
        return Trouble("QuotaExceeded", f"a ResourceQuota refuses the pod: {words}. Raise it, or ask for less in"
                       " spec.resources or for fewer replicas")  # fmt: skip
    if "violates PodSecurity" in words:
        return Trouble("PodSecurityRefused", f"the namespace's Pod Security level refuses the pod: {words}. Lower the"
                       " level, or change the fields named")  # fmt: skip
    named = next((f". Look at spec.placement.{field}" for kind, field in _CLASSES.items() if kind in words), "")
    return Trouble("PodsRefused", f"the API server refuses the pod: {words}{named}")


def _of_pod(
    pod: EnginePod, spec: Spec | None, resolved: Resolved, drains: Sequence[str], now_s: float
) -> Trouble | None:
    if pod.failed:
        remedy = remedies.for_eviction(pod.failed)
        message = f"pod {pod.name} ended for good ({pod.failed}); another one takes its place"
        return Trouble("PodFailed", message + (f", and {remedy}" if remedy else ""))
    if pod.unscheduled:
        return _unscheduled(pod, spec, resolved, drains, now_s)
    if pod.waiting_reason in _IMAGE:
        words = pod.waiting_message or pod.waiting_reason
        return Trouble("ImageNotPulled", f"{_where(pod)}: {words}. Look at the image in the spec (spec.engine.image and"
                       " spec.engine.version for the engine), at spec.engine.imagePullSecrets, and at the node's way"
                       " to the registry")  # fmt: skip
    if pod.waiting_reason in _REFUSED:
        return _refused(pod, spec)
    return _ended(pod, spec)


def _unscheduled(pod: EnginePod, spec: Spec | None, resolved: Resolved, drains: Sequence[str], now_s: float) -> Trouble:
    words = _PREEMPTION.sub("", pod.unscheduled)
    waits_s = 0.0 if pod.pending_since_s is None else now_s - pod.pending_since_s
    claim = _NO_CLAIM.search(words)
    if claim is not None:
        fields = ", ".join(remedies.claim_fields(spec, claim[1]))
        of = f" ({fields})" if fields else ""
        return Trouble("VolumeClaimNotFound", f'pod {pod.name}: PersistentVolumeClaim "{claim[1]}"{of} is not there:'
                       " create it; the engine then starts by itself")  # fmt: skip
    if "unbound immediate PersistentVolumeClaims" in words:
        return Trouble("VolumeClaimNotBound", f"pod {pod.name}: {words} Look at the claim's storage class and events",
                       passing=waits_s < PATIENCE_S)  # fmt: skip
    if "ReadWriteOncePod" in words:
        return Trouble("CacheNotShareable", f"pod {pod.name}: {words} Replicas share a claim only with access mode"
                       " ReadWriteMany or ReadOnlyMany")  # fmt: skip
    if drains and remedies.no_gpu(words, resolved) and waits_s < PATIENCE_S + pod.grace_s:
        message = f"pod {pod.name} starts when pod {drains[0]} has finished its requests and given its GPU back"
        return Trouble("Replacing", message, passing=True)
    reason = "NoFreeGPU" if remedies.no_gpu(words, resolved) else "Unschedulable"
    remedy = remedies.for_scheduler(words, resolved)
    message = f"pod {pod.name}: {words}" + (f" To mend it, {remedy}" if remedy else "")
    return Trouble(reason, message, passing=waits_s < PATIENCE_S)


def _refused(pod: EnginePod, spec: Spec | None) -> Trouble:
    """A container that the kubelet cannot make: most often for a Secret that is not there."""
    words = pod.waiting_message
    found = _NO_KEY.search(words) or _NO_OBJECT.search(words)
    if found is None:
        return Trouble("ContainerRefused", f"{_where(pod)}: {words or pod.waiting_reason}")
    parts = found.groupdict()
    name, key = parts["name"], parts.get("key")
    if parts["kind"].lower() == "configmap":
        missing = f'ConfigMap "{name}"' + (f' has no key "{key}"' if key else " is not there")
        return Trouble("ConfigurationMissing", f"{_where(pod)}: {missing}; it is made with the service, so this ends by"
                       " itself")  # fmt: skip
    wanted = [
        (path, wants) for path, wants in remedies.secret_fields(spec, name) if key is None or wants in (None, key)
    ]
    fields = ", ".join(dict.fromkeys(path for path, _ in wanted))
    of = f" ({fields})" if fields else ""
    if key is None:
        keys = ", ".join(f'"{one}"' for one in dict.fromkeys(wants for _, wants in wanted) if one is not None)
        message = f'Secret "{name}"{of} is not there: create it' + (f" with key {keys}" if keys else "")
    else:
        message = f'Secret "{name}" has no key "{key}"{of}: add the key, or name another one'
    return Trouble("SecretNotFound", f"{_where(pod)}: {message}; the engine then starts by itself")


def _ended(pod: EnginePod, spec: Spec | None) -> Trouble | None:
    """A container that ended and does not run well again yet."""
    ending = pod.ending
    if ending is None:
        if pod.waiting_reason != "CrashLoopBackOff":
            return None
        reason = "SidecarFailed" if pod.beside else "EngineCrashLoop"
        return Trouble(reason, f"{_where(pod)}: {pod.waiting_message or pod.waiting_reason}")
    if ending.life < pod.restarts == pod.served_life:
        return None
    said = f" Its last words: {ending.words}" if ending.words else ""
    remedy = "" if pod.beside else remedies.for_last_words(ending.words, spec)
    ended = f"exit status {ending.exit_code}" + (f"; {remedy}" if remedy else "")
    if ending.reason == "OOMKilled" and not pod.beside:
        return Trouble("EngineOutOfMemory", f"{_where(pod)}: killed for want of memory; raise spec.resources.memory, of"
                       f" which spec.resources.sharedMemory is a part.{said}")  # fmt: skip
    if pod.container != ENGINE_CONTAINER:
        reason = "SidecarFailed" if pod.beside else "InitContainerFailed"
        return Trouble(reason, f"{_where(pod)}: it ended with {ended}.{said}")
    if pod.outlived_its_budget:
        return Trouble("StartupTimeout", f"{_where(pod)}: the engine was killed since it was not healthy within"
                       f" {pod.startup_budget_s:.0f} s; raise spec.startup.budgetSeconds, or see what it waits"
                       f" for.{said}")  # fmt: skip
    loops = pod.waiting_reason == "CrashLoopBackOff" or pod.restarts > 1
    return Trouble("EngineCrashLoop" if loops else "EngineCrashed", f"{_where(pod)}: the engine ended with"
                   f" {ended}.{said}")  # fmt: skip


def _where(pod: EnginePod) -> str:
    kind = "container" if pod.beside else "init container"
    container = "" if pod.container == ENGINE_CONTAINER else f", {kind} {pod.container},"
    return f"pod {pod.name}{container}" + (f" after {count(pod.restarts, 'restart')}" if pod.restarts else "")
