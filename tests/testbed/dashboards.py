"""What a dashboard would ask, asked of a cluster's Prometheus: for tests, and for pictures without a Grafana."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.observability.__main__ import DASHBOARDS
from outrider.observability.panels import Dashboard, Panel, Query, Variable
from tests.testbed.cluster import Cluster

RATE_INTERVAL = "10s"
"""Grafana takes four scrapes of its data source's interval, or more."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One query of one panel."""

    dashboard: Dashboard
    panel: Panel
    query: Query

    def __str__(self) -> str:
        return f"{self.dashboard.uid}: {self.panel.title}: {self.query.legend or self.query.expr[:40]}"


def every_query() -> Iterator[Asked]:
    """All queries of all dashboards."""
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            for query in panel.queries:
                yield Asked(dashboard, panel, query)


def filled_in(expression: str, variables: Mapping[str, str]) -> str:
    """An expression as Grafana sends it."""
    for name, value in {"__rate_interval": RATE_INTERVAL, **variables}.items():
        expression = expression.replace(f"${name}", value)
    return expression


def answer(cluster: Cluster, query: str) -> list[dict[str, Any]]:
    """Elements of an instant query that have a number; a fault of the query is an error with Prometheus' words."""
    return [one for one in elements(cluster, query) if math.isfinite(float(one["value"][1]))]


def elements(cluster: Cluster, query: str) -> list[dict[str, Any]]:
    """Elements of an instant query, whatever their values are."""
    found: list[dict[str, Any]] = _get(cluster, "query", {"query": query})["result"]
    return found


def course(cluster: Cluster, query: str, seconds: float, until_s: float, points: int = 240) -> list[dict[str, Any]]:
    """Series of so many seconds up to a moment, Unix time."""
    asked = {"query": query, "start": str(until_s - seconds), "end": str(until_s), "step": str(seconds / points)}
    found: list[dict[str, Any]] = _get(cluster, "query_range", asked)["result"]
    return found


def choices(cluster: Cluster, variable: Variable, variables: Mapping[str, str]) -> list[str]:
    """The values that a variable offers: ``label_values(selector, label)`` as Grafana resolves it."""
    selector, label = variable.query.removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
    path = f"label/{label}/values"
    found: list[str] = _get(cluster, path, {"match[]": filled_in(selector, variables)})
    return found


def _get(cluster: Cluster, path: str, asked: Mapping[str, str]) -> Any:
    url = f"{cluster.prometheus_url}/api/v1/{path}?{urllib.parse.urlencode(asked)}"
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            return json.load(reply)["data"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{error.read().decode()}: {asked}") from error
