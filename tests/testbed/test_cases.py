"""The admission cases at the door: what kubectl apply answers, and that it lets through what is decided behind it."""

from __future__ import annotations

import pytest
import yaml

from tests.cases.table import Case, body, cases
from tests.testbed.cluster import Cluster
from tests.unit.api.bodies import ROOT


@pytest.fixture(scope="module")
def served(api_cluster: Cluster) -> Cluster:
    """An API server that knows our kind."""
    api_cluster.kubectl("apply", "-f", str(ROOT / "crds"))
    api_cluster.wait_for_definition("speculativeinferenceservices.serving.outrider.dev")
    api_cluster.kubectl("create", "namespace", "ml", check=False)
    return api_cluster


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["case"])
def test_case(served: Cluster, case: Case) -> None:
    refused = case.get("at") == "apply"
    done = served.kubectl("apply", "--dry-run=server", "-f", "-", input=yaml.safe_dump(body(case)), check=not refused)
    assert (done.returncode != 0) == refused
    if refused:
        assert case.get("server", case["refused"]) in done.stderr
