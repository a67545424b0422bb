"""Which changes of a status are worth a write: numbers have a dead band, and so have numbers in sentences.

Pure. Without it every service would be written twice a minute under a load in which nothing happens.
"""

from __future__ import annotations

import re
from typing import Any

LENGTH_BAND, RATE_BAND = 0.05, 3
"""Changes of acceptance length and of acceptance rate in percent that are not worth showing."""
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
SENTENCE_BAND = 0.2
"""The same for a number in a sentence, as a share of it: the capacity of an engine under constant load wavers by a
sixth."""
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


def _says_the_same(before: str, after: str) -> bool:
    """Whether two sentences differ in nothing but numbers, and in these by little."""
    if _NUMBER.sub("#", before) != _NUMBER.sub("#", after):
        return False
    return all(map(_nearly, _NUMBER.findall(before), _NUMBER.findall(after)))


def _nearly(before: str, after: str) -> bool:
    """Whether two numbers, as sentences have them, are the same but for what is not worth showing."""
    one, other = float(before), float(after)
    counts = before.isdigit() and after.isdigit() and max(one, other) < WHOLE
    return one == other if counts else abs(one - other) <= SENTENCE_BAND * max(one, other)


def hard(document: dict[str, Any]) -> dict[str, Any]:
    """The part whose change is news: all but numbers and sentences that drift with the load."""
    soft = {
        "tuning": ("acceptanceLength", "acceptanceRatePercent", "reason", "speculativeTokens"),
        "capacity": ("replicasForLoad", "reason", "limitedBy"),
    }
    news = {**document}
    for part, fields in soft.items():
        news[part] = {name: value for name, value in document.get(part, {}).items() if name not in fields}
    news["conditions"] = [
        {name: value for name, value in one.items() if name != "message"} for one in document.get("conditions", [])
    ]
    return news
