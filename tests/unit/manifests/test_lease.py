"""The Lease as it is read and written."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.core.leadership import Record
from outrider.manifests import lease

PLACE = ("outrider-system", "outrider")
NOON, LATER = "2026-01-01T12:00:00.000000Z", "2026-01-01T12:00:02.000000Z"


def stored(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "outrider", "namespace": "outrider-system", "resourceVersion": "7"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"holderIdentity": "a", "leaseDurationSeconds": 15}, Record("a", "7", 15.0), id="held"),
        pytest.param({}, Record("", "7"), id="given back"),
        pytest.param({"holderIdentity": None}, Record("", "7"), id="given back, with a null"),
        pytest.param({"holderIdentity": "a", "leaseDurationSeconds": 0}, Record("a", "7"), id="no time"),
        pytest.param({"holderIdentity": "a", "leaseDurationSeconds": "15"}, Record("a", "7"), id="no number"),
    ],
)
def test_what_a_lease_says(spec: dict[str, Any], expected: Record) -> None:
    assert lease.record(stored(**spec)) == expected


def test_the_first_holder_makes_it() -> None:
    made = lease.held(None, PLACE, "a", 15.0, NOON)
    assert (made["metadata"]["namespace"], made["metadata"]["name"]) == PLACE
    assert made["spec"] == {
        "holderIdentity": "a", "leaseDurationSeconds": 15, "acquireTime": NOON, "renewTime": NOON, "leaseTransitions": 0
    }  # fmt: skip


def test_a_renewal_moves_its_time_alone_and_bears_the_version_that_was_read() -> None:
    before = stored(**lease.held(None, PLACE, "a", 15.0, NOON)["spec"])
    renewed = lease.held(before, PLACE, "a", 15.0, LATER)
    assert renewed["spec"] == before["spec"] | {"renewTime": LATER}
    assert renewed["metadata"]["resourceVersion"] == "7"


def test_another_holder_counts_as_a_transition() -> None:
    before = stored(**lease.held(None, PLACE, "a", 15.0, NOON)["spec"])
    spec = lease.held(before, PLACE, "b", 15.0, LATER)["spec"]
    assert (spec["holderIdentity"], spec["acquireTime"], spec["leaseTransitions"]) == ("b", LATER, 1)


def test_given_back_it_has_no_holder_and_keeps_the_rest() -> None:
    before = stored(**lease.held(None, PLACE, "a", 15.0, NOON)["spec"])
    back = lease.released(before, LATER)
    assert "holderIdentity" not in back["spec"]
    assert back["metadata"]["resourceVersion"] == "7"
    assert lease.held(stored(**back["spec"]), PLACE, "b", 15.0, LATER)["spec"]["leaseTransitions"] == 1
