"""The health checks that we ship for GitOps tools, over statuses as the operator writes them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.defaults import resolve
from outrider.core.series import Missing
from outrider.errors import OperatorError
from outrider.reconcile import status
from tests.testbed.kstatus import verdict
from tests.unit.api.bodies import resource
from tests.unit.reconcile.fakes import NOW_S, Manifest
from tests.unit.reconcile.test_status_truth import FAULTS, METRICS, PODS, a_service, deployments
from tests.unit.test_docs_conditions import PAGE as CONDITIONS
from tests.unit.test_docs_conditions import rows

from .health import ARGO_CD, argo_cd, flux, flux_programs

CASES = yaml.safe_load((ARGO_CD / "health_test.yaml").read_text(encoding="utf-8"))["tests"]
BODIES = {
    case["inputPath"]: yaml.safe_load((ARGO_CD / case["inputPath"]).read_text(encoding="utf-8")) for case in CASES
}
AGREED = {
    "Current": {"Healthy", "Suspended"},
    "InProgress": {"Progressing", "Degraded", "Suspended"},
    "Failed": {"Degraded"},
    "Terminating": {"Progressing"},
}
"""What Argo CD may say of a resource by what generic tools say of it: Degraded is the earlier of the two to be told."""


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    flux_programs()  # CEL raises the recursion limit, which hypothesis does not like in the middle of a test


@pytest.mark.parametrize("case", CASES, ids=lambda case: Path(case["inputPath"]).stem)
def test_argo_cd_says_what_its_own_test_file_expects(case: dict[str, Any]) -> None:
    assert argo_cd(BODIES[case["inputPath"]]) == (case["healthStatus"]["status"], case["healthStatus"]["message"])


def test_every_input_is_used_and_every_verdict_occurs() -> None:
    assert sorted(BODIES) == sorted(f"testdata/{path.name}" for path in (ARGO_CD / "testdata").iterdir())
    assert {case["healthStatus"]["status"] for case in CASES} == {"Healthy", "Progressing", "Degraded", "Suspended"}


def test_inputs_hold_reasons_that_the_operator_can_give() -> None:
    known = {reason for _, _, reason in rows()} | {"MethodNotInVersion"}
    found = {one["reason"] for body in BODIES.values() for one in body["status"].get("conditions", [])}
    assert found <= known


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("idle", "Healthy"),
        ("paused", "Suspended"),
        ("serves_without_metrics", "Healthy"),
        ("no_place", "Progressing"),
        ("engines_crash", "Degraded"),
    ],
)
def test_rest_and_loss_of_data_are_no_failure_and_a_crash_is(name: str, expected: str) -> None:
    assert argo_cd(BODIES[f"testdata/{name}.yaml"])[0] == expected


def test_what_the_reference_tells_to_wait_for_is_progressing() -> None:
    """The advice of docs/reference/conditions.md and the list in the health check cannot drift apart."""
    advice = re.findall(r"^\| False \| `(\w+)` \| .+ \| (.+) \|$", CONDITIONS.read_text(encoding="utf-8"), re.M)
    waits = {reason for reason, words in advice if words.startswith(("wait", "nothing"))}
    ready = {reason for type_, status_, reason in rows() if type_ in ("Ready", "EngineReady") and status_ == "False"}
    for reason in sorted(ready - {"Idle"}):
        body = {
            "metadata": {"generation": 1},
            "status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "False", "reason": reason}]},
        }
        health, _ = argo_cd(body)
        assert health in ("Progressing", "Degraded")
        assert reason not in waits or health == "Progressing", reason


@given(
    seen=st.lists(st.sampled_from(PODS), max_size=3),
    live=deployments(),
    fault=st.sampled_from(FAULTS),
    frozen=st.booleans(),
    metrics=st.sampled_from(METRICS),
    generation=st.sampled_from([5, 6]),
)
def test_argo_cd_flux_and_kstatus_agree_on_whatever_is_found(
    seen: list[Manifest],
    live: Manifest | None,
    fault: OperatorError | None,
    frozen: bool,
    metrics: Missing | None,
    generation: int,
) -> None:
    found = status.build(
        a_service(seen, live, frozen, metrics), resolve(resource().spec), None, keda=True, fault=fault, warnings=(),
        generation=5, now_s=NOW_S,
    ).as_dict()  # fmt: skip
    body = {"metadata": {"generation": generation}, "status": found}
    judged = verdict(body)
    health, message = argo_cd(body)
    assert health in AGREED[judged]
    assert message
    assert flux(body) == {"Current": "current", "InProgress": "inProgress", "Failed": "failed"}[judged]


@pytest.mark.parametrize("name", [name for name in BODIES if "deleting" not in name])
def test_flux_says_the_same_with_its_expressions_as_without(name: str) -> None:
    expected = {"Current": "current", "InProgress": "inProgress", "Failed": "failed"}
    assert flux(BODIES[name]) == expected[verdict(BODIES[name])]
