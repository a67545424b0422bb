"""A service as its resource shows it: what the commands that look at services have in common.

A status of another version may hold what this one does not know; what is not understood is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from outrider.api.conditions import READY, STALLED, Condition, conditions_of
from outrider.api.defaults import PERCENTILE
from outrider.api.status import (
    CapacityStatus,
    Change,
    EffectiveSettings,
    Output,
    ReplicaStatus,
    RevisionsStatus,
    TuningStatus,
)

IN_TROUBLE_WHEN_TRUE = frozenset(("Reconciling", STALLED, "CapacityLimited", "ReplicasContended", "Paused", "Admitted"))
"""Conditions that are only there to tell of something; of all others False or Unknown is what matters."""
ON_THE_WAY = frozenset(("Starting", "CandidateStarts", "CandidateChecked", "CandidateCompared", "CandidatePromoted"))
"""Reasons of a condition that is not True yet, and will be without anybody's doing."""
QUIET = "InsufficientData"
"""The reason of a condition that traffic alone will settle: nothing is the matter with a service that has none."""
Weight = Literal["good", "notice", "bad"]
Part = TypeVar("Part", bound=Output)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One service, read once."""

    namespace: str
    name: str
    generation: int
    observed_generation: int
    conditions: tuple[Condition, ...]
    tuning: TuningStatus
    capacity: CapacityStatus
    replicas: ReplicaStatus
    effective: EffectiveSettings
    history: tuple[Change, ...]
    """Newest first."""
    revisions: RevisionsStatus | None
    """None where none is told, or in another form."""
    tpot_ms: int | None
    ttft_ms: int | None
    percentile: int
    body: Mapping[str, Any]
    """The resource itself."""

    @property
    def title(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def condition(self, type_: str) -> Condition | None:
        """A condition; None if it is not there."""
        return next((one for one in self.conditions if one.type == type_), None)

    @property
    def revisions_document(self) -> dict[str, Any] | None:
        """Stable revision, candidate and history in the form of the resource's status; None where none is known."""
        return (
            None if self.revisions is None else self.revisions.model_dump(mode="json", by_alias=True, exclude_none=True)
        )

    @property
    def current(self) -> bool:
        """Whether the operator has seen the latest spec."""
        return self.observed_generation >= self.generation

    @property
    def ready(self) -> bool:
        """Whether it is as its owner wants it."""
        ready, stalled = self.condition(READY), self.condition(STALLED)
        stuck = stalled is not None and stalled.status == "True"
        return self.current and ready is not None and ready.status == "True" and not stuck

    @property
    def state(self) -> tuple[Weight, str]:
        """How it is, in one word."""
        ready, stalled = self.condition(READY), self.condition(STALLED)
        if stalled is not None and stalled.status == "True":
            return "bad", f"Stalled: {stalled.reason}"
        if ready is None:
            return "bad", "NotSeen"
        if not self.current:
            return "notice", "NotSeenYet"
        if ready.status != "True":
            return weigh(ready), ready.reason if ready.status == "False" else f"Unknown: {ready.reason}"
        told = [one for one in self.matters if one[0] != "good" and one[1].reason != QUIET]
        worst = next((one for weight, one in told if weight == "bad"), told[0][1] if told else None)
        if worst is not None:
            return "notice", f"Ready, {worst.type}: {worst.reason}"
        return "good", "Idle" if ready.reason == "Idle" else "Ready"

    @property
    def matters(self) -> list[tuple[Weight, Condition]]:
        """Conditions that tell of something, and Ready."""
        weighed = [(weigh(one), one) for one in self.conditions]
        return [(weight, one) for weight, one in weighed if weight != "good" or one.type == READY]


def see(body: Mapping[str, Any]) -> Seen:
    """Read a resource."""
    status = _mapping(body.get("status"))
    metadata, spec = body["metadata"], _mapping(body.get("spec"))
    objectives = _mapping(spec.get("objectives"))
    effective = _part(EffectiveSettings, status.get("effective"))
    history = status.get("history")
    return Seen(
        namespace=str(metadata.get("namespace", "default")),
        name=str(metadata["name"]),
        generation=int(metadata.get("generation", 1)),
        observed_generation=int(status.get("observedGeneration", -1)),
        conditions=tuple(conditions_of(body)),
        tuning=_part(TuningStatus, status.get("tuning")),
        capacity=_part(CapacityStatus, status.get("capacity")),
        replicas=_part(ReplicaStatus, status.get("replicas")),
        effective=effective,
        revisions=_revisions(status.get("revisions")),
        history=tuple(_changes(history if isinstance(history, Sequence) else ())),
        tpot_ms=objectives.get("tpotMilliseconds"),
        ttft_ms=objectives.get("ttftMilliseconds"),
        percentile=objectives.get("percentile") or effective.percentile or PERCENTILE,
        body=body,
    )


def weigh(condition: Condition) -> Weight:
    """Whether a condition is as it should be."""
    if condition.type in IN_TROUBLE_WHEN_TRUE:
        if condition.status != "True":
            return "good"
        return "bad" if condition.type == STALLED else "notice"
    if condition.status == "True" or condition.reason == "Idle":
        return "good"
    return "bad" if condition.status == "False" and condition.reason not in ON_THE_WAY else "notice"


def moment_s(time: str) -> float:
    """Unix time of an RFC 3339 text."""
    return datetime.fromisoformat(time).timestamp()


def ago(time: str | None, now_s: float) -> str:
    """How long ago, as kubectl writes ages; a dash for never.

    >>> ago("2026-01-01T00:00:00Z", 1767225600 + 200)
    '3m20s'
    """
    return "–" if time is None else span(now_s - moment_s(time))


def span(seconds: float) -> str:
    """A time span in its two largest units.

    >>> span(7384), span(40), span(90061)
    ('2h3m', '40s', '1d1h')
    """
    whole = max(0, round(seconds))
    units = [("d", 86400), ("h", 3600), ("m", 60), ("s", 1)]
    first = next((number for number, (_, size) in enumerate(units) if whole >= size), 3)
    parts: list[str] = []
    for letter, size in units[first : first + 2]:
        count, whole = divmod(whole, size)
        parts += [f"{count}{letter}"] if count or not parts else []
    return "".join(parts)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _part(model: type[Part], value: Any) -> Part:
    """A piece of the status; without the fields that are not known or not as they should be."""
    fields = {info.alias or name for name, info in model.model_fields.items()}
    known = {name: one for name, one in _mapping(value).items() if name in fields}
    for _ in range(len(known) + 1):
        try:
            return model.model_validate(known)
        except ValidationError as error:
            for fault in error.errors():
                known.pop(str(fault["loc"][0]) if fault["loc"] else "", None)
    return model()


def _revisions(value: Any) -> RevisionsStatus | None:
    try:
        return None if value is None else RevisionsStatus.model_validate(value)
    except ValidationError:
        return None


def _changes(found: Sequence[Any]) -> list[Change]:
    changes = []
    for one in found:
        try:
            changes.append(Change.model_validate(one))
        except ValidationError:
            continue
    return changes
