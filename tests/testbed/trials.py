"""What tests of changes on trial ask of a service, and do to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.testbed import operator
from tests.testbed.cluster import Cluster
from tests.testbed.service import ServiceView
from tests.testbed.startup import TIMEOUT_S

MINIMAL = Path(__file__).resolve().parents[2] / "examples" / "01-minimal.yaml"


def apply(view: ServiceView, replicas: int = 3, policy: str | None = "Canary", **changes: Any) -> None:
    """The minimal example with a fixed number of replicas, and whatever else; a policy of None is left out."""
    manifest = yaml.safe_load(MINIMAL.read_text())
    manifest["metadata"]["namespace"] = view.namespace
    manifest["spec"]["autoscaling"] = {"mode": "Off", "minReplicas": replicas}
    manifest["spec"] |= ({} if policy is None else {"rollout": {"policy": policy}}) | changes
    view.apply(manifest)


def draft(view: ServiceView, id_: str) -> dict[str, Any]:
    """The speculation of the example with another draft."""
    speculation: dict[str, Any] = view.resource()["spec"]["speculation"]
    return speculation | {"draft": {"id": id_}}


def revisions(view: ServiceView) -> dict[str, Any]:
    found: dict[str, Any] = view.status().get("revisions", {})
    return found


def stable(view: ServiceView) -> str:
    return str(revisions(view).get("stable", ""))


def stage(view: ServiceView) -> str:
    return str(revisions(view).get("candidate", {}).get("stage", ""))


def on_trial(view: ServiceView) -> str:
    """The revision that is compared; empty while none is."""
    found = revisions(view).get("candidate", {})
    return str(found["revision"]) if found.get("stage") == "Running" else ""


def candidate(view: ServiceView) -> dict[str, Any]:
    return view.get("deployment", "chat-candidate")


def running(view: ServiceView) -> set[str]:
    """Revisions of the stable engines that are there, those on their way out among them: wait for it."""
    label = "serving.outrider.dev/"
    return {
        pod["metadata"]["labels"][label + "revision"]
        for pod in view.pods()
        if pod["metadata"]["labels"][label + "track"] == "stable"
    }


def outcomes(view: ServiceView) -> list[str]:
    return [one["outcome"] for one in revisions(view).get("history", [])]


def served(view: ServiceView, replicas: int = 3, policy: str | None = "Canary") -> str:
    """Apply and wait until all engines serve and their revision is known to be good; the revision."""
    apply(view, replicas, policy)
    wait(view, f"{replicas} engines", lambda: len(view.ready_addresses()) == replicas)
    wait(view, "stable revision", lambda: stable(view) != "")
    return stable(view)


def wait(view: ServiceView, what: str, condition: Any, timeout_s: float = TIMEOUT_S) -> None:
    view.cluster.wait_until(what, condition, timeout_s)


@contextmanager
def outrider_with(cluster: Cluster) -> Iterator[None]:
    """The operator, and what it needs."""
    cluster.kubectl("apply", "-f", str(Path(__file__).with_name("pod_monitor_crd.yaml")))
    operator.install(cluster)
    operator.start(cluster)
    yield
    operator.stop(cluster)
