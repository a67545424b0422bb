"""What preflight looks at and what it says: subjects, checks and outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from outrider.api.defaults import Resolved
from outrider.api.resource import SpeculativeInferenceService
from outrider.engine.admission import Check, Finding
from outrider.engine.config import EngineConfig
from outrider.engine.gpus import Gpu
from outrider.engine.model_facts import PairFacts

State = Literal["ok", "warning", "refused", "notChecked"]
Workload = Literal["chat", "code", "math", "creative", "summarise", "rag", "translate", "agent"]
_WORST: tuple[State, ...] = ("refused", "warning", "ok", "notChecked")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One resource with everything that is known of it before it runs."""

    resource: SpeculativeInferenceService
    resolved: Resolved
    config: EngineConfig
    facts: PairFacts
    findings: tuple[Finding, ...]
    """Of admission."""
    gpu: Gpu | None
    """Its product, by the node selector; None when it names none."""
    workload: Workload | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """One sentence of a check."""

    state: State
    message: str
    field: str = ""
    code: str = ""
    """The check of admission that says so; empty for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightCheck:
    """One thing to look at before a service is deployed."""

    name: str
    why: str
    remedy: str
    source: str
    look: Callable[[Subject], Iterator[Verdict]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A check and what it said."""

    name: str
    verdicts: tuple[Verdict, ...]
    why: str
    remedy: str
    source: str

    @property
    def state(self) -> State:
        """The worst of its verdicts; a check that could say nothing was not made."""
        return worst([verdict.state for verdict in self.verdicts])


def worst(states: list[State]) -> State:
    """The state that counts: refused before warning before ok before not checked."""
    return min(states, key=_WORST.index, default="ok")


def ok(message: str) -> Verdict:
    """All is well, and what was seen."""
    return Verdict("ok", message)


def doubt(field: str, message: str) -> Verdict:
    """What should be looked at."""
    return Verdict("warning", message, field)


def not_checked(why: str) -> Verdict:
    """Nothing was looked at, and why."""
    return Verdict("notChecked", why)


def made(check: PreflightCheck, subject: Subject) -> Outcome:
    """Carry a check out; beside something that is not well nothing is said of what is."""
    said = tuple(check.look(subject))
    return Outcome(
        name=check.name,
        verdicts=tuple(one for one in said if one.state in ("refused", "warning")) or said,
        why=check.why,
        remedy=check.remedy,
        source=check.source,
    )


def of_admission(check: Check, subject: Subject) -> Outcome:
    """What admission says of an engine, in its own words."""
    said = tuple(from_finding(finding) for finding in subject.findings if finding.code == check.code)
    lacks = check.lacks(subject.config, subject.facts)
    if not said:
        said = (ok("nothing to say") if lacks is None else not_checked(lacks),)
    return Outcome(name=check.code, verdicts=said, why=check.why, remedy=check.remedy, source=check.source)


def from_finding(finding: Finding) -> Verdict:
    """A finding of admission as a verdict, with the same sentence and code."""
    state: State = "refused" if finding.severity == "error" else "warning"
    return Verdict(state, finding.message, finding.field, finding.code)


def repeated(subject: Subject, codes: tuple[str, ...]) -> Iterator[Verdict]:
    """What admission says under these codes."""
    for finding in subject.findings:
        if finding.code in codes:
            yield from_finding(finding)
