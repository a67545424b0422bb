"""What can go wrong between Outrider and its neighbours, sorted by what the caller should do about it.

Adapters translate the errors of their libraries into these at the border, always with the cause chained; the edge of a
pass alone maps them to a condition and a retry delay. The pure core raises none of them: there, bad data is `Missing`
or `Hold`.

    OperatorError
    ├── InvalidSpec             the user must act; the same resource fails the same way for ever
    ├── NotReady                something that will come by itself is not there yet
    ├── KubeError               the API server said no, or said nothing
    │   ├── Conflict            another writer got there first, or owns the field
    │   ├── Forbidden           our service account lacks a right
    │   ├── NotFound            the object, or its kind, does not exist
    │   └── Unavailable         time-out, overload, connection lost
    ├── MetricsError            the metrics store gave no usable answer
    │   ├── Unreachable         no answer in time
    │   ├── AccessDenied        it refuses us, or we do not trust it
    │   └── Malformed           an answer that is not what was asked for
    └── EngineError             one engine's admin port
        ├── EngineUnreachable   no answer in time
        ├── KeyRefused          the admin key is not the engine's
        ├── StaleGeneration     the engine has a later schedule, or another one of this generation
        ├── ScheduleRefused     the schedule is not one that this engine can run
        └── NotControllable     the engine runs one K for its whole life
"""

from __future__ import annotations

from collections.abc import Sequence


class OperatorError(Exception):
    """Base of all; catch it only at the edge of a pass.

    ``reason`` is CamelCase and fit for a condition; ``message`` is a sentence for the user.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class InvalidSpec(OperatorError):
    """The resource asks for something that cannot work: report it, and do not retry until the resource changes."""


class NotReady(OperatorError):
    """A thing that this pass needs is not there yet: keep what is, and try again in ``retry_after_s`` seconds."""

    def __init__(self, reason: str, message: str, retry_after_s: float) -> None:
        super().__init__(reason, message)
        self.retry_after_s = retry_after_s


class KubeError(OperatorError):
    """The API server refused or did not answer: leave the object as it is and retry with back-off.

    ``status`` is the HTTP status, 0 when there was no answer.
    """

    def __init__(self, reason: str, message: str, status: int = 0) -> None:
        super().__init__(reason, message)
        self.status = status


class Conflict(KubeError):
    """The object changed under us, or another field manager owns a field (409): read again, then decide again."""


class Forbidden(KubeError):
    """The service account may not do this (401, 403): report the missing right and retry slowly, nothing else will
    help."""


class NotFound(KubeError):
    """The object or its kind is not there (404): create it, or treat the optional kind as not installed."""


class Unavailable(KubeError):
    """Time-out, overload or a lost connection (no answer, 429, 5xx): retry, after ``retry_after_s`` if the server said
    so."""

    def __init__(self, reason: str, message: str, status: int = 0, retry_after_s: float | None = None) -> None:
        super().__init__(reason, message, status)
        self.retry_after_s = retry_after_s


class MetricsError(OperatorError):
    """The metrics store gave no usable answer: freeze K and downscaling, keep observing."""


class Unreachable(MetricsError):
    """No answer in time: try again at the next control period."""


class AccessDenied(MetricsError):
    """The store does not accept who we are, or we not who it is: report the setting, and go on asking, since Secrets
    are renewed while we run."""


class Malformed(MetricsError):
    """An answer of another form than the query asks for: report the query, since trying again will not change it."""


class EngineError(OperatorError):
    """One engine did not take a call on its admin port: the others go on, and the caller reports which one."""


class EngineUnreachable(EngineError):
    """No answer in time, or the connection was refused: the pod may be starting or ending; try again at the next
    period."""


class KeyRefused(EngineError):
    """The engine has another admin key (401): read the Secret again; the mount follows it within about a minute."""


class StaleGeneration(EngineError):
    """The engine holds ``generation`` (409), later than ours or with another schedule: continue above that number."""

    def __init__(self, reason: str, message: str, generation: int) -> None:
        super().__init__(reason, message)
        self.generation = generation


class ScheduleRefused(EngineError):
    """The engine cannot run this schedule (422): a mistake of ours; do not send it again. ``faults`` names every
    reason."""

    def __init__(self, reason: str, message: str, faults: Sequence[str] = ()) -> None:
        super().__init__(reason, message)
        self.faults = tuple(faults)


class NotControllable(EngineError):
    """The engine cannot change K while it runs (503): say so in status and leave it alone until its pod is replaced."""
