"""An engine's pod as the passes see it: read once from the API server's object, with what its engine said last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from outrider.manifests.candidate import BOOT_ANNOTATION
from outrider.manifests.meta import ENGINE_CONTAINER, REVISION_LABEL, STABLE, TRACK_LABEL
from outrider.reconcile.redaction import last_words

Manifest = Mapping[str, Any]

WORDS = 500
"""Characters of an engine's last words that are kept: the exception and what led to it, and room for the remedy."""
_ON_ITS_WAY = ("PodInitializing", "ContainerCreating")
KUBELET_LIMIT = 2000
"""A termination message about this long was cut by the kubelet (at 2048 bytes), in the middle of a line and perhaps of
a token."""
KILL_SLACK_S = 30
"""How late the kubelet may be in killing a container whose start-up probe has failed, beside its grace period."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How the last life of an engine's container ended."""

    exit_code: int
    reason: str
    """The kubelet's word: ``Error``, ``OOMKilled``, ``Completed``."""
    words: str
    """The end of its log: one line, masked, at most `WORDS` characters."""
    ran_s: float | None
    """From its start to its end, seconds."""
    life: int
    """Which life of its container that was, counted by restarts."""


@dataclass(frozen=True, slots=True)
class EnginePod:
    """What a pass needs of an engine's pod. Times are Unix seconds."""

    name: str
    uid: str
    address: str | None
    ready: bool
    terminating: bool
    revision: str
    track: str = STABLE
    """``stable``, or ``candidate`` for one of a change on trial."""
    boot: int = 1
    """Which start of a candidate's engine it is."""
    unscheduled: str = ""
    """Why no node takes it, in the scheduler's words; empty if it has a node, or nobody looked yet."""
    failed: str = ""
    """Why it ended for good, such as an eviction; empty while it may still run."""
    container: str = ENGINE_CONTAINER
    """Which container the rest tells of: the engine, or another that has failed."""
    beside: bool = False
    """That container runs beside the engine, which is ready, and not before it."""
    waiting_reason: str = ""
    """Why its container does not run: ``CrashLoopBackOff``, ``CreateContainerConfigError``, …; empty if it does."""
    waiting_message: str = ""
    """The kubelet's sentence for it."""
    restarts: int = 0
    served_life: int | None = None
    """The last life of its container, counted by restarts, that was seen to pass the start-up probe."""
    ending: Ending | None = None
    """How its container ended last; None if it never did."""
    pending_since_s: float | None = None
    """Since when it has been waiting for a node."""
    ready_since_s: float | None = None
    cold_start_s: float | None = None
    """From its making to its readiness, seconds; None before that, and for one whose engine had to start again."""
    startup_budget_s: float | None = None
    """What its start-up probe allows; None without one."""
    grace_s: float = 30.0
    devices: tuple[tuple[str, int], ...] = ()
    """Extended resources that it holds, such as GPUs, and how many."""
    priority: int = 0
    """Of its PriorityClass."""

    @classmethod
    def of(cls, body: Manifest) -> EnginePod:
        """Read a pod as the API server has it."""
        meta, status, spec = body["metadata"], body.get("status", {}), body.get("spec", {})
        conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
        beside = _failed_beside(status.get("containerStatuses", []))
        container = _failed_before(status) or beside or _engine(status.get("containerStatuses", []))
        waiting = container.get("state", {}).get("waiting", {})
        restarts = container.get("restartCount", 0)
        scheduled, ready = conditions.get("PodScheduled", {}), conditions.get("Ready", {})
        unscheduled = scheduled.get("status") == "False"
        failed = status.get("phase") == "Failed"
        ready_since_s = _seconds(ready.get("lastTransitionTime")) if ready.get("status") == "True" else None
        return cls(
            name=meta["name"],
            uid=meta["uid"],
            address=status.get("podIP"),
            ready=ready.get("status") == "True",
            terminating="deletionTimestamp" in meta,
            revision=meta.get("labels", {}).get(REVISION_LABEL, ""),
            track=meta.get("labels", {}).get(TRACK_LABEL, STABLE),
            boot=_whole(meta.get("annotations", {}).get(BOOT_ANNOTATION, "")),
            unscheduled=scheduled.get("message") or scheduled.get("reason", "") if unscheduled else "",
            failed=": ".join(filter(None, (status.get("reason") or "Failed", status.get("message")))) if failed else "",
            container=container.get("name", ENGINE_CONTAINER),
            beside=container is beside,
            waiting_reason=waiting.get("reason", ""),
            waiting_message=last_words(waiting.get("message", ""), WORDS),
            restarts=restarts,
            served_life=restarts if container.get("started") else None,
            ending=_ending(container, restarts),
            pending_since_s=_seconds(scheduled.get("lastTransitionTime")) if unscheduled else None,
            ready_since_s=ready_since_s,
            cold_start_s=None if restarts else _between(_seconds(meta.get("creationTimestamp")), ready_since_s),
            startup_budget_s=_startup_budget(_engine(spec.get("containers", []))),
            grace_s=float(spec.get("terminationGracePeriodSeconds", 30)),
            devices=_devices(spec),
            priority=spec.get("priority", 0),
        )

    @property
    def serves(self) -> bool:
        """Whether it takes requests, and will for a while."""
        return self.ready and not self.terminating

    @property
    def outlived_its_budget(self) -> bool:
        """Whether the kubelet killed its last life for not starting in time.

        The pod's status does not tell: the kubelet says so in an event alone. But a container that its start-up probe
        has given up ran for just the budget, and at most its grace period longer; and it never served.
        """
        if self.ending is None or self.ending.ran_s is None or self.startup_budget_s is None:
            return False
        if self.ending.life == self.served_life or self.container != ENGINE_CONTAINER:
            return False
        return 0 <= self.ending.ran_s - self.startup_budget_s <= self.grace_s + KILL_SLACK_S


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 1


def _between(since_s: float | None, until_s: float | None) -> float | None:
    return None if since_s is None or until_s is None else max(0.0, until_s - since_s)


def _devices(spec: Manifest) -> tuple[tuple[str, int], ...]:
    held = Counter[str]()
    for container in spec.get("containers", []):
        for name, number in container.get("resources", {}).get("limits", {}).items():
            if "/" in name and str(number).isdigit():  # a whole number, as their limits are
                held[name] += int(number)
    return tuple(sorted(held.items()))


def _engine(containers: list[Manifest]) -> Manifest:
    return next((one for one in containers if one["name"] == ENGINE_CONTAINER), {})


def _failed_before(status: Manifest) -> Manifest | None:
    """The init container that keeps the engine from starting, if one has failed or cannot be made."""
    for one in status.get("initContainerStatuses", []):
        state, ready = one.get("state", {}), one.get("ready") or one.get("started")
        ends = [state.get("terminated", {}), one.get("lastState", {}).get("terminated", {})]
        waits = state.get("waiting", {}).get("reason", "PodInitializing") not in _ON_ITS_WAY
        if not ready and ends[0].get("exitCode") != 0 and (waits or any(end.get("exitCode", 0) for end in ends)):
            failed: Manifest = one
            return failed
    return None


def _failed_beside(statuses: list[Manifest]) -> Manifest | None:
    """Another container that keeps the pod of a ready engine from being ready, if it does not run."""
    if not _engine(statuses).get("ready"):
        return None
    stopped = (
        one
        for one in statuses
        if not one.get("ready")
        and one["name"] != ENGINE_CONTAINER
        and "running" not in one.get("state", {})
        and one.get("state", {}).get("waiting", {}).get("reason") not in _ON_ITS_WAY
    )
    return next(stopped, None)


def _ending(container: Manifest, restarts: int) -> Ending | None:
    state = container.get("state", {})
    ended = state.get("terminated") or container.get("lastState", {}).get("terminated")
    if not ended:
        return None
    text = ended.get("message") or ""
    if len(text.encode()) >= KUBELET_LIMIT and "\n" in text:
        text = text.partition("\n")[2]
    started_s, finished_s = _seconds(ended.get("startedAt")), _seconds(ended.get("finishedAt"))
    return Ending(
        exit_code=ended.get("exitCode", 0),
        reason=ended.get("reason") or "",
        words=last_words(text, WORDS),
        ran_s=None if started_s is None or finished_s is None else finished_s - started_s,
        life=restarts - 1 if "running" in state else restarts,  # it counts up when the next one runs
    )


def _startup_budget(container: Manifest) -> float | None:
    probe = container.get("startupProbe")
    if probe is None:
        return None
    return float(
        probe.get("initialDelaySeconds", 0) + probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
    )


def _seconds(rfc3339: str | None) -> float | None:
    return None if not rfc3339 else datetime.fromisoformat(rfc3339).timestamp()
