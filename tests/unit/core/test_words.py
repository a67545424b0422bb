"""Singular and plural."""

from __future__ import annotations

import pytest

from outrider.core.words import count, share


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 engines"), (1, "1 engine"), (2, "2 engines"), (0.6, "1 engine"), (1.5, "2 engines")]
)
def test_count(number: float, text: str) -> None:
    assert count(number, "engine") == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (1, 1, "1 of 1 engine serves"),
        (0, 1, "0 of 1 engine serve"),
        (1, 3, "1 of 3 engines serves"),
        (2, 3, "2 of 3 engines serve"),
    ],
)
def test_share(part: int, whole: int, text: str) -> None:
    assert share(part, whole, "engine", "serve") == text
