"""Whether a fault that was put in raises its alert: the expression of the rule, asked of the cluster's Prometheus over
what operator and engines really export.

For how long it must hold before somebody is woken is left out: minutes, and `test_alerts.py` tries that on made-up
series.
"""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Sequence
from functools import cache

import yaml

from tests.testbed.cluster import Cluster
from tests.testbed.places import REPOSITORY
from tests.testbed.service import ServiceView

ANSWER_S = 60.0
"""Prometheus may be slow to answer where many share a core."""
RULES = REPOSITORY / "charts" / "outrider" / "files" / "alerts.yaml"


@cache
def expressions() -> dict[str, str]:
    """By alert, as the chart installs them."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def services(cluster: Cluster, alert: str) -> set[tuple[str, str]]:
    """Namespace and name of each service for which the alert's expression holds now."""
    return series(cluster, expressions()[alert])


def series(cluster: Cluster, promql: str) -> set[tuple[str, str]]:
    """Namespace and name of each service that an expression has an answer for now; of a target that gives its own
    namespace, as the operator's does, that of the metric."""
    query = urllib.parse.urlencode({"query": promql})
    with urllib.request.urlopen(f"{cluster.prometheus_url}/api/v1/query?{query}", timeout=ANSWER_S) as answer:
        found = json.load(answer)["data"]["result"]
    metrics = [one["metric"] for one in found]
    return {(one.get("exported_namespace", one.get("namespace", "")), one.get("service", "")) for one in metrics}


def holds(view: ServiceView, alert: str) -> bool:
    """Whether the alert's expression holds for a service now."""
    return (view.namespace, view.name) in services(view.cluster, alert)


def alerted(view: ServiceView, alerts: Sequence[str], *others: ServiceView) -> None:
    """Wait until each of the alerts holds for a service, and for none of the others: it may hold for those too for a
    moment, as where a scrape was late."""
    assert alerts, "the failure names no alert"
    well = {(other.namespace, other.name) for other in others}
    for alert in alerts:

        def alone(alert: str = alert) -> bool:
            found = services(view.cluster, alert)
            return (view.namespace, view.name) in found and not found & well

        what = f"{alert} for {view.namespace}/{view.name}" + (f", and not for {sorted(well)}," if well else "")
        view.cluster.wait_until(what, alone)


def quiet(view: ServiceView, alerts: Sequence[str]) -> None:
    """Wait until none of the alerts holds for a service any more."""
    names = " and ".join(alerts)
    view.cluster.wait_until(f"end of {names}", lambda: not any(holds(view, alert) for alert in alerts))


def values(cluster: Cluster, promql: str) -> list[str]:
    """What an expression has as answer now, without labels."""
    query = urllib.parse.urlencode({"query": promql})
    with urllib.request.urlopen(f"{cluster.prometheus_url}/api/v1/query?{query}", timeout=ANSWER_S) as answer:
        return [str(one["value"][1]) for one in json.load(answer)["data"]["result"]]
