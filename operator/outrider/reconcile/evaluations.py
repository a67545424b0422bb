"""The evaluation of a candidate before it takes requests: its Job made once, its result read from its pod's status.

Jobs are not watched, which would take another right: a control pass asks for an objects pass, and that one looks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from outrider.api.resource import SpeculativeInferenceService
from outrider.core.revisions import quality
from outrider.core.revisions.quality import Quality
from outrider.core.revisions.trial import Trial
from outrider.errors import Conflict, KubeError, Unavailable
from outrider.manifests import evaluation, passed_on
from outrider.manifests.candidate import candidate_name
from outrider.manifests.meta import EVALUATES_LABEL
from outrider.reconcile import children
from outrider.reconcile.neighbours import Manifest, Neighbours
from outrider.reconcile.redaction import first_words, last_words
from outrider.reconcile.registry import Service
from outrider.reconcile.rendering import Rendered

logger = logging.getLogger(__name__)

WORDS = 300
"""Characters of what is cited of a pod."""


def may_serve(service: Service, resource: SpeculativeInferenceService) -> bool:
    """Whether requests may go to a candidate, if there is one."""
    if resource.spec.rollout.quality is None:
        return True
    return service.trial is not None and service.trial.traffic_since_s is not None


async def look(service: Service, asked: Rendered, neighbours: Neighbours) -> None:
    """See how far the evaluation is, and have it made; without an answer of the API server nothing is known.

    What it refuses counts as an evaluation that failed: the candidate's GPU must not wait for it.
    """
    service.quality, trial = None, service.trial
    if trial is None or trial.stage != "Checking" or trial.revision != asked.revision:
        return
    if asked.resource.spec.rollout.quality is None:
        return
    job = _job(service, trial, asked)
    if job is None:
        return
    try:
        service.quality = await _found(job, asked, neighbours)
    except (Unavailable, Conflict) as error:
        namespace, name = service.key
        extra = {"namespace": namespace, "service": name, "reason": error.reason}
        logger.warning("the evaluation was not looked at: %s", error.message, extra=extra)
    except KubeError as error:
        fields = ", ".join(passed_on.fields(asked.resource, "Job"))
        service.quality = Quality("failed", f"its evaluation was refused; look at {fields}: {error.message}")


def _job(service: Service, trial: Trial, asked: Rendered) -> Manifest | None:
    """The Job of the candidate's present pod; None while there is none, or nothing to compare it with."""
    pod = next((one for one in service.pods_of(trial) if not one.failed), None)
    stable = next((one.address for one in service.ready_pods if one.address is not None), None)
    deployment = service.children.get(f"Deployment/{candidate_name(service.key[1])}")
    if pod is None or pod.address is None or stable is None or deployment is None:
        return None
    whom = evaluation.Asked(trial.revision, pod.uid, pod.address, stable, deployment)
    return evaluation.job(asked.resource, asked.resolved, whom)


async def _found(job: Manifest, asked: Rendered, neighbours: Neighbours) -> Quality:
    kube, meta = neighbours.kube, job["metadata"]
    live = await kube.get(*evaluation.JOB, meta["namespace"], meta["name"])
    if live is None:
        live = await kube.create(job)
    (owner,) = meta["ownerReferences"]
    if not children.owned_by(owner["uid"], live):
        return Quality("failed", f"Job {meta['name']} exists and is not the candidate's; delete it")
    pods = await kube.list("v1", "Pod", meta["namespace"], f"{EVALUATES_LABEL}={asked.resource.name}")
    return told(live, pods, asked.resolved.quality_tolerance)


def told(job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], tolerance: float | None) -> Quality:
    """What a Job and its pod say; pods of other Jobs may be among them."""
    name, waits = job["metadata"]["name"], ""
    for pod in pods:
        if not children.owned_by(job["metadata"]["uid"], pod):
            continue
        containers = pod.get("status", {}).get("containerStatuses") or [{}]
        state = containers[0].get("state", {})
        ended, waiting = state.get("terminated"), state.get("waiting", {})
        if ended is not None and ended.get("exitCode") == 0:
            return quality.judge(ended.get("message") or "", tolerance)
        if ended is not None:
            words = last_words(ended.get("message") or "it said nothing", WORDS)
            code = ended.get("exitCode")
            return Quality("failed", f"its evaluation ended with exit status {code}: {words}; see Job {name}")
        if waiting:
            waits = first_words(f": {waiting.get('reason', '')} {waiting.get('message', '')}", WORDS).rstrip()
    for one in job.get("status", {}).get("conditions") or ():
        if one.get("type") == "Failed" and one.get("status") == "True":
            words = first_words(f"{one.get('reason', '')}: {one.get('message', '')}", WORDS)
            return Quality("failed", f"its evaluation, Job {name}, failed: {words}{waits}")
    return Quality("pending", f"Job {name} evaluates its answers{waits}")
