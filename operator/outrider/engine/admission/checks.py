"""The parts that every check is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from outrider.engine.config import EngineConfig
from outrider.engine.model_facts import PairFacts

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check has to say of one field."""

    code: str
    """The check's, CamelCase: the reason of a condition."""
    severity: Severity
    field: str
    """Path in the resource, such as ``spec.engine.extraArgs[2]``."""
    message: str
    """A sentence with the field, the values and the remedy."""


Said = tuple[Severity, str, str]
"""Severity, field and sentence: a finding before its check has put its name to it."""


def error(field: str, message: str) -> Said:
    """What cannot work."""
    return "error", field, message


def warning(field: str, message: str) -> Said:
    """What may work, and should be looked at."""
    return "warning", field, message


def always(_: EngineConfig, __: PairFacts) -> str | None:
    """A check that lacks nothing."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One rule: what it looks at, why, and what to do when it speaks."""

    code: str
    fields: tuple[str, ...]
    why: str
    remedy: str
    source: str
    """Where it can be read: ``owner/repo#number``, or a file in a version of vLLM."""
    find: Callable[[EngineConfig, PairFacts], Iterator[Said]]
    lacks: Callable[[EngineConfig, PairFacts], str | None] = always
    """Why the check says nothing of this engine although it would concern it; None when it was made."""

    def findings(self, config: EngineConfig, facts: PairFacts) -> Iterator[Finding]:
        """What it has to say."""
        for severity, field, message in self.find(config, facts):
            yield Finding(self.code, severity, field, message)
