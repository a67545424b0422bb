"""What was seen of one service: its objects over time, and what may be concluded from them. No I/O.

All times are seconds from the start of the live part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from outrider.api.defaults import PERCENTILE

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pod:
    """An engine pod at one look."""

    name: str
    uid: str
    address: str
    template: str
    """The hash of the pod template that it was made from."""
    ready: bool
    leaving: bool
    restarts: int

    @property
    def serving(self) -> bool:
        """Whether an endpoint picker would choose it."""
        return self.ready and not self.leaving and bool(self.address)


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision as the resource's status tells it."""

    time_s: float
    service: str
    kind: str
    before: str
    after: str
    reason: str


@dataclass(slots=True)
class ServiceFacts:
    """Everything seen of one service so far; `look` adds one more look."""

    name: str
    pods: list[Pod] = field(default_factory=list)
    """As last seen."""
    all_pods: dict[str, Pod] = field(default_factory=dict)
    """Every pod ever seen, by uid, as last seen."""
    gone: dict[str, float] = field(default_factory=dict)
    """When pods were first seen on their way out or missing, by uid."""
    replicas: list[tuple[float, int]] = field(default_factory=list)
    """The Deployment's number of replicas, each time that it moved."""
    targets: list[tuple[float, int]] = field(default_factory=list)
    """The threshold of the ScaledObject's first trigger, each time that it moved."""
    generations: set[int] = field(default_factory=set)
    uid: str = ""
    """Of the resource; empty before the first look."""
    scaled_object_uids: set[str] = field(default_factory=set)
    hpa_uids: set[str] = field(default_factory=set)
    decisions: list[Decision] = field(default_factory=list)
    """Oldest first."""
    status: Manifest = field(default_factory=dict)
    spec: Manifest = field(default_factory=dict)
    pod_seconds: float = 0.0
    """Pods that exist, added up over time, those on their way out included: what a GPU bill counts."""
    _last_look_s: float | None = None

    @property
    def serving(self) -> list[Pod]:
        """Pods that requests may go to."""
        return [pod for pod in self.pods if pod.serving]

    @property
    def desired(self) -> int:
        """The Deployment's replicas."""
        return self.replicas[-1][1] if self.replicas else 0

    @property
    def objective_s(self) -> float | None:
        """The TPOT objective of the resource."""
        milliseconds = self.spec.get("objectives", {}).get("tpotMilliseconds")
        return None if milliseconds is None else milliseconds / 1e3

    @property
    def percentile_asked(self) -> int:
        """Share of requests, in percent, that the resource wants within its objectives."""
        asked: int = self.spec.get("objectives", {}).get("percentile", PERCENTILE)
        return asked

    def see_pods(self, pods: Sequence[Pod], now_s: float) -> None:
        """The pods of one look."""
        if self._last_look_s is not None:
            self.pod_seconds += len(self.pods) * (now_s - self._last_look_s)
        self._last_look_s = now_s
        self.pods = sorted(pods, key=lambda pod: pod.name)
        present = {pod.uid: pod for pod in pods}
        self.all_pods |= present
        for uid in self.all_pods:
            if uid not in present or present[uid].leaving:
                self.gone.setdefault(uid, now_s)

    def see_replicas(self, replicas: int, now_s: float) -> None:
        """The Deployment's number at one look."""
        if not self.replicas or self.replicas[-1][1] != replicas:
            self.replicas.append((now_s, replicas))

    def see_target(self, scaled_object: Manifest, now_s: float) -> None:
        """The ScaledObject at one look."""
        self.scaled_object_uids.add(scaled_object["metadata"]["uid"])
        target = int(scaled_object["spec"]["triggers"][0]["metadata"]["threshold"])
        if not self.targets or self.targets[-1][1] != target:
            self.targets.append((now_s, target))

    def see_resource(self, resource: Manifest, began_unix_s: float) -> None:
        """The SpeculativeInferenceService at one look; its status only gives the decisions their reasons."""
        self.generations.add(resource["metadata"]["generation"])
        self.uid = resource["metadata"]["uid"]
        self.spec, self.status = resource["spec"], resource.get("status", {})
        known = {(one.time_s, one.kind, one.before) for one in self.decisions}
        for change in reversed(self.status.get("history", [])):
            time_s = datetime.fromisoformat(change["time"]).timestamp() - began_unix_s
            if (time_s, change["kind"], change["from"]) not in known:
                self.decisions.append(
                    Decision(time_s, self.name, change["kind"], change["from"], change["to"], change["reason"])
                )

    def deleted(self, resource: Manifest | None) -> bool:
        """Whether a look at the resource, None where there is none, shows that the one seen before is gone or going;
        another one of the same name is no substitute."""
        if resource is None or "deletionTimestamp" in resource["metadata"]:
            return True
        return self.uid not in ("", resource["metadata"]["uid"])

    @property
    def target_patches(self) -> int:
        """How often the in-flight target was changed."""
        return max(0, len(self.targets) - 1)

    def replaced_pods(self) -> int:
        """Pods that ended, restarted or changed although nobody asked for fewer: tuning must cause none of it.

        A pod that went is explained by a step down of the Deployment's replicas; restarted containers and pods of
        another template are never explained.
        """
        numbers = [replicas for _, replicas in self.replicas]
        steps_down = sum(max(0, before - after) for before, after in pairwise(numbers))
        unexplained = max(0, len(self.gone) - steps_down)
        templates = [pod.template for pod in self.all_pods.values()]
        changed = sum(template != templates[0] for template in templates)
        return unexplained + changed + sum(pod.restarts for pod in self.all_pods.values())


def read_pod(manifest: Manifest) -> Pod:
    """What matters of a Pod object."""
    metadata, status = manifest["metadata"], manifest.get("status", {})
    conditions = {one["type"]: one["status"] for one in status.get("conditions", [])}
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        address=status.get("podIP", ""),
        template=metadata["labels"].get("pod-template-hash", ""),
        ready=conditions.get("Ready") == "True",
        leaving="deletionTimestamp" in metadata,
        restarts=sum(one.get("restartCount", 0) for one in status.get("containerStatuses", [])),
    )
