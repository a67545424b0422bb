"""Numbers in sentences."""

from __future__ import annotations


def count(number: float, noun: str) -> str:
    """``1 engine``, ``3 engines``: whole numbers only, and nouns whose plural is an s."""
    return f"{number:.0f} {noun}{'' if round(number) == 1 else 's'}"


def share(part: int, whole: int, noun: str, verb: str) -> str:
    """``1 of 3 engines serves``, ``2 of 3 engines serve``: how many of how many do something; ``verb`` is its plural
    form."""
    return f"{part} of {count(whole, noun)} {verb}{'s' if part == 1 else ''}"
