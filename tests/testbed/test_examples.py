"""The examples with kubectl: overlays as kustomize renders them, and the team's own objects beside the resources."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from outrider.api.defaults import resolve
from outrider.api.resource import parse
from outrider.engine.admission import admit
from outrider.manifests.engine_settings import engine_config
from tests.testbed.cluster import Cluster
from tests.unit.api.bodies import ROOT

FOLDER = ROOT / "examples"
OVERLAYS = sorted((FOLDER / "gitops" / "overlays").iterdir())


@pytest.fixture(scope="module")
def served(api_cluster: Cluster) -> Cluster:
    """An API server that knows our kind, with the namespaces of the overlays."""
    api_cluster.kubectl("apply", "-f", str(ROOT / "crds"))
    api_cluster.wait_for_definition("speculativeinferenceservices.serving.outrider.dev")
    for namespace in ("ml", "ml-staging"):
        api_cluster.kubectl("create", "namespace", namespace, check=False)
    return api_cluster


def rendered(cluster: Cluster, overlay: str) -> dict[str, Any]:
    """The one resource of an overlay."""
    text = cluster.kubectl("kustomize", str(FOLDER / "gitops" / "overlays" / overlay)).stdout
    (body,) = yaml.safe_load_all(text)
    assert isinstance(body, dict)
    return body


@pytest.mark.parametrize("overlay", [path.name for path in OVERLAYS])
def test_an_overlay_is_a_service_without_a_warning(served: Cluster, overlay: str) -> None:
    body = rendered(served, overlay)
    resource = parse(body)
    assert admit(engine_config(resource, resolve(resource.spec))).warnings == ()
    served.kubectl("apply", "--dry-run=server", "-f", "-", input=yaml.safe_dump(body))


def test_overlays_change_what_they_say_and_nothing_else(served: Cluster) -> None:
    base = yaml.safe_load((FOLDER / "gitops" / "base" / "service.yaml").read_text(encoding="utf-8"))["spec"]
    staging, production = (rendered(served, name) for name in ("staging", "production"))
    assert (staging["metadata"]["namespace"], production["metadata"]["namespace"]) == ("ml-staging", "ml")
    assert changed_fields(base, staging["spec"]) == {"speculation.tuning", "autoscaling.maxReplicas"}
    assert changed_fields(base, production["spec"]) == {
        "autoscaling.minReplicas",
        "autoscaling.maxReplicas",
        "autoscaling.scaleDownStabilizationSeconds",
        "placement",
        "model.revision",
        "model.tokenSecret",
        "model.source",
        "speculation.draft.revision",
        "speculation.draft.source",
        "storage",
        "networkPolicy",
    }


def changed_fields(before: dict[str, Any], after: dict[str, Any], path: str = "") -> set[str]:
    """Paths of the fields that are in one only, or not the same in both."""
    found: set[str] = set()
    for name in before.keys() | after.keys():
        old, new = before.get(name), after.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            found |= changed_fields(old, new, f"{path}{name}.")
        elif old != new:
            found.add(f"{path}{name}")
    return found


def test_the_other_autoscaler_is_one_that_kubernetes_takes(served: Cluster) -> None:
    path = FOLDER / "beside" / "09-another-autoscaler.hpa.yaml"
    answer = served.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(path), "-o", "json").stdout
    assert json.loads(answer)["spec"]["scaleTargetRef"]["name"] == "search"
