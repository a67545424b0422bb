"""What is remembered of revisions as a document, so that a restart forgets nothing.

Versioned JSON values, bounded in size. Reading never fails: a damaged document, or one of another version, gives no
revisions and a sentence. The next change then rolls as if it were the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from math import inf
from typing import Any, TypeVar, get_args

from outrider.core.revisions.analysis import Plan
from outrider.core.revisions.intervals import Spread
from outrider.core.revisions.trial import HISTORY, REMEMBERED, Outcome, Past, Revisions, Stage, Trial, Withdrawn

Part = TypeVar("Part")

VERSION = 1
MAX_TEXT = 1000
"""Characters of a sentence; longer ones are cut when they are written."""
MAX_TIME_S = 2.5e11
"""In the year 9892; dates end soon after."""


def to_document(known: Revisions) -> dict[str, Any]:
    """The revisions as JSON values."""
    return {
        "version": VERSION,
        "stable": known.stable,
        "spec": known.spec,
        "good": list(known.good),
        "withdrawn": [_short(asdict(one)) for one in known.withdrawn],
        "trial": None if known.trial is None else _short(asdict(known.trial)),
        "history": [_short(asdict(one)) for one in known.history],
        "spread": None if known.spread is None else asdict(known.spread),
    }


def _short(values: dict[str, Any]) -> dict[str, Any]:
    return values | {"reason": values["reason"][:MAX_TEXT]}


def from_document(document: Any) -> tuple[Revisions, str | None]:
    """The remembered revisions, or none and why; None stands for a document that was never written."""
    if document is None:
        return Revisions(), None
    try:
        if document["version"] != VERSION:
            return Revisions(), f"the revisions have version {document['version']!r}, not {VERSION}"
        return _read(document), None
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as fault:
        return Revisions(), f"what was remembered of revisions is damaged: {repr(fault)[:200]}"


def _read(document: Mapping[str, Any]) -> Revisions:
    trial, spec, stable = document["trial"], document["spec"], document["stable"]
    if not isinstance(spec, dict | None) or not isinstance(stable, str | None):
        raise TypeError("a spec or a revision of another type")
    return Revisions(
        stable=stable,
        spec=spec,
        good=tuple(str(one) for one in document["good"])[:REMEMBERED],
        withdrawn=tuple(_typed(Withdrawn, one) for one in document["withdrawn"])[:REMEMBERED],
        trial=None if trial is None else _trial(trial),
        history=tuple(_past(one) for one in document["history"])[:HISTORY],
        spread=_spread(document.get("spread")),
    )


def _trial(values: Mapping[str, Any]) -> Trial:
    plan = values["plan"]
    trial = _typed(Trial, {**values, "plan": _typed(Plan, {**plan, "known": _spread(plan["known"])})})
    if trial.stage not in get_args(Stage) or trial.plan.question not in ("Better", "NotWorse"):
        raise ValueError("a trial in no stage, or of no question")
    return trial


def _spread(values: Mapping[str, Any] | None) -> Spread | None:
    if values is None:
        return None
    spread = _typed(Spread, values)
    if not (0.0 <= spread.squares < inf and 0.0 <= spread.dof < inf):
        raise ValueError("a spread that is none")
    return spread


def _past(values: Mapping[str, Any]) -> Past:
    past = _typed(Past, values)
    if past.outcome not in get_args(Outcome):
        raise ValueError("a trial without an outcome")
    return past


def _typed(kind: Callable[..., Part], values: Mapping[str, Any]) -> Part:
    """A part, of fields with the types that it says; times must be some that people live to see."""
    types = {field.name: str(field.type) for field in fields(kind)}  # type: ignore[arg-type]
    for name, value in values.items():
        allowed = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}.get(
            types.get(name, "").removesuffix(" | None"), (object,)
        )
        absent = value is None and types.get(name, "").endswith("| None")
        if not absent and (not isinstance(value, allowed) or (isinstance(value, bool) and allowed != (bool,))):
            raise TypeError(f"{name} is a {type(value).__name__}")
        if name.endswith("_s") and value is not None and not 0 <= value <= MAX_TIME_S:
            raise ValueError(f"{name} is no time")
    return kind(**values)


def same_but_for_words(one: Revisions, other: Revisions) -> bool:
    """Whether the second needs no record where the first is on record.

    Sentences alone need none, nor does the first stable revision: whoever finds no record takes what is asked for it.
    One that follows another does: by a record of the former, what all engines run would be a change on trial.
    """
    followed = one.stable is not None and (one.stable, one.good) != (other.stable, other.good)
    return not followed and _bare(one) == _bare(other)


def _bare(known: Revisions) -> tuple[Any, ...]:
    trial = None if known.trial is None else replace(known.trial, reason="")
    return trial, known.withdrawn, known.history
