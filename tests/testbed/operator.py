"""Outrider on the local cluster: its resource and rights installed, its process run under its own service account."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.testbed.cluster import Cluster
from tests.testbed.processes import Process
from tests.testbed.tools import PROMETHEUS

ROOT = Path(__file__).resolve().parents[2]
PROCESS = "outrider"
NAMESPACE, ACCOUNT = "outrider-system", "outrider"
QUICK = {
    "OUTRIDER_CONTROL_PERIOD_S": "2",
    "OUTRIDER_SCRAPE_INTERVAL_S": "0.5",
    "OUTRIDER_SCALE_DOWN_STABILIZATION_S": "10",
    "OUTRIDER_LOG_LEVEL": "DEBUG",
}
"""Settings for tests: everything a user would wait for, several times sooner."""


def install(cluster: Cluster) -> None:
    """The CRD, the operator's namespace, account and rights, as a platform team applies them."""
    cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"), "-f", str(ROOT / "deploy"))
    cluster.wait_for_definition("speculativeinferenceservices.serving.outrider.dev")


def start(
    cluster: Cluster,
    settings: Mapping[str, str] | None = None,
    name: str = PROCESS,
    command: Sequence[str] = (str(Path(sys.executable).with_name("outrider")),),
) -> Process:
    """Start the operator, or one of several; it logs to the cluster's folder, and ends with the cluster at the latest.

    It plays a pod of its name: one that is started again goes on with its own lease, as a container in its pod does.
    """
    environment = {
        "KUBECONFIG": str(cluster.service_account_kubeconfig(NAMESPACE, ACCOUNT)),
        "OUTRIDER_POD_NAME": name,
        "OUTRIDER_PROMETHEUS_URL": cluster.prometheus_url,
        "OUTRIDER_BIND_ADDRESS": "127.0.0.1",
        "OUTRIDER_METRICS_PORT": str(cluster.port(f"{name}-metrics")),
        "OUTRIDER_HEALTH_PORT": str(cluster.port(f"{name}-health")),
        **QUICK,
        **(settings or {}),
    }
    if PROMETHEUS in cluster.parts:
        # A label of the target takes the place of the metric's own, as with a PodMonitor.
        metrics = f"127.0.0.1:{cluster.port(f'{name}-metrics')}"
        cluster.add_scrape_target(name, metrics, {"namespace": NAMESPACE})
    return cluster.start_process(name, [*command, "run"], environment)


def stop(cluster: Cluster, name: str = PROCESS) -> int | None:
    """End the operator as a node does: SIGTERM, and time to finish. Returns its exit status."""
    return cluster.stop_process(name)


def kill(cluster: Cluster, name: str = PROCESS) -> None:
    """End the operator without a word."""
    cluster.stop_process(name, signal.SIGKILL)


def log(cluster: Cluster, name: str = PROCESS) -> str:
    """What the operator has logged so far."""
    return (cluster.logs / f"{name}.log").read_text()
