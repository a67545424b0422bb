"""Conditions of a service, and the one rule about their times.

A condition is built by a function that knows its subject; here they are only put together. ``lastTransitionTime`` moves
when the status of a type changes and at no other time: readers use it to tell how long something has been so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from outrider.api.rules import Part

ConditionStatus = Literal["True", "False", "Unknown"]
MAX_MESSAGE_LENGTH = 1024  # a status is read by people; the full story is in events and logs

# kstatus, Argo CD and `kubectl wait` look at these; they come first in the list, the others follow by name.
READY, RECONCILING, STALLED = "Ready", "Reconciling", "Stalled"
SPECULATION_HEALTHY = "SpeculationHealthy"
ROLLOUT_PROGRESSING, CAPACITY_LIMITED = "RolloutProgressing", "CapacityLimited"
REPLICAS_CONTENDED = "ReplicasContended"
REVISION_CURRENT = "RevisionCurrent"
_FIRST = {READY: 0, RECONCILING: 1, STALLED: 2}


class Condition(Part):
    """One aspect of the service's state."""

    type: Annotated[str, Field(min_length=1, max_length=64)]
    """What it is about, such as Ready or MetricsAvailable."""
    status: ConditionStatus
    """True, False, or Unknown until it is known."""
    reason: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=128)]
    """Why, in one word."""
    message: Annotated[str, Field(max_length=MAX_MESSAGE_LENGTH)] = ""
    """Why, in a sentence."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation of the spec that this was found under."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] = ""
    """When the status last changed."""


def condition(type_: str, status: bool | None, reason: str, message: str, observed_generation: int) -> Condition:
    """Build a condition; ``None`` is Unknown, and a message that is too long is cut."""
    text = "Unknown" if status is None else str(bool(status))
    if len(message) > MAX_MESSAGE_LENGTH:
        message = message[: MAX_MESSAGE_LENGTH - 1] + "…"
    return Condition.model_validate(
        {
            "type": type_,
            "status": text,
            "reason": reason,
            "message": message,
            "observedGeneration": observed_generation,
        }
    )


def set_conditions(old: Iterable[Condition], new: Iterable[Condition], now: str) -> list[Condition]:
    """Return ``new`` with its times: that of the old condition of the same type and status, else ``now`` (RFC 3339).

    Types that ``new`` leaves out are dropped. The order is always the same, so that an unchanged status is an equal
    one.
    """
    times = {(condition.type, condition.status): condition.last_transition_time for condition in old}
    stamped = [
        condition.model_copy(update={"last_transition_time": times.get((condition.type, condition.status)) or now})
        for condition in new
    ]
    return sorted(stamped, key=lambda condition: (_FIRST.get(condition.type, len(_FIRST)), condition.type))


def conditions_of(body: Mapping[str, Any]) -> list[Condition]:
    """The conditions in an object's status; those that another version wrote in another form are left out."""
    found = []
    status = body.get("status")
    for entry in (status.get("conditions") or ()) if isinstance(status, Mapping) else ():
        try:
            found.append(Condition.model_validate(entry))
        except ValidationError:
            continue  # only its time would be lost
    return found
