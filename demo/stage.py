"""Set the stage: a cluster, the operator under its own service account, and two services that are ready."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from demo import scenario
from tests.testbed import operator
from tests.testbed.cluster import Cluster
from tests.testbed.errors import ClusterError, last_lines
from tests.testbed.service import ServiceView

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("kwok", "prometheus", "keda", "engines")
EXAMPLE = ROOT / "examples" / "01-minimal.yaml"
SECOND = Path(__file__).with_name("second-service.yaml")
SETTINGS = {
    "OUTRIDER_CONTROL_PERIOD_S": f"{scenario.CONTROL_PERIOD_S:g}",
    "OUTRIDER_SCRAPE_INTERVAL_S": f"{scenario.SCRAPE_INTERVAL_S:g}",
    "OUTRIDER_SCALE_DOWN_STABILIZATION_S": str(scenario.SCALE_DOWN_STABILIZATION_S),
    "OUTRIDER_LOG_LEVEL": "INFO",
}
READY_S = 60.0

Say = Callable[[str], None]


def new_cluster() -> Cluster:
    """The cluster of the demo, not started."""
    return Cluster(
        PARTS,
        dilation=scenario.DILATION,
        scrape_interval_s=scenario.SCRAPE_INTERVAL_S,
        hpa_sync_s=scenario.HPA_SYNC_S,
    )


def set_up(cluster: Cluster, say: Say) -> None:
    """Install Outrider on a cluster that runs, apply both services and wait until they are ready.

    Raises:
        ClusterError: something did not come up; the message says what the operator logged.
    """
    say("installing the CRD, the operator's service account and its rights")
    operator.install(cluster)
    say("starting the operator under that account, and applying two services")
    operator.start(cluster, SETTINGS)
    cluster.add_scrape_target("outrider", f"127.0.0.1:{cluster.port('outrider-metrics')}")
    cluster.kubectl("create", "namespace", scenario.NAMESPACE)
    cluster.kubectl("apply", "-f", str(EXAMPLE), "-f", str(SECOND))
    views = [ServiceView(cluster, scenario.NAMESPACE, name) for name in (scenario.SERVICE, scenario.SECOND_SERVICE)]
    try:
        for view in views:
            cluster.wait_until(f"ready service {view.name}", lambda view=view: _serves(view), READY_S)  # type: ignore[misc]
    except ClusterError as error:
        log = cluster.logs / f"{operator.PROCESS}.log"
        raise ClusterError(f"{error.message}. The operator's last lines:\n{last_lines(log)}", error.remedy) from error


def _serves(view: ServiceView) -> bool:
    """Ready, and scaled by an autoscaler that is there: the observer starts from complete facts."""
    return view.condition("Ready")[0] == "True" and bool(view.get("hpa", f"keda-hpa-{view.name}"))
