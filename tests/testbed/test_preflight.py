"""`outrider preflight --cluster` against a real API server: its own judgement, and nothing written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed.cluster import Cluster
from tests.unit.api.bodies import ROOT, changed, example

NAMESPACE = "preflight"


@pytest.fixture(scope="module")
def served(api_cluster: Cluster) -> Cluster:
    """An API server that knows our kind, with a namespace, a Secret and a claim."""
    api_cluster.kubectl("apply", "-f", str(ROOT / "crds"))
    crd = "crd/speculativeinferenceservices.serving.outrider.dev"
    api_cluster.wait_for_definition(crd.removeprefix("crd/"))
    api_cluster.kubectl("create", "namespace", NAMESPACE, check=False)
    api_cluster.kubectl("-n", NAMESPACE, "create", "secret", "generic", "hub", "--from-literal=token=x", check=False)
    return api_cluster


def states(cluster: Cluster, folder: Path, changes: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """State and first sentence of each check that the cluster answers."""
    file = folder / "service.yaml"
    file.write_text(yaml.safe_dump(changed(example(), {"metadata.namespace": NAMESPACE} | changes)), encoding="utf-8")
    command = [sys.executable, "-c", "from outrider.cli.main import main; main()"]
    done = subprocess.run(
        [*command, "preflight", str(file), "--cluster", "-o", "json"],
        env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return {
        check["name"]: (check["state"], check["findings"][0]["message"])
        for check in json.loads(done.stdout)["resources"][0]["checks"]
        if check["group"] == "cluster"
    }


def test_a_service_that_the_cluster_takes(served: Cluster, tmp_path: Path) -> None:
    found = states(served, tmp_path, {"spec.model.tokenSecret": {"name": "hub", "key": "token"}})
    for name in ("namespace", "dry-run", "children-dry-run", "secrets-there", "claims-there"):
        assert found[name][0] == "ok", found[name]
    assert found["kinds-served"][0] == "warning", "this API server has no KEDA"
    assert found["gpus-there"][0] == "refused", "nor any node"


def test_nothing_is_written(served: Cluster, tmp_path: Path) -> None:
    states(served, tmp_path, {"metadata.name": "unwritten"})
    for kind in ("sis", "deployment"):
        assert served.kubectl("-n", NAMESPACE, "get", kind, "unwritten", check=False).returncode != 0


@pytest.mark.parametrize(
    ("changes", "check", "words"),
    [
        pytest.param({"metadata.namespace": "nowhere"}, "namespace", "nowhere does not exist", id="no namespace"),
        pytest.param(
            {"spec.speculation.maxSpeculativeTokens": 17}, "dry-run", "less than or equal to 16", id="out of bounds"
        ),
        pytest.param({"spec.xyzzy": 1}, "dry-run", "field not declared in schema", id="an unknown field"),
        pytest.param(
            {"spec.placement": {"affinity": {"nodeAffinities": {}}}},
            "children-dry-run",
            "nodeAffinities",
            id="passed on",
        ),
        pytest.param(
            {"spec.networkPolicy": {"allowFrom": [{"podSelectors": {}}]}},
            "children-dry-run",
            "podSelectors",
            id="a peer that is none",
        ),
        pytest.param(
            {"spec.model.tokenSecret": {"name": "hub", "key": "other"}}, "secrets-there", "has no key other", id="a key"
        ),
    ],
)
def test_what_the_cluster_refuses(
    served: Cluster,
    tmp_path: Path,
    changes: dict[str, Any],
    check: str,
    words: str,
) -> None:
    state, message = states(served, tmp_path, changes)[check]
    assert state == "refused"
    assert words in message
