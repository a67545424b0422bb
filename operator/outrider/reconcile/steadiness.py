"""Which changes of a status are worth a write: numbers have a dead band, and so have numbers in sentences.

Pure. Without it every service would be written twice a minute under a load in which nothing happens.
"""

from __future__ import annotations

import re
from typing import Any

from outrider.core.exploration import LOOKS_LATER
from outrider.core.guards import NO_GAIN, YIELDS_MOST

LENGTH_BAND, RATE_BAND = 0.05, 3
"""Changes of acceptance length and of acceptance rate in percent that are not worth showing."""
_LAST = re.compile(r"[0-9]+$")
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)(%?)")
SENTENCE_BAND = 0.2
"""The same for a number in a sentence, as a share of it: the capacity of an engine under constant load wavers by a
sixth."""
PERCENT_BAND = 5.0
"""The same for a percentage, in points: a load that rises by 11% or by 14% asks for the same room."""
AT_REST = (YIELDS_MOST, NO_GAIN, LOOKS_LATER)
"""Words of sentences that take turns while nothing happens."""
WHOLE = 10
"""Smaller whole numbers, such as K, are never nearly the same."""


def steady(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """``new`` with the numbers of ``old``, which is shown, where they moved by less than their band."""
    kept = {**new}
    for part, field, band in (
        ("tuning", "acceptanceLength", LENGTH_BAND),
        ("tuning", "acceptanceRatePercent", RATE_BAND),
    ):
        before, after = old.get(part, {}).get(field), new.get(part, {}).get(field)
        if before is not None and after is not None and abs(float(after) - float(before)) < band:
            kept[part] = {**kept[part], field: before}
    if hard(old) == hard(new):
        for part in ("tuning", "capacity"):
            before, after = old.get(part, {}).get("reason"), new.get(part, {}).get("reason")
            if before is not None and after is not None and _says_the_same(before, after):
                kept[part] = {**kept[part], "reason": before}
    return kept


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether nothing differs but the schedule's generation: looks at another K, there and back, count it up."""
    return _without_generation(one) == _without_generation(other)


def _without_generation(document: dict[str, Any]) -> dict[str, Any]:
    tuning = {name: value for name, value in document.get("tuning", {}).items() if name != "generation"}
    conditions = [
        {**one, "message": _LAST.sub("#", one.get("message", ""))} if one.get("reason") == "Acknowledged" else one
        for one in document.get("conditions", [])
    ]
    return {**document, "tuning": tuning, "conditions": conditions}


def _says_the_same(before: str, after: str) -> bool:
    """Whether two sentences differ in nothing but numbers, and in these by little; or both say that nothing is to be
    done."""
    if all(any(words in said for words in AT_REST) for said in (before, after)):
        return True
    if _NUMBER.sub(r"#\2", before) != _NUMBER.sub(r"#\2", after):
        return False
    return all(map(_nearly, _NUMBER.findall(before), _NUMBER.findall(after)))


def _nearly(before: tuple[str, str], after: tuple[str, str]) -> bool:
    """Whether two numbers, as sentences have them, are the same but for what is not worth showing."""
    (text, percent), (other_text, _) = before, after
    one, other = float(text), float(other_text)
    if not percent and text.isdigit() and other_text.isdigit() and max(one, other) < WHOLE:
        return one == other
    return abs(one - other) <= max(SENTENCE_BAND * max(one, other), PERCENT_BAND if percent else 0.0)


def hard(document: dict[str, Any]) -> dict[str, Any]:
    """The part whose change is news: all but numbers and sentences that drift with the load."""
    soft = {
        "tuning": ("acceptanceLength", "acceptanceRatePercent", "reason", "speculativeTokens", "generation"),
        "capacity": ("replicasForLoad", "reason", "limitedBy"),
    }
    news = {**document}
    for part, fields in soft.items():
        news[part] = {name: value for name, value in document.get(part, {}).items() if name not in fields}
    if "revisions" in document:
        candidate = {
            name: value
            for name, value in document["revisions"].get("candidate", {}).items()
            if name not in ("reason", "gainPercent", "lowPercent", "highPercent")
        }
        news["revisions"] = document["revisions"] | {"candidate": candidate}
    news["conditions"] = [
        {name: value for name, value in one.items() if name != "message"} for one in document.get("conditions", [])
    ]
    return news
