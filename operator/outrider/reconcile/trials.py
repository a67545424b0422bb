"""What a change of a spec means for the engines: `outrider.core.revisions.course`, fed with what the cluster shows.

what is asked, what runs, the candidate's pods, room, the last comparison ─▶ step ─▶ what either track gets
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from outrider.api import changes
from outrider.core.revisions import course
from outrider.core.revisions.analysis import Plan
from outrider.core.revisions.sight import Candidate, News, Room, Sight
from outrider.core.revisions.trial import Revisions, Trial
from outrider.engine.one_k import Choice
from outrider.manifests.candidate import candidate_name
from outrider.reconcile import measures, rendering, rollout
from outrider.reconcile.engine_pod import EnginePod
from outrider.reconcile.registry import Service
from outrider.reconcile.rendering import Rendered

MAX_SPEC = 200_000
"""Characters of a spec that is remembered: a fifth of what a ConfigMap holds. A change of a larger one rolls."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What the tracks are to be."""

    stable: Rendered
    candidate: Rendered | None = None
    news: tuple[News, ...] = ()


def turn(
    service: Service, asked: Rendered, spec: Mapping[str, Any], *, frozen: bool, look_back_s: int, now_s: float
) -> Turn:
    """Take the change one step further, and keep what is to be remembered of it.

    ``spec`` is what was asked as the API server has it, ``look_back_s`` the fleet's before scaling down. A service that
    is ``frozen`` stays where it is.
    """
    known, before = _stable(service.revisions, asked, look_back_s, service.choice)
    if frozen:
        tried = known.trial is not None or known.withdrawn_for(asked.revision) is not None
        return Turn(before if tried and before is not None else asked)
    found = course.step(known, _sight(service, known, before, asked, spec, now_s))
    service.keep(found.revisions)
    measures.ended(service.key, known.history, found.revisions.history)
    trial = found.revisions.trial
    held = not found.rolls and trial is None
    service.withheld = found.revisions.withdrawn_for(asked.revision) if held else None
    return Turn(
        asked if found.rolls or before is None else before,
        asked if trial is not None and trial.placed and trial.revision == asked.revision else None,
        found.news,
    )


def _stable(
    known: Revisions, asked: Rendered, look_back_s: int, choice: Choice | None
) -> tuple[Revisions, Rendered | None]:
    """What stable engines are, where that is not what is asked; where it cannot be told any more it is forgotten.

    Another version of the operator may render the same spec another way, and so does another K of its choice: its
    revision is then another one, and no change of the spec.
    """
    if known.stable is None or known.stable == asked.revision:
        return known, None
    before = None if known.spec is None else rendering.stable(known.spec, asked, look_back_s, choice)
    if before is None:
        return Revisions(history=known.history, spread=known.spread), None
    if before.revision != known.stable:
        known = replace(known, stable=before.revision).known_good(before.revision)
    return known, before


def _sight(
    service: Service,
    known: Revisions,
    before: Rendered | None,
    asked: Rendered,
    spec: Mapping[str, Any],
    now_s: float,
) -> Sight:
    deployment, resolved = service.children.get(f"Deployment/{service.key[1]}"), asked.resolved
    question = None if before is None else changes.question(before.resource.spec, asked.resource.spec)
    small = len(str(spec)) <= MAX_SPEC
    if question is None:
        plan = None
    else:
        plan = Plan(question, resolved.margin, max_time_s=resolved.trial_max_s, known=known.spread)
    return Sight(
        wanted=asked.revision,
        spec=spec if small else {},
        plan=plan,
        policy=resolved.rollout_policy,
        approved=resolved.approved,
        serving=len(service.ready_pods),
        complete=_complete(service, deployment),
        stuck=rollout.deadline_exceeded(deployment),
        candidate=_candidate(service, known.trial),
        room=_room(service, asked, deployment),
        start_limit_s=asked.deployment["spec"]["progressDeadlineSeconds"],
        judgement=service.judgement,
        now_s=now_s,
        check_limit_s=resolved.evaluation_max_s,
        quality=service.quality,
    )


def _complete(service: Service, deployment: Mapping[str, Any] | None) -> str | None:
    """The revision that all stable engines run and serve with; None if they do not, or there is none."""
    if deployment is None or rollout.under_way(deployment, service.stable_pods):
        return None
    live, serving = rollout.revision(deployment), service.ready_pods
    desired = deployment["spec"].get("replicas", 1)
    if not serving or len(serving) < desired or any(pod.revision != live for pod in serving):
        return None
    return live


def _candidate(service: Service, trial: Trial | None) -> Candidate:
    if trial is None:
        return Candidate()
    pods = service.pods_of(trial)
    deployment = service.children.get(f"Deployment/{candidate_name(service.key[1])}")
    refused = rollout.deployment_condition(deployment, "ReplicaFailure") if not pods else {}
    unplaced = next((pod.unscheduled for pod in pods if pod.unscheduled), "")
    return Candidate(
        serves=any(pod.serves for pod in pods),
        crashes=sum(map(_crashes, pods)),
        words=next((pod.ending.words for pod in pods if pod.ending is not None), ""),
        unplaced=unplaced or (refused.get("message", "") if refused.get("status") == "True" else ""),
    )


def _crashes(pod: EnginePod) -> int:
    """Lives of its container that have ended: nobody asks for that while the pod is not on its way out."""
    return 0 if pod.ending is None else pod.ending.life + 1


def _room(service: Service, asked: Rendered, deployment: Mapping[str, Any] | None) -> Room:
    resolved = asked.resolved
    limits = [resolved.max_replicas] if resolved.bounded_by_gpus else []
    if service.share is not None:
        limits.append(max(1, service.share.most))
    replicas = 0 if deployment is None else deployment["spec"].get("replicas", 1)
    held = sum(not pod.failed for pod in service.stable_pods)
    scaled = resolved.autoscaled and not service.foreign_scalers
    return Room(
        replicas=replicas,
        pods=max(replicas, held),
        most=min(limits, default=None),
        needed=service.demand.wanted,
        ours=scaled or resolved.fixed_replicas is not None,
    )
