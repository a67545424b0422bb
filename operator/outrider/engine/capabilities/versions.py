"""Versions of vLLM, and what is known of one thing over all of them.

A history names only versions that were looked at. Between two that disagree the answer is unknown, unless a release is
known to have made the change; a version after the last that was looked at is unknown as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Version = tuple[int, int, int]

KNOWN_BEST = "0.33.0"
LOOKED_AT = ("0.6.3", "0.8.5", "0.9.2", "0.11.0", "0.13.0", "0.18.1", "0.20.2", "0.24.0", "0.29.0", "0.32.0", "0.33.0")
"""Published packages whose configuration and arguments were read."""


def parse_version(text: str) -> Version:
    """The first three numbers of a version such as ``0.33.0`` or ``0.33.0rc1``.

    Raises:
        ValueError: the text does not begin with three numbers.
    """
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    if match is None:
        raise ValueError(f"{text!r} is not a version such as {KNOWN_BEST}")
    major, minor, patch = map(int, match.groups())
    return major, minor, patch


def is_later(version: str) -> bool:
    """Whether a version belongs to a later line than all that were looked at."""
    return parse_version(version)[:2] > parse_version(LOOKED_AT[-1])[:2]


def write(version: Version) -> str:
    """A version as text."""
    return ".".join(map(str, version))


@dataclass(frozen=True, slots=True)
class Span:
    """Versions from ``first`` to ``last``, both looked at and alike."""

    first: Version
    last: Version
    there: bool
    exact: bool = False
    """Whether ``first`` is the very release that brought the change."""


def there(first: str, last: str = LOOKED_AT[-1]) -> Span:
    """Seen in these versions; without ``last`` in all later ones that were looked at."""
    return Span(parse_version(first), parse_version(last), there=True)


def since(first: str, last: str = LOOKED_AT[-1]) -> Span:
    """As `there`, and ``first`` is the release that brought it."""
    return Span(parse_version(first), parse_version(last), there=True, exact=True)


def absent(first: str, last: str = LOOKED_AT[-1]) -> Span:
    """Seen to be missing in these versions."""
    return Span(parse_version(first), parse_version(last), there=False)


@dataclass(frozen=True, slots=True)
class History:
    """What is known of one thing, with where it can be read."""

    spans: tuple[Span, ...]
    """Ascending."""
    source: str

    def at(self, version: str) -> bool | None:
        """Whether a version has it; None where nobody looked."""
        number = parse_version(version)
        before = [span for span in self.spans if span.first <= number]
        after = [span for span in self.spans if span.first > number]
        if not before:
            # What was missing in the first version that was looked at had not come before it either.
            return False if after[0].exact or not after[0].there else None
        span = before[-1]
        if number <= span.last or (number[:2] == span.last[:2] and not (after and after[0].first[:2] == number[:2])):
            return span.there
        return span.there if after and after[0].exact else None

    def came(self) -> str | None:
        """The first version known to have it; None for what no version has."""
        return next((write(span.first) for span in self.spans if span.there), None)

    def words(self) -> str:
        """The spans in words, such as ``0.6.3 to 0.9.2, from 0.18.1``."""
        last = parse_version(LOOKED_AT[-1])
        parts = [
            f"from {write(span.first)}" if span.last == last else f"{write(span.first)} to {write(span.last)}"
            for span in self.spans
            if span.there
        ]
        return ", ".join(parts) or "in none"


def history(*spans: Span, source: str) -> History:
    """What is known of one thing."""
    return History(spans, source)
