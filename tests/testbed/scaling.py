"""What tests of scaling share: services by their autoscaling block, waits for their conditions, and metrics made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed import operator
from tests.testbed.cluster import Cluster
from tests.testbed.pages import Pages
from tests.testbed.service import ServiceView
from tests.testbed.startup import TIMEOUT_S
from tests.testbed.store import Store

MINIMAL = Path(__file__).resolve().parents[2] / "examples" / "01-minimal.yaml"
LOOK_BACK_S = 600
"""Longer than a test: the HPA then gives no replica up, and one that goes was taken by somebody else."""
HPA_SYNC_S = 1.0
"""How often the HPA looks on these clusters."""
POLLED_OFTEN = {"OUTRIDER_KEDA_POLLING_INTERVAL_S": "3"}
"""A setting of the operator, for KEDA."""
SEEN_BY_THE_HPA_S = 5.0
"""Time for KEDA to poll, and three looks of the HPA after that."""
GONE_BY_NOW_S = 15.0
"""The HPA looks back 10 s unless a service says otherwise: had silence counted as zero, replicas would have gone."""


@contextmanager
def outrider_behind(store: Store, cluster: Cluster) -> Iterator[None]:
    """Outrider installed and started, with Prometheus reached through the store by it and by KEDA."""
    cluster.kubectl("apply", "-f", str(Path(__file__).with_name("pod_monitor_crd.yaml")))
    operator.install(cluster)
    operator.start(cluster, through(store))
    yield
    operator.stop(cluster)


def through(store: Store) -> dict[str, str]:
    """Settings of an operator that reaches Prometheus through the store, and so does KEDA."""
    return {"OUTRIDER_PROMETHEUS_URL": store.url, **POLLED_OFTEN}


def named_after(request: pytest.FixtureRequest) -> str:
    """A namespace for one test, told by its name."""
    return str(request.node.name.removeprefix("test_")[:50].replace("_", "-").strip("-"))


def create(cluster: Cluster, namespace: str, name: str = "chat") -> ServiceView:
    """A namespace for a service."""
    cluster.kubectl("create", "namespace", namespace)
    return ServiceView(cluster, namespace, name)


def remove(view: ServiceView) -> None:
    """Have a service give its GPUs back."""
    view.cluster.kubectl("delete", "hpa,scaledobject,sis", "--all", "-n", view.namespace, "--wait=false")
    command = ("delete", "deployment", view.name, "-n", view.namespace, "--ignore-not-found", "--wait=false")
    view.cluster.kubectl(*command)


def manifest(view: ServiceView, scaling: dict[str, Any] | None, **changes: Any) -> dict[str, Any]:
    """The minimal example with another autoscaling block, and other parts of its spec."""
    found: dict[str, Any] = yaml.safe_load(MINIMAL.read_text())
    found["metadata"] |= {"namespace": view.namespace, "name": view.name}
    found["spec"] |= {"autoscaling": scaling, **changes}
    if scaling is None:
        del found["spec"]["autoscaling"]
    return found


def scale(view: ServiceView, scaling: dict[str, Any] | None, **changes: Any) -> None:
    """Apply that."""
    view.apply(manifest(view, scaling, **changes))


def scale_to(view: ServiceView, number: int, **changes: Any) -> None:
    """Have so many replicas, between 1 and two more, at once: the HPA goes up by four a minute at most."""
    scaling = {"maxReplicas": number + 2, "triggers": [demand(number)]}
    scale(view, scaling | {"minReplicas": number}, **changes)
    serve(view, number)
    scale(view, scaling | {"minReplicas": 1}, **changes)
    wait(view, "AutoscalingReady", "True", "Scaling")


def wait(view: ServiceView, type_: str, *expected: str, timeout_s: float = TIMEOUT_S) -> None:
    """Wait for status, and reason where one is given, of a condition, by a pass that has seen the last edit."""
    what = f"{type_} {' '.join(expected)}"
    view.cluster.wait_until(what, lambda: view.is_told(type_, *expected), timeout_s)


def serve(view: ServiceView, number: int) -> None:
    """Wait for so many engines that serve."""
    view.cluster.wait_until(f"{number} engines", lambda: len(view.ready_addresses()) == number)


def wait_replicas(view: ServiceView, number: int) -> None:
    """Wait for the number that the Deployment has."""
    view.cluster.wait_until(f"{number} replicas", lambda: replicas(view) == number)


def replicas(view: ServiceView) -> int:
    """The number that the Deployment has."""
    return int(view.get("deployment")["spec"]["replicas"])


def between(least: int, most: int, **more: Any) -> dict[str, Any]:
    """KEDA between bounds, without giving a replica up."""
    return {"minReplicas": least, "maxReplicas": most, "scaleDownStabilizationSeconds": LOOK_BACK_S, **more}


def trigger(name: str, query: str, target: int = 1, metric_type: str = "AverageValue") -> dict[str, Any]:
    """A trigger of the user's own."""
    return {"name": name, "query": query, "metricType": metric_type, "target": target}


def demand(number: int) -> dict[str, Any]:
    """A trigger that wants so many replicas."""
    return trigger("demand", f"vector({number})")


def hpa(view: ServiceView) -> dict[str, Any]:
    """The HPA that KEDA made."""
    return view.get("hpa", f"keda-hpa-{view.name}")


def hpa_targets(view: ServiceView) -> set[str]:
    """The targets that the HPA has."""
    return {one["external"]["target"]["averageValue"] for one in hpa(view)["spec"]["metrics"]}


def uids(view: ServiceView) -> list[str]:
    """Those of the ScaledObject and of the HPA."""
    return [one["metadata"]["uid"] for one in (view.get("scaledobject"), hpa(view))]


def export(cluster: Cluster, pages: Pages, job: str, text: Callable[[], str], **labels: str) -> None:
    """Have a page scraped under a job of its own."""
    pages.texts[f"/{job}"] = text
    cluster.add_scrape_target(job, pages.address, {"__metrics_path__": f"/{job}", **labels})


def engine_labels(view: ServiceView, pod: str) -> dict[str, str]:
    """The labels that the PodMonitor gives the series of a pod."""
    return {
        "namespace": view.namespace,
        "pod": pod,
        "serving_outrider_dev_service": view.name,
        "serving_outrider_dev_track": "stable",
    }
