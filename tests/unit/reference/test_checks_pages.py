"""The pages of capabilities and checks: all that the code knows, in tables that hold together."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from outrider.cli.preflight_examination import DEPLOYMENT_CHECKS
from outrider.engine import capabilities as known
from outrider.engine.admission import CHECKS
from outrider.engine.flags import REFUSED
from outrider.reference import capabilities, checks
from outrider.reference.markdown import cell

PAGES = (capabilities.page, checks.page)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_the_same_each_time(page: Callable[[], str]) -> None:
    assert page() == page()


@pytest.mark.parametrize("page", PAGES)
def test_every_row_has_as_many_cells_as_its_table(page: Callable[[], str]) -> None:
    cells = 0
    for line in page().splitlines():
        if not line.startswith("|"):
            cells = 0
            continue
        count = len(re.findall(r"(?<!\\)\|", line))
        cells = cells or count
        assert count == cells, line


def test_every_method_feature_and_flag_is_on_the_page() -> None:
    text = capabilities.page()
    names = [*known.METHODS, *known.FLAGS_BY_VERSION, *(feature.value for feature in known.Feature)]
    assert [name for name in names if f"| `{name}` |" not in text] == []
    assert all(cell(history.source) in text for history in known.FEATURES.values())


def test_a_row_says_what_the_table_says() -> None:
    row = next(line for line in capabilities.page().splitlines() if line.startswith("| `draft_model` |"))
    assert row.startswith("| `draft_model` | yes | yes | yes | – | – | yes | yes | yes | yes | yes | yes |")


def test_every_check_is_on_the_page_with_its_reason_and_source() -> None:
    text = checks.page()
    for name, why, source in (
        *((check.code, check.why, check.source) for check in CHECKS),
        *((check.name, check.why, check.source) for check in DEPLOYMENT_CHECKS),
    ):
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
        assert cell(why) in row
        assert cell(source) in row
    assert all(f"| `{flag}` |" in text for flag in REFUSED)
    assert '"version": 1' in text
