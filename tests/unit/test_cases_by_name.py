"""Failures of real users that other stacks have: each is a test that has its number in its name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
NAME = re.compile(r"""(?:def test_c|class TestC|\("c|case: C)(\d\d)(?!\d)""")
"""A test, a class of tests, the id of a case in a table of Python, or one in a table of YAML."""


@pytest.fixture(scope="module")
def named() -> set[int]:
    files = [*TESTS.rglob("test_*.py"), *TESTS.rglob("*.yaml")]
    return {int(number) for file in files for number in NAME.findall(file.read_text())}


@pytest.mark.parametrize("number", range(1, 31), ids="C{:02d}".format)
def test_a_case_has_a_test_with_its_number(number: int, named: set[int]) -> None:
    assert number in named
