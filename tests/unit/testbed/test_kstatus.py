"""The rules of kstatus, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from tests.testbed.kstatus import Verdict, verdict


def body(*conditions: tuple[str, str], seen: int | None = 2, **meta: Any) -> dict[str, Any]:
    """An object at its second generation."""
    status: dict[str, Any] = {"conditions": [{"type": type_, "status": status} for type_, status in conditions]}
    if seen is not None:
        status["observedGeneration"] = seen
    return {"metadata": {"generation": 2, **meta}, "status": status}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (body(("Ready", "True")), "Current"),
        (body(("Ready", "False")), "InProgress"),
        (body(("Ready", "Unknown")), "InProgress"),
        (body(("Ready", "True"), seen=1), "InProgress"),
        (body(seen=-1), "InProgress"),
        (body(seen=None), "Current"),
        (body(("Ready", "True"), ("Reconciling", "True")), "InProgress"),
        (body(("Ready", "True"), ("Reconciling", "False")), "Current"),
        (body(("Ready", "True"), ("Stalled", "True")), "Failed"),
        (body(("Ready", "False"), ("Stalled", "True"), seen=1), "InProgress"),
        (body(("Reconciling", "True"), ("Stalled", "True")), "InProgress"),
        (body(("Stalled", "True"), deletionTimestamp="2027-01-15T08:00:00Z"), "Terminating"),
        ({"metadata": {"generation": 1}}, "Current"),
    ],
)
def test_verdict(found: dict[str, Any], expected: Verdict) -> None:
    assert verdict(found) == expected
