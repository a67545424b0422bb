"""What the operator knows of each service: the resource, its children as last seen, and the controller's state.

Filled by watch events, read by both passes. A restart fills it again from the first listing; what must survive is in
the memory document.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import median_high
from typing import Any

from outrider.adapters.kube import FIELD_MANAGER, REPLICAS_MANAGER
from outrider.api.defaults import Resolved
from outrider.api.resource import SpeculativeInferenceService
from outrider.core.controller import Outcome
from outrider.core.decision import Change
from outrider.core.demand import Demand
from outrider.core.one_k_state import OneK
from outrider.core.revisions.analysis import Judgement
from outrider.core.revisions.quality import Quality
from outrider.core.revisions.record import Record
from outrider.core.revisions.trial import Revisions, Trial, Withdrawn
from outrider.core.series import Missing
from outrider.core.state import ControllerConfig, ControllerState
from outrider.engine.config import EngineConfig
from outrider.engine.one_k import Choice
from outrider.manifests.meta import CANDIDATE, STABLE
from outrider.reconcile import contention
from outrider.reconcile.contention import Contention
from outrider.reconcile.engine_pod import EnginePod
from outrider.reconcile.manifest_state import child_id, lean, older, shape
from outrider.reconcile.scaling_path import UNKNOWN, ScalingPath
from outrider.reconcile.share import BudgetKey, Quota, Share, Shared

Manifest = Mapping[str, Any]
ServiceKey = tuple[str, str]
"""Namespace and name."""

OWN_MANAGERS = (FIELD_MANAGER, REPLICAS_MANAGER)
SERVICE_LABEL = "serving.outrider.dev/service"


@dataclass(slots=True)
class Service:
    """One service. Passes hold its ``lock``; events replace the observed parts at any time."""

    key: ServiceKey
    body: Manifest
    pods: dict[str, EnginePod] = field(default_factory=dict)
    children: dict[str, Manifest] = field(default_factory=dict)
    """Live children by ``kind/name``, as events or our own writes last showed them."""
    applied: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By ``kind/name``: digest of what we sent, and `shape` of what the API server made of it."""
    resource: SpeculativeInferenceService | None = None
    """The body, parsed; None while it is not valid."""
    config: ControllerConfig | None = None
    state: ControllerState | None = None
    outcome: Outcome | None = None
    metrics: Missing | None = None
    """Why there are no metrics; None while there are."""
    left_out: tuple[Missing, ...] = ()
    """Why engines with metrics were left out of the last decision."""
    resolved: Resolved | None = None
    """The last valid spec, with every default filled in."""
    bounds: tuple[int, int] | None = None
    """Fewest and most replicas that an autoscaler may be asked for; None where nobody scales."""
    demand: Demand = field(default_factory=Demand)
    """What its load asked for lately."""
    revisions: Revisions = field(default_factory=Revisions)
    """What is remembered of its revisions."""
    recorded_revisions: Revisions = field(default_factory=Revisions)
    """The same as the memory document has it."""
    trial: Trial | None = None
    """The candidate beside the stable engines, if there is one."""
    withheld: Withdrawn | None = None
    """Why the stable engines do not get what the spec asks for, where that was withdrawn."""
    judgement: Judgement | None = None
    """What the last comparison of that candidate found; None before the first, and for another candidate."""
    quality: Quality | None = None
    """What that candidate's evaluation has said so far."""
    record: Record | None = None
    """What engines told in that comparison so far."""
    engine: EngineConfig | None = None
    """The stable engines as their resource has them."""
    wanted: str | None = None
    """The revision that they are to have; None while it is another than the last objects pass knew."""
    one_k: OneK = field(default_factory=OneK)
    """What is remembered of a K that is delivered by roll-out."""
    one_k_said: str | None = None
    """Why their K is what it is, where it is delivered by roll-out; None where it is not."""
    share: Share | None = None
    """Its part of the namespace's GPU quota; None where there is none, or it was not worked out yet."""
    limited: bool = False
    """More replicas are wanted than there may be, and that is told."""
    foreign_scalers: tuple[str, ...] = ()
    """Autoscalers of somebody else on our Deployment, as ``kind/name``."""
    contention: Contention = contention.NONE
    """Who else writes the number of replicas."""
    admin_key: str | None = field(default=None, repr=False)
    """The first of its Secret; None while it was not read, or was refused."""
    older_keys: tuple[str, ...] = field(default=(), repr=False)
    """The others of its Secret: engines may have no other yet while keys are rotated."""
    acknowledged: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By pod UID: the generation that its engine acknowledged, and when."""
    refusals: dict[str, str] = field(default_factory=dict)
    """By pod UID: why its engine did not take the schedule, or does not run what it acknowledged."""
    declined: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By pod UID: the generation that its engine cannot run, and when it said so; asked again at the renewal's pace."""
    recorded: tuple[int, int] | None = None
    """Generation and target in the memory document: no later generation may reach an engine."""
    recorded_share: int | None = None
    """Most replicas of its share, as the memory document has it."""
    unannounced: list[Change] = field(default_factory=list)
    """Changes whose event was not posted yet."""
    controllable: bool = True
    """The engines' image is ours, so that their admin port should answer."""
    admin_key_seen_s: float = 0.0
    """When the Secret was last found in its place."""
    scaling_path: ScalingPath = UNKNOWN
    """The registry's, as it was when the last objects pass began."""
    keda_answered: bool = False
    """A query of KEDA's has had an answer."""
    absent: set[str] = field(default_factory=set)
    """Optional children, by ``kind/name``, that are known not to be there."""
    saved_s: float = 0.0
    """When the memory document was last written."""
    status: dict[str, Any] | None = None
    """The status as last written by this process."""
    status_written_s: float = 0.0
    warned_s: dict[str, float] = field(default_factory=dict)
    """When a warning was last posted, by reason."""
    looked_s: float = 0.0
    """When the last objects pass began."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def frozen(self) -> bool:
        """Whether it is to be left as it is."""
        return self.config is not None and self.config.frozen

    @property
    def choice(self) -> Choice | None:
        """The K that its engines are started with, where Outrider chose one."""
        chosen = self.one_k.chosen
        return None if chosen is None else Choice(self.one_k.subject, chosen)

    def keep(self, revisions: Revisions) -> None:
        """Remember revisions; what was found of another candidate, or of an earlier start, is void."""
        before, self.trial, self.revisions = self.trial, revisions.trial, revisions
        now = self.trial
        if before is None or now is None or (before.revision, before.boot) != (now.revision, now.boot):
            self.judgement = self.quality = None

    def saw(self, child: str, body: Manifest) -> None:
        """Keep the newest state of a child, by ``kind/name``, and what it tells of the number of replicas."""
        before = self.children.get(child)
        self.children[child] = lean(body)
        if body["kind"] == "HorizontalPodAutoscaler":
            self.contention = contention.asked(self.contention, body.get("status", {}).get("desiredReplicas"))
        elif body["kind"] == "Deployment" and before is not None:
            self.contention = contention.moved(self.contention, before, body, OWN_MANAGERS)

    def drop_pod(self, name: str) -> None:
        """Forget a pod, and all that its engine said."""
        gone = self.pods.pop(name, None)
        if gone is not None:
            for by_uid in (self.acknowledged, self.refusals, self.declined):
                by_uid.pop(gone.uid, None)

    def forget_child(self, child: str) -> None:
        """Forget an object that is gone, and that we ever made it."""
        self.children.pop(child, None)
        self.applied.pop(child, None)
        if child.startswith("HorizontalPodAutoscaler/"):
            self.contention = contention.asked(self.contention, None)

    @property
    def stable_pods(self) -> list[EnginePod]:
        """Pods of the stable track, in order of name: the replicas. Those of a candidate are none."""
        return [pod for _, pod in sorted(self.pods.items()) if pod.track == STABLE]

    @property
    def ready_pods(self) -> list[EnginePod]:
        """Replicas that serve, in order of name."""
        return [pod for pod in self.stable_pods if pod.serves]

    @property
    def serving_pods(self) -> list[EnginePod]:
        """Pods of either track that serve, in order of name."""
        return [pod for _, pod in sorted(self.pods.items()) if pod.serves]

    def pods_of(self, trial: Trial) -> list[EnginePod]:
        """Pods of a candidate's present start, in order of name; those of an earlier one are on their way out."""
        return [
            pod
            for _, pod in sorted(self.pods.items())
            if pod.track == CANDIDATE
            and (pod.revision, pod.boot) == (trial.revision, trial.boot)
            and not pod.terminating
        ]

    @property
    def cold_start_s(self) -> float | None:
        """What starts of its replicas took, seconds: the median, the greater of two; None before any was seen."""
        seen = [pod.cold_start_s for pod in self.stable_pods if pod.cold_start_s is not None]
        return median_high(seen) if seen else None


class Registry:
    """All services, by namespace and name."""

    def __init__(self) -> None:
        self._services: dict[ServiceKey, Service] = {}
        self.scaling_path = UNKNOWN
        self.quotas: Mapping[BudgetKey, Quota] | None = None
        """By namespace and GPU resource; None before the first look."""
        self.shared: dict[BudgetKey, Shared] = {}
        """What was shared out last, by the same."""
        self._orphans: dict[ServiceKey, dict[str, Manifest]] = {}
        """Children without a resource that we know, by their service: it comes later, or has just gone."""

    def __iter__(self) -> Iterator[Service]:
        return iter(list(self._services.values()))

    def __len__(self) -> int:
        return len(self._services)

    def get(self, key: ServiceKey) -> Service | None:
        """The service, or None if it is not (or no longer) there."""
        return self._services.get(key)

    def forget(self, key: ServiceKey, uid: str) -> None:
        """Drop a service that is gone, unless it was made anew meanwhile."""
        known = self._services.get(key)
        if known is not None and known.body["metadata"]["uid"] == uid:
            del self._services[key]

    def forget_pod(self, key: ServiceKey, name: str, uid: str) -> bool:
        """Drop a pod that is gone, unless it was made anew meanwhile; tells whether it was known."""
        service = self._services.get(key)
        pod = None if service is None else service.pods.get(name)
        if service is None or pod is None or pod.uid != uid:
            return False
        service.drop_pod(name)
        return True

    def resource_event(self, event_type: str | None, body: Manifest) -> tuple[ServiceKey, bool]:
        """Take note of a change of a resource; the flag tells whether there is a reason to look.

        A status that we wrote ourselves is none: it would wake the pass that wrote it.
        """
        key, body = (body["metadata"]["namespace"], body["metadata"]["name"]), lean(body)
        known = self._services.get(key)
        if event_type == "DELETED" or "deletionTimestamp" in body["metadata"]:
            self._services.pop(key, None)
            return key, True
        if known is None or known.body["metadata"]["uid"] != body["metadata"]["uid"]:
            # A resource of the same name made anew is another service: nothing of the old one may leak into it.
            self._services[key] = Service(key, body)
            for child in self._orphans.pop(key, {}).values():
                self.child_event("ADDED", child)
            return key, True
        news = known.body["metadata"].get("generation") != body["metadata"].get("generation")
        known.body = body
        return key, news

    def child_event(self, event_type: str | None, body: Manifest) -> tuple[ServiceKey, bool]:
        """Take note of a change of a child; the flag tells whether an objects pass has a reason to look."""
        meta = body["metadata"]
        key = (meta["namespace"], meta["labels"][SERVICE_LABEL])
        child = child_id(body)
        service = self._services.get(key)
        if service is None:
            # The first listing may bring children before their resource, and some outlive it for a while.
            if event_type == "DELETED":
                left = {one: orphan for one, orphan in self._orphans.pop(key, {}).items() if one != child}
                if left:
                    self._orphans[key] = left
            else:
                self._orphans.setdefault(key, {})[child] = body
            return key, False
        if body["kind"] == "Pod":
            return key, self._pod_event(service, event_type, body)
        before = service.children.get(child)
        if event_type == "DELETED":
            if before is not None and before["metadata"]["uid"] != meta["uid"]:
                return key, False  # the one before it went; we have made it anew since
            service.forget_child(child)
            return key, True
        if before is not None and older(body, before):
            return key, False  # our own write already showed us more than this event does
        service.saw(child, body)
        service.keda_answered |= body["kind"] == "ScaledObject" and _keda_answered(body)
        if body["kind"] == "HorizontalPodAutoscaler":
            return key, before is None or _verdict(before) != _verdict(body)
        changed = before is None or shape(before) != shape(body) or before.get("status") != body.get("status")
        return key, changed

    def _pod_event(self, service: Service, event_type: str | None, body: Manifest) -> bool:
        name = body["metadata"]["name"]
        before = service.pods.get(name)
        if event_type == "DELETED":
            service.drop_pod(name)
            return before is not None
        pod = service.pods[name] = _with_past(EnginePod.of(body), before)
        if before is not None and before.restarts != pod.restarts:
            # An engine that started again begins with its initial schedule, and may be another one.
            service.acknowledged.pop(pod.uid, None)
            service.declined.pop(pod.uid, None)
        return pod != before


def _with_past(pod: EnginePod, before: EnginePod | None) -> EnginePod:
    """The pod, with what was seen of it before and its status no longer tells."""
    if before is None or before.uid != pod.uid:
        return pod
    served_life = before.served_life if pod.served_life is None else pod.served_life
    # Of a pod that was unready for a while the status tells the end of that, not of its start.
    cold_start_s = pod.cold_start_s if before.cold_start_s is None else before.cold_start_s
    return replace(pod, served_life=served_life, cold_start_s=cold_start_s)


def _verdict(hpa: Manifest) -> tuple[Any, ...]:
    """What an HPA concludes; its measurements, which move at each of its looks, are no reason for a pass."""
    status = hpa.get("status", {})
    conditions = sorted((one["type"], one["status"], one.get("reason", "")) for one in status.get("conditions") or ())
    return status.get("desiredReplicas"), conditions


def _keda_answered(scaled_object: Manifest) -> bool:
    """Whether its status tells of an answer: a query that is well now, or load that was seen."""
    status = scaled_object.get("status", {})
    return "lastActiveTime" in status or any(one.get("status") == "Happy" for one in status.get("health", {}).values())
