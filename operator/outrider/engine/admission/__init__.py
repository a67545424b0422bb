"""What is checked of a service before anything is rendered, beyond what schema and CEL can say.

Each check has a stable name, which is the reason of a condition and the code in `outrider preflight`, and answers with
a sentence that names the field, the values and the remedy. A fault raises; what is only doubtful is admitted with a
warning.

    arguments    what the user gives the engine beside the fields
    methods      way to draft and version of vLLM
    parallelism  GPUs of one engine
    settings     settings that exclude or limit each other
    words        data types and quantisations by name
    pairs        model and drafter, as far as their config.json is known
    budget       memory of the GPUs
    schedules    the schedule, once everything else is in order
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from outrider.engine.admission import arguments, budget, methods, pairs, parallelism, schedules, settings, words
from outrider.engine.admission.checks import Check, Finding
from outrider.engine.config import EngineConfig
from outrider.engine.model_facts import NO_FACTS, PairFacts
from outrider.errors import InvalidSpec

FIRST = (
    *arguments.CHECKS,
    *parallelism.CHECKS,
    *methods.CHECKS,
    *settings.CHECKS,
    *words.CHECKS,
    *pairs.CHECKS,
    *budget.CHECKS,
)
CHECKS: tuple[Check, ...] = (*FIRST, *schedules.CHECKS, *schedules.LATE)
"""In the order in which they are made: the first fault names the condition."""

__all__ = ["CHECKS", "Admitted", "Check", "Finding", "admit", "examine"]


@dataclass(frozen=True, slots=True)
class Admitted:
    """The service may run; ``warnings`` are sentences for status and events."""

    warnings: tuple[str, ...] = ()


def admit(config: EngineConfig, facts: PairFacts | None = None) -> Admitted:
    """Check one engine.

    Raises:
        InvalidSpec: it cannot work; the message names everything that was found, the reason the first of it.
    """
    findings = tuple(examine(config, facts))
    faults = [finding for finding in findings if finding.severity == "error"]
    if faults:
        raise InvalidSpec(faults[0].code, "; ".join(fault.message for fault in faults))
    return Admitted(tuple(finding.message for finding in findings))


def examine(config: EngineConfig, facts: PairFacts | None = None) -> Iterator[Finding]:
    """Everything that the checks have to say; of the schedule only when nothing else is wrong."""
    faulty = False
    for group in (FIRST, schedules.CHECKS, schedules.LATE):
        if faulty:
            return
        for check in group:
            for finding in check.findings(config, facts or NO_FACTS):
                faulty = faulty or finding.severity == "error"
                yield finding
