"""The table of failures: made of the marks of the tests, and true to the conditions and alerts that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.observability.alerts import ALERTS
from tests.failures import PAGE, Failure, page, read, table
from tests.unit import test_docs_conditions
from tests.unit.test_docs_proofs import CODE_ID

ROWS = read()
IDS = [f"{one.neighbour}, {one.what}" for one in ROWS]
EVERYWHERE = ("EngineReady", "RolloutProgressing", "CapacityLimited", "Stalled", "Ready")
"""Conditions that take reasons from one another, as the page of conditions says under each."""


def test_the_page_has_the_table_that_the_tests_make() -> None:
    text = PAGE.read_text()
    assert text == page(text, table(ROWS)), "write it anew: python -m tests.failures"


@pytest.mark.parametrize("one", ROWS, ids=IDS)
def test_a_condition_of_a_row_is_one_that_the_operator_sets(one: Failure) -> None:
    described = test_docs_conditions.rows()
    for type_, status, *reason in (text.split() for text in one.conditions):
        assert type_ in {found for found, _, _ in described}
        types = EVERYWHERE if type_ in EVERYWHERE else (type_,)
        assert not reason or {(found, *reason) for found in types} & {(found, why) for found, _, why in described}
        assert status in ("True", "False", "Unknown")


@pytest.mark.parametrize("one", ROWS, ids=IDS)
def test_an_alert_of_a_row_is_one_that_there_is(one: Failure) -> None:
    assert set(one.alerts) <= {alert.name for alert in ALERTS}


@pytest.mark.parametrize("one", ROWS, ids=IDS)
def test_a_row_names_its_guard_as_a_place_in_the_code(one: Failure) -> None:
    assert CODE_ID.fullmatch(f"`{one.guard}`")


FACTS = 'guard="reconcile/edge.py:attempt"'


def folder(tmp_path: Path, text: str, name: str = "test_one.py") -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path


def test_tests_of_one_row_are_joined_and_facts_stand_once(tmp_path: Path) -> None:
    mark = '@pytest.mark.failure("Engines", "sleeps"'
    text = (
        f"{mark})\ndef test_a(): ...\nclass TestB:\n    {mark}, k='held', {FACTS})\n    async def test_c(self): ...\n"
    )
    (row,) = read(folder(tmp_path, text))
    assert row.shown_by == ("test_one.py::test_a", "test_one.py::TestB::test_c")
    assert row.k == "held"


@pytest.mark.parametrize(
    ("text", "name", "fault"),
    [
        pytest.param('@M("Engines", "a", G)\ndef test_a(): ...\n' * 2, "test_one.py", "both tell", id="facts twice"),
        pytest.param('@M("Engines", "a")\ndef test_a(): ...\n', "test_one.py", "no guard", id="no facts"),
        pytest.param('@M("Moon", "a", G)\ndef test_a(): ...\n', "test_one.py", "no such", id="another neighbour"),
        pytest.param('@M("Engines", "a", G)\ndef a(): ...\n', "test_one.py", "collects", id="no test by its name"),
        pytest.param('@M("Engines", "a", G)\ndef test_a(): ...\n', "one.py", "collects", id="no file of tests"),
    ],
)
def test_a_row_that_nothing_shows_is_refused(tmp_path: Path, text: str, name: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        read(folder(tmp_path, text.replace("@M", "@pytest.mark.failure").replace("G", FACTS), name))


@pytest.mark.failure("Engines", "sleeps", conditions=["Ready False Starting", "Paused True"], guard="none")
def test_a_test_reads_its_own_facts(failure: Failure) -> None:
    assert failure.condition("Ready") == ("False", "Starting")
    assert failure.condition("Paused") == ("True",)
