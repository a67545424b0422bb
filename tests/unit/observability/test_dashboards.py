"""Dashboards as files: complete, laid out without overlap, and asking only for metrics that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, Counter

import outrider.telemetry
from outrider.core import engine_metrics
from outrider.observability import alerts
from outrider.observability.__main__ import DASHBOARDS, files, main
from outrider.observability.panels import COLUMNS, DATASOURCE, Dashboard, Panel, Query, Row

ROOT = Path(__file__).parents[3]
COMMITTED = ROOT / "charts" / "outrider" / "files"
PANELS = [
    pytest.param(dashboard, panel, id=f"{dashboard.uid}: {row.title}: {panel.title}")
    for dashboard in DASHBOARDS
    for row in dashboard.rows
    for panel in row.panels
]
OF_EVERY_PROCESS = {"process_resident_memory_bytes", "process_cpu_seconds_total"}
"""What the Prometheus client tells of a process that has nothing of its own to do with it."""
NAME = re.compile(r"(?:outrider|vllm|process)[_:][a-z_:]+[a-z]")
LABELS = {"outrider_dev_service"}
ENDED = {"outrider_trials_ended_total"}


def known() -> set[str]:
    """Every metric that engines and the operator export, with the suffixes of histograms."""
    found = set(OF_EVERY_PROCESS)
    for family in vars(engine_metrics).values():
        for name in family if isinstance(family, tuple) else ():
            found |= {name, *(name + suffix for suffix in ("_bucket", "_count", "_sum"))}
    for one in REGISTRY.collect():
        if one.name.startswith("outrider_"):
            names = {one.name}
            if one.type == "counter":
                names = {f"{one.name}_total"}
            elif one.type == "histogram":
                names = {one.name + suffix for suffix in ("_bucket", "_count", "_sum")}
            found |= names
    return found


def asked(expression: str) -> set[str]:
    """Names of metrics in an expression, without its labels and their values."""
    bare = re.sub(r'(?<!__name__=~)"[^"]*"', '""', expression)
    bare = re.sub("serving_outrider_dev_(service|track)", "", bare)
    return set(NAME.findall(bare))


def expressions() -> Iterator[tuple[str, str]]:
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            for query in panel.queries:
                yield f"{dashboard.uid}: {panel.title}", query.expr
        for variable in dashboard.variables:
            if variable.query:
                yield f"{dashboard.uid}: variable {variable.name}", variable.query
    for alert in alerts.ALERTS:
        yield alert.name, alert.expression


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_every_metric_that_is_asked_for_exists(where: str, expression: str) -> None:
    names = asked(expression)
    assert names or expression == "vector(1)", where
    assert sorted(names - known()) == [], where


def test_a_metric_that_nobody_exports_is_noticed() -> None:
    assert asked("sum(rate(outrider_no_such_total[5m]))") - known() == {"outrider_no_such_total"}
    assert asked('{__name__=~"vllm:no_such|vllm:kv_cache_usage_perc"}') - known() == {"vllm:no_such"}


def test_the_files_are_those_that_are_committed() -> None:
    assert files() == {name: (COMMITTED / name).read_text(encoding="utf-8") for name in files()}
    on_disk = {str(path.relative_to(COMMITTED)) for path in COMMITTED.rglob("*") if path.is_file()}
    assert {path for path in on_disk if path == "alerts.yaml" or path.startswith("dashboards/")} == set(files())


def test_they_are_written_where_asked(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 0
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == set(files())


@pytest.mark.parametrize(("dashboard", "panel"), PANELS)
def test_a_panel_says_what_it_shows_and_in_which_unit(dashboard: Dashboard, panel: Panel) -> None:
    one = next(
        each for each in dashboard.as_json()["panels"]
        if each["title"] == panel.title and each.get("description") == panel.description
    )  # fmt: skip
    assert one["description"].endswith(".")
    assert one["fieldConfig"]["defaults"]["unit"]
    assert one["datasource"] == DATASOURCE
    assert one["targets"]
    assert all(target["datasource"] == DATASOURCE for target in one["targets"])
    letters = [target["refId"] for target in one["targets"]]
    assert len(set(letters)) == len(letters)


@pytest.mark.parametrize(("dashboard", "panel"), PANELS)
def test_numbers_without_a_unit_say_at_the_axis_what_they_count(dashboard: Dashboard, panel: Panel) -> None:
    if panel.kind == "timeseries":
        assert bool(panel.axis) == (panel.unit in ("none", "short")), "the unit says it, or the axis does"
        shown = panel.as_json(1, 0, 0)["fieldConfig"]["defaults"]
        assert shown.get("custom", {}).get("axisLabel", "") == panel.axis
        assert panel.defaults.get("custom", {}).items() <= shown.get("custom", {}).items()


def only_after_an_event() -> set[str]:
    """The operator's counters by reason: there is no series until something happened for that reason. And what it
    tells of trials: there may be none."""
    metrics = [one for one in vars(outrider.telemetry).values() if isinstance(one, Counter)]
    of_trials = {family.name for family in REGISTRY.collect() if family.name.startswith("outrider_trial_")}
    return {f"{one._name}_total" for one in metrics if "reason" in one._labelnames} | of_trials | ENDED


@pytest.mark.parametrize(("dashboard", "panel"), PANELS)
def test_a_panel_that_is_empty_while_all_is_well_says_so(dashboard: Dashboard, panel: Panel) -> None:
    names = set[str]().union(*(asked(query.expr) for query in panel.queries))
    rightly = names <= only_after_an_event() or "not True" in panel.title
    assert bool(panel.empty) == rightly
    assert panel.as_json(1, 0, 0)["fieldConfig"]["defaults"].get("noValue", "") == panel.empty


def test_there_are_counters_without_series() -> None:
    assert "outrider_delivery_failures_total" in only_after_an_event()


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.uid)
def test_panels_lie_side_by_side_and_none_over_another(dashboard: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    panels = dashboard.as_json()["panels"]
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= COLUMNS
        assert not cells & taken, panel["title"]
        taken |= cells
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.uid)
def test_every_variable_in_a_query_is_one_of_the_dashboard(dashboard: Dashboard) -> None:
    text = json.dumps(dashboard.as_json())
    variables = {variable["name"] for variable in dashboard.as_json()["templating"]["list"]}
    used = {name for name in re.findall(r"\$\{?([a-z_]\w*)", text) if not name.startswith("__")}
    assert used == variables


def test_series_of_one_panel_get_letters_of_their_own() -> None:
    panel = Panel("One", "Two.", "s", (Query("a"), Query("b", instant=True)))
    dashboard = Dashboard("x", "X", "Y.", (), (Row("R", (panel,)),))
    targets = dashboard.as_json()["panels"][1]["targets"]
    assert [(target["refId"], target["instant"], target["range"]) for target in targets] == [
        ("A", False, True),
        ("B", True, False),
    ]
