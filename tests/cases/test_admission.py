"""What an author of a resource is told in each case, without a cluster: the operator and preflight say the same."""

from __future__ import annotations

import pytest

from outrider.errors import InvalidSpec
from tests.cases.table import Case, cases, warnings


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["case"])
def test_case(case: Case) -> None:
    if "refused" in case:
        with pytest.raises(InvalidSpec) as refusal:
            warnings(case)
        assert case["refused"] in refusal.value.message
    elif "warned" in case:
        assert case["warned"] in warnings(case)
    else:
        warnings(case)
