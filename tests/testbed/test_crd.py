"""The CRD on a real API server: what `kubectl apply` refuses, in which words, and what it lets through.

The tables are those of the unit tests, where the parsed model gives the same answers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic.alias_generators import to_camel

from outrider.api.rules import Part
from outrider.api.speculation import Draft, Speculation
from outrider.api.tuning import Tuning
from tests.testbed.cluster import Cluster
from tests.unit.api.bodies import ADMITTED, EXAMPLES, ROOT, changed, example, refused
from tests.unit.manifests.golden import manifests, resources

CRD = "crd/speculativeinferenceservices.serving.outrider.dev"
BUILT_IN = {"ServiceAccount", "Secret", "ConfigMap", "Service", "Deployment", "PodDisruptionBudget", "NetworkPolicy"}


@pytest.fixture(scope="module")
def served(api_cluster: Cluster) -> Cluster:
    """An API server that knows our kind, with the namespaces of the examples."""
    api_cluster.kubectl("apply", "-f", str(ROOT / "crds"))
    api_cluster.wait_for_definition(CRD.removeprefix("crd/"))
    for namespace in ("ml", "batch"):
        api_cluster.kubectl("create", "namespace", namespace, check=False)
        api_cluster.kubectl(
            "label",
            "--overwrite",
            f"namespace/{namespace}",
            "pod-security.kubernetes.io/warn=restricted",
            "pod-security.kubernetes.io/enforce=restricted",
        )
    return api_cluster


def test_the_crd_is_taken_by_either_kind_of_apply(served: Cluster) -> None:
    annotations = json.loads(served.kubectl("get", CRD, "-o", "json").stdout)["metadata"]["annotations"]
    assert "kubectl.kubernetes.io/last-applied-configuration" in annotations
    assert served.kubectl("apply", "--server-side", "-f", str(ROOT / "crds")).stderr == ""
    assert served.kubectl("apply", "-f", str(ROOT / "crds")).stderr == ""


@pytest.mark.parametrize("part", [Speculation, Draft, Tuning], ids=lambda part: part.__name__)
def test_kubectl_explain_reads_like_documentation(served: Cluster, part: type[Part]) -> None:
    path = {Speculation: "", Draft: ".draft", Tuning: ".tuning"}[part]
    answer = ""

    def explained() -> bool:
        nonlocal answer
        done = served.kubectl("explain", f"sis.spec.speculation{path}", check=False)
        answer = " ".join(done.stdout.split())
        return done.returncode == 0

    served.wait_until("documentation of the kind", explained)  # published a moment after the kind is served
    for name, field in part.model_fields.items():
        assert f" {field.alias or to_camel(name)} <" in answer
        assert " ".join((field.description or "?").split()) in answer


def dry_run(cluster: Cluster, body: dict[str, Any], *, check: bool, server_side: bool = False) -> str:
    """The server's answer to an apply that changes nothing."""
    kind = ["--server-side"] if server_side else []
    done = cluster.kubectl("apply", *kind, "--dry-run=server", "-f", "-", input=yaml.safe_dump(body), check=check)
    if not check:
        assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


@pytest.mark.parametrize("row", refused(), ids=lambda row: row["case"])
def test_refused_at_apply(served: Cluster, row: dict[str, Any]) -> None:
    answer = dry_run(served, changed(example(), row["set"]), check=False, server_side=row.get("serverSide", False))
    assert row.get("server", row["words"]) in answer


@pytest.mark.parametrize("changes", ADMITTED.values(), ids=ADMITTED.keys())
def test_admitted_at_apply(served: Cluster, changes: dict[str, Any]) -> None:
    dry_run(served, changed(example(), changes), check=True)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_new_object_has_no_defaults_but_a_status_that_is_not_current(served: Cluster, path: Path) -> None:
    body = yaml.safe_load(path.read_text(encoding="utf-8"))
    served.kubectl("apply", "--server-side", "-f", str(path))
    stored = json.loads(served.kubectl("get", "sis", body["metadata"]["name"], "-n", "ml", "-o", "json").stdout)
    assert stored["spec"] == body["spec"]
    assert stored["status"] == {"observedGeneration": -1}


def test_columns(served: Cluster) -> None:
    served.kubectl("apply", "--server-side", "-f", str(EXAMPLES[0]))
    header = served.kubectl("get", "sis", "chat", "-n", "ml", "-o", "wide").stdout.splitlines()[0]
    assert header.split() == [
        "NAME", "READY", "MODE", "K", "TOKENS/STEP", "REPLICAS", "CANDIDATE", "AGE",
        "TARGET", "MODEL", "REASON", "REVISION", "TRIED", "GAIN%",
    ]  # fmt: skip


@pytest.mark.parametrize("path", resources().values(), ids=resources().keys())
def test_children_are_valid_and_their_pods_restricted(served: Cluster, path: Path) -> None:
    for manifest in manifests(path):
        if manifest["kind"] in BUILT_IN:
            done = served.kubectl(
                "apply",
                "--server-side",
                "--dry-run=server",
                "--validate=strict",
                "-f",
                "-",
                input=yaml.safe_dump(manifest),
            )
            assert "would violate PodSecurity" not in done.stderr
