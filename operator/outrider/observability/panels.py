"""Grafana's JSON from a few values: panels, rows and variables, laid out on its grid of 24 columns.

Own code in place of grafana-foundation-sdk: that is generated anew for each release of Grafana and not declared stable,
and six kinds of panels need a few dozen keys. What is written is the classic form (schema 39, Grafana 10 and later).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

COLUMNS = 24
SCHEMA_VERSION = 39
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
HEIGHT = 8


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel; ``legend`` names its series, with ``{{label}}``."""

    expr: str
    legend: str = ""
    instant: bool = False
    """Ask for now alone, as tables do."""

    def target(self, index: int) -> dict[str, Any]:
        """As Grafana has it."""
        table = {"format": "table"} if self.instant else {}
        return {
            "datasource": DATASOURCE,
            "refId": chr(ord("A") + index),
            "expr": self.expr,
            "legendFormat": self.legend or "__auto",
            "instant": self.instant,
            "range": not self.instant,
            **table,
        }


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. Units are Grafana's: ``s``, ``percentunit`` (0 to 1), ``short``, ``reqps`` and so on."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    width: int = 8
    height: int = HEIGHT
    axis: str = ""
    """What the numbers count, at the axis of a time series whose unit does not say it: ``none`` and ``short``."""
    empty: str = ""
    """What it means that there are no series, where nothing has to be wrong then; shown in their place."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """More of ``fieldConfig.defaults``."""
    overrides: tuple[Mapping[str, Any], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    transformations: tuple[Mapping[str, Any], ...] = ()

    def as_json(self, identity: int, x: int, y: int) -> dict[str, Any]:
        """As Grafana has it, at a place of the grid."""
        defaults = {"unit": self.unit, **self.defaults}
        if self.axis:
            defaults["custom"] = {**self.defaults.get("custom", {}), "axisLabel": self.axis}
        if self.empty:
            defaults["noValue"] = self.empty
        return {
            "id": identity,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "fieldConfig": {"defaults": defaults, "overrides": list(self.overrides)},
            "options": {**_OPTIONS.get(self.kind, {}), **self.options},
            "targets": [query.target(index) for index, query in enumerate(self.queries)],
            "transformations": list(self.transformations),
        }


_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "area",
        "textMode": "auto",
    },
}


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading, in rows of the grid."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of the dashboard: a query of label values, or with ``text`` something to type in."""

    name: str
    label: str
    query: str = ""
    text: str | None = None
    many: bool = False

    def as_json(self) -> dict[str, Any]:
        """As Grafana has it."""
        if self.text is not None:
            value = {"text": self.text, "value": self.text}
            return {"type": "textbox", "name": self.name, "label": self.label, "query": self.text, "current": value}
        choice = {"multi": True, "includeAll": True, "allValue": ".+"} if self.many else {}
        current = {"current": {"text": ["All"], "value": ["$__all"]}} if self.many else {}
        return {
            "type": "query",
            "name": self.name,
            "label": self.label,
            "datasource": DATASOURCE,
            "query": {"query": self.query, "refId": self.name},
            "definition": self.query,
            "refresh": 2,
            "sort": 1,
            **choice,
            **current,
        }


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard; its address in Grafana keeps ``uid`` for life."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels, in their order."""
        return tuple(panel for row in self.rows for panel in row.panels)

    def as_json(self) -> dict[str, Any]:
        """As Grafana has it."""
        source = {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus"}
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["outrider"],
            "schemaVersion": SCHEMA_VERSION,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "",
            "templating": {"list": [source, *(variable.as_json() for variable in self.variables)]},
            "annotations": {"list": []},
            "links": [
                {"type": "dashboards", "title": "Outrider", "tags": ["outrider"], "asDropdown": True, "keepTime": True}
            ],
            "panels": _laid_out(self.rows),
        }


def _laid_out(rows: Sequence[Row]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        place = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        found.append(
            {
                "id": len(found) + 1,
                "type": "row",
                "title": row.title,
                "gridPos": place,
                "collapsed": False,
                "panels": [],
            }
        )
        y += 1
        x, tallest = 0, 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            found.append(panel.as_json(len(found) + 1, x, y))
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest
    return found


STACKED: Mapping[str, Any] = {"custom": {"stacking": {"mode": "normal"}, "fillOpacity": 30, "lineWidth": 1}}
"""Areas on top of each other."""
STEPS: Mapping[str, Any] = {"custom": {"lineInterpolation": "stepAfter"}, "decimals": 0}
"""Whole numbers that hold until they change."""


def dashed(pattern: str) -> Mapping[str, Any]:
    """An override that draws series whose name fits as a limit: dashed, in red."""
    return {
        "matcher": {"id": "byRegexp", "options": pattern},
        "properties": [
            {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [10, 10]}},
            {"id": "color", "value": {"mode": "fixed", "fixedColor": "red"}},
        ],
    }


def stat(title: str, description: str, unit: str, expr: str, *, width: int = 4, **defaults: Any) -> Panel:
    """One number, with its course behind it."""
    return Panel(title, description, unit, (Query(expr),), kind="stat", width=width, height=4, defaults=defaults)
