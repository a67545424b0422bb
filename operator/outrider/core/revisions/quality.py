"""What an evaluation says of a candidate's answers: their score beside a baseline, as its container left it.

Pure. Scores are numbers of 0 or more in any one unit, and more is better. The relative loss is 1 − score ÷ baseline.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, NoReturn

TOLERANCE = 0.02
"""Relative loss that is still as good, where neither the spec nor the result says one."""
MAX_MESSAGE = 4096
"""Bytes of a container's termination message, all that Kubernetes keeps; what is as long may have been cut."""
SLACK = 1e-9
"""Of a score: 0.72 is no loss of more than 10 % beside 0.8, though floats say so."""
FORM = '{"score": 0.71, "baseline": 0.72}'
REMEDY = f"have the container of spec.rollout.quality.template write {FORM} to the file that OUTRIDER_RESULT names"

Verdict = Literal["pending", "passed", "worse", "failed"]


@dataclass(frozen=True, slots=True)
class Quality:
    """What is known of an evaluation."""

    verdict: Verdict
    """Pending while it runs; failed if it says nothing about the answers."""
    reason: str
    """The figures, or what is the matter, in a sentence."""


def judge(message: str, tolerance: float | None) -> Quality:
    """Weigh the result in a termination message.

    ``tolerance`` is the relative loss that the spec allows, 0 to 1; None leaves it to the result, or to `TOLERANCE`.
    """
    try:
        result = _result(message)
        score, baseline = _number(result, "score"), _number(result, "baseline")
        told = _number(result, "tolerance") if "tolerance" in result else TOLERANCE
    except ValueError as fault:
        return Quality("failed", f"{fault}; {REMEDY}")
    allowed = told if tolerance is None else tolerance
    if baseline <= 0.0:
        return Quality("failed", f"the result's baseline is 0, of which nothing can be lost; {REMEDY}")
    if allowed >= 1.0:
        remedy = "give a fraction such as 0.02, or set spec.rollout.quality.tolerancePercent"
        return Quality("failed", f"the result's tolerance is {allowed:g}, a loss of everything or more; {remedy}")
    passed = score >= baseline * (1.0 - allowed) * (1.0 - SLACK)
    loss = 1.0 - score / baseline
    change = f"a loss of {100.0 * loss:.1f} %" if loss > 0.0 else "no loss"
    figures = f"score {score:.4g} beside a baseline of {baseline:.4g}: {change}"
    return Quality("passed" if passed else "worse", f"{figures}, and {100.0 * allowed:g} % is allowed")


def _result(message: str) -> Mapping[str, Any]:
    if len(message.encode(errors="replace")) >= MAX_MESSAGE:
        raise ValueError(f"the result is longer than {MAX_MESSAGE - 1} bytes, and Kubernetes cuts what is more")
    if not message.strip():
        raise ValueError("the evaluation ended without a result")
    try:
        document = json.loads(message, parse_constant=_refused)
    except (ValueError, RecursionError) as fault:
        raise ValueError(f"the result is no JSON: {str(fault)[:100]}") from fault
    if not isinstance(document, dict):
        raise ValueError(f"the result is a JSON {type(document).__name__} and no object")
    return document


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _number(result: Mapping[str, Any], field: str) -> float:
    value = result.get(field)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"the result's {field} is missing" if value is None else f"the result's {field} is no number")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not isfinite(number) or number < 0.0:
        raise ValueError(f"the result's {field} is below 0 or without end")
    return number
