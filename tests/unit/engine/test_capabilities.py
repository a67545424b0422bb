"""The capability table."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from outrider.engine import capabilities as known

RUNS = Path(__file__).parents[3] / "docs/benchmarks/runtime"
SHOWN = {"eagle": ("results-h100.jsonl", "nested"), "draft_model": ("results-h100-2.jsonl", "draft_model")}
"""Where the run of random changes is that shows a method: file and engine."""


@pytest.mark.parametrize(
    ("version", "found"),
    [
        pytest.param("0.33.0", True, id="the version that is known best"),
        pytest.param("0.33.4", True, id="its later patches"),
        pytest.param("0.33.1rc2", True, id="a candidate of a patch"),
        pytest.param("0.32.9", False, id="before"),
        pytest.param("0.34.0", False, id="after"),
        pytest.param(None, False, id="not known"),
    ],
)
def test_rows_are_found_by_range(version: str | None, found: bool) -> None:
    assert (known.capabilities(version) is not None) == found


def test_text_that_is_no_version_is_an_error() -> None:
    with pytest.raises(ValueError, match="latest"):
        known.parse_version("latest")


def test_ranges_do_not_overlap() -> None:
    assert all(before.before <= after.first for before, after in pairwise(known.TABLE))


def test_every_claim_carries_its_evidence() -> None:
    for row in known.TABLE:
        for method in row.methods.values():
            assert len(method.live.evidence) > 40


def test_live_changes_are_proven_where_a_run_shows_them_and_nowhere_else() -> None:
    row = known.capabilities(known.KNOWN_BEST)
    assert row is not None
    proven = {name for name, method in row.methods.items() if method.live.possible and method.live.proven}
    assert proven == set(SHOWN)


@pytest.mark.parametrize(("file", "engine"), SHOWN.values(), ids=SHOWN)
def test_a_run_that_shows_a_method_lost_no_request_and_saw_no_stall(file: str, engine: str) -> None:
    rows = [json.loads(line) for line in (RUNS / file).read_text().splitlines()]
    (whole,) = [row for row in rows if row["kind"] == "random" and row["engine"] == engine]
    assert whole["finished"] == whole["sent"] > 1000
    assert whole["changes"] > 300
    assert whole["refused"] == 0
    parts = [row for row in rows if row["kind"] == "random_part" and row["engine"] == engine]
    assert parts
    assert all(part["stalls"]["count"] == 0 for part in parts)


@pytest.mark.parametrize(
    ("version", "since", "expected"),
    [
        ("0.17.9", known.SHUTDOWN_TIMEOUT_SINCE, False),
        ("0.18.0", known.SHUTDOWN_TIMEOUT_SINCE, True),
        ("0.23.0", known.TABLE_SINCE, False),
        (None, known.TABLE_SINCE, True),
    ],
)
def test_what_came_with_which_version(version: str | None, since: known.Version, expected: bool) -> None:
    assert known.has(version, since) == expected
