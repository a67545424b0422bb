"""What a kubelet writes about a pod: container states, conditions, phase. Pure; times are Unix seconds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from outrider.simulator.pods import EnginePod

LOG_TAIL_LIMIT = 2048  # bytes, when the end of the log serves as message


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container ended."""

    exit_code: int
    message: str
    started_s: float
    finished_s: float
    container_id: str = ""

    @property
    def reason(self) -> str:
        """The kubelet's word for it."""
        return "Completed" if self.exit_code == 0 else "Error"


@dataclass(frozen=True, slots=True)
class ContainerState:
    """The engine's container now; exactly one of waiting, running and terminated holds."""

    restart_count: int = 0
    container_id: str = ""
    waiting: tuple[str, str] | None = ("ContainerCreating", "")
    """Reason and message."""
    running_since_s: float | None = None
    terminated: Exit | None = None
    last_exit: Exit | None = None
    started: bool = False
    """The start-up probe has passed."""
    ready: bool = False
    """The readiness probe passes."""

    def wait(self, reason: str, message: str = "") -> ContainerState:
        """It does not run, and why."""
        return replace(
            self, waiting=(reason, message), running_since_s=None, terminated=None, started=False, ready=False
        )

    def run(self, container_id: str, now_s: float) -> ContainerState:
        """Its process has begun."""
        return replace(self, container_id=container_id, waiting=None, running_since_s=now_s, terminated=None)

    def end(self, how: Exit) -> ContainerState:
        """Its process has ended."""
        return replace(
            self, waiting=None, running_since_s=None, terminated=how, last_exit=how, started=False, ready=False
        )


@dataclass(slots=True)
class StatusWriter:
    """Builds patches of one pod's status; a condition's time moves only when its status does."""

    pod: EnginePod
    _since: dict[str, tuple[str, str]] = field(default_factory=dict)

    def patch(self, state: ContainerState, now_s: float) -> dict[str, Any]:
        """The body of a strategic merge patch."""
        begun = state.running_since_s is not None or state.last_exit is not None or state.terminated is not None
        conditions = [
            self._condition("Initialized", True, now_s),
            self._condition("PodReadyToStartContainers", True, now_s),
            self._ready_condition("ContainersReady", state, now_s),
            self._ready_condition("Ready", state, now_s),
        ]
        statuses = [
            container_status(self.pod, state) if name == self.pod.engine["name"] else _sidecar(self.pod, name, now_s)
            for name in self.pod.container_names
        ]
        phase = "Running" if begun else "Pending"
        status = {"phase": phase, "conditions": conditions, "containerStatuses": statuses}
        # With the UID a later pod of the same name is safe from a patch that comes late.
        return {"metadata": {"uid": self.pod.uid}, "status": status}

    def _ready_condition(self, kind: str, state: ContainerState, now_s: float) -> dict[str, Any]:
        message = "" if state.ready else f"containers with unready status: [{self.pod.engine['name']}]"
        reason = "" if state.ready else "ContainersNotReady"
        return self._condition(kind, state.ready, now_s, reason, message)

    def _condition(self, kind: str, holds: bool, now_s: float, reason: str = "", message: str = "") -> dict[str, Any]:
        status = "True" if holds else "False"
        if self._since.get(kind, ("", ""))[0] != status:
            self._since[kind] = (status, timestamp(now_s))
        since = self._since[kind][1]
        return {
            "type": kind,
            "status": status,
            "reason": reason or None,
            "message": message or None,
            "lastTransitionTime": since,
        }


def container_status(pod: EnginePod, state: ContainerState) -> dict[str, Any]:
    """The engine's entry of ``containerStatuses``."""
    image = pod.engine.get("image", "")
    status: dict[str, Any] = {
        "name": pod.engine["name"],
        "image": image,
        "imageID": f"simulated/{image}",
        "restartCount": state.restart_count,
        "started": state.started,
        "ready": state.ready,
        "state": {},
        "lastState": {},
    }
    if state.container_id:
        status["containerID"] = state.container_id
    if state.waiting is not None:
        reason, message = state.waiting
        status["state"] = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    elif state.terminated is not None:
        status["state"] = {"terminated": _terminated(pod, state.terminated)}
    elif state.running_since_s is not None:
        status["state"] = {"running": {"startedAt": timestamp(state.running_since_s)}}
    if state.last_exit is not None and state.terminated is None:
        status["lastState"] = {"terminated": _terminated(pod, state.last_exit)}
    return status


def timestamp(now_s: float) -> str:
    """Unix seconds as the API server writes them."""
    return datetime.fromtimestamp(int(now_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _terminated(pod: EnginePod, how: Exit) -> dict[str, Any]:
    ended: dict[str, Any] = {
        "exitCode": how.exit_code,
        "reason": how.reason,
        "startedAt": timestamp(how.started_s),
        "finishedAt": timestamp(how.finished_s),
        "containerID": how.container_id,
    }
    # vLLM writes no termination message of its own: there is one only where the pod asks for the end of the log.
    if how.message and pod.engine.get("terminationMessagePolicy") == "FallbackToLogsOnError" and how.exit_code:
        ended["message"] = how.message[-LOG_TAIL_LIMIT:]
    return ended


def _sidecar(pod: EnginePod, name: str, now_s: float) -> dict[str, Any]:
    """Any other container simply runs."""
    spec = next(one for one in pod.manifest["spec"]["containers"] if one["name"] == name)
    return {
        "name": name,
        "image": spec.get("image", ""),
        "imageID": "",
        "restartCount": 0,
        "started": True,
        "ready": True,
        "state": {"running": {"startedAt": timestamp(now_s)}},
        "lastState": {},
    }
