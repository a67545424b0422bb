"""Draw the dashboards from their JSON and real data: ``python docs/dashboards/draw.py``, about five minutes.

With ``candidate`` behind it: the row about a candidate alone, over the whole trial of a better draft.

No Grafana can be had where this project is built, so these are drawings: the panels, their places, queries, units and
legends are the JSON's, the data come from the Prometheus of the local cluster, and the look is matplotlib's.
"""

from __future__ import annotations

import re
import sys
import textwrap
import time
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from PIL import Image

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from outrider.observability.__main__ import DASHBOARDS  # noqa: E402
from outrider.observability.service import SERVICE as ONE_SERVICE  # noqa: E402
from outrider.observability.service_trial import TRIAL  # noqa: E402
from tests.testbed import operator  # noqa: E402
from tests.testbed.cluster import Cluster  # noqa: E402
from tests.testbed.dashboards import answer, course, filled_in  # noqa: E402
from tests.testbed.load import Load  # noqa: E402
from tests.testbed.test_dashboards import NAMESPACE, SERVICE, VARIABLES  # noqa: E402
from tests.testbed.test_operator import created, example  # noqa: E402

PART_S = 75.0
"""Each of two parts: a drafter that fits, and one that no longer does."""
COLUMN, LINE = 0.8, 0.42
"""Inches of the grid's columns and lines."""
GAP = 0.18

Series = tuple[str, list[float], list[float]]


def main() -> None:
    """Run a service through a change of its traffic, and draw what the dashboards show of it."""
    with Cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5, nodes=4) as cluster:
        operator.install(cluster)
        operator.start(cluster)
        for view in [created(cluster, namespace) for namespace in (NAMESPACE, "quiet")]:
            cluster.wait_until("ready service", lambda view=view: view.condition("Ready")[0] == "True", 120)
        began_s = time.time()
        with (
            Load(cluster, NAMESPACE, SERVICE, concurrency=40, acceptance=0.8) as load,
            Load(cluster, "quiet", SERVICE, concurrency=4, acceptance=0.6),
        ):
            time.sleep(PART_S)
            load.acceptance = 0.25
            time.sleep(PART_S)
            for dashboard in DASHBOARDS:
                seconds = time.time() - began_s
                figure = draw(cluster, dashboard.as_json(), VARIABLES[dashboard.uid], seconds)
                save(figure, ROOT / "docs" / "dashboards" / f"{dashboard.uid}.png")
                plt.close(figure)
        operator.stop(cluster)


def candidate() -> None:
    """Try a draft that gives a fifth more tokens a step beside three engines, and draw its row of the dashboard."""
    fixed = {"autoscaling": {"mode": "Off", "minReplicas": 3}, "rollout": {"policy": "Canary"}}
    with Cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5, nodes=4) as cluster:
        operator.install(cluster)
        operator.start(cluster)
        view = created(cluster, "tried", **fixed)
        cluster.wait_until("three engines", lambda: len(view.ready_addresses()) == 3, 120)
        cluster.wait_until("stable revision", lambda: "revisions" in view.status(), 120)
        with Load(cluster, "tried", SERVICE, concurrency=16, acceptance=0.6):
            time.sleep(20)
            began_s = time.time() - 15
            speculation = view.resource()["spec"]["speculation"] | {"draft": {"id": "lab/better-20"}}
            view.apply(example("tried", **fixed, speculation=speculation))
            cluster.wait_until("end of the trial", lambda: view.status()["revisions"]["history"], 580)
            sys.stdout.write(cluster.kubectl("get", "sis", "-n", "tried", "-o", "wide").stdout)
            time.sleep(15)
            row = replace(ONE_SERVICE, rows=(TRIAL,)).as_json()
            variables = {**VARIABLES[ONE_SERVICE.uid], "namespace": "tried"}
            save(draw(cluster, row, variables, time.time() - began_s), ROOT / "docs/dashboards/outrider-candidate.png")
        operator.stop(cluster)


def save(figure: Figure, path: Path) -> None:
    """As PNG, in few colours: drawings need no more, and take a third of the room."""
    drawn = BytesIO()
    figure.savefig(drawn, dpi=60)
    Image.open(drawn).convert("RGB").quantize(160).save(path, optimize=True)


def draw(cluster: Cluster, dashboard: Mapping[str, Any], variables: Mapping[str, str], seconds: float) -> Figure:
    """All panels at their places."""
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"])
    figure = plt.figure(figsize=(24 * COLUMN, (height + 1) * LINE), facecolor="#f4f5f5")
    figure.text(0.01, 1 - 0.6 / (height + 1), dashboard["title"], fontsize=15, weight="bold", va="center")
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        left, bottom = place["x"] / 24, 1 - (place["y"] + 1 + place["h"]) / (height + 1)
        width, tall = place["w"] / 24, place["h"] / (height + 1)
        if panel["type"] == "row":
            figure.text(left + 0.01, bottom + tall / 2, f"▾ {panel['title']}", fontsize=11, weight="bold", va="center")
            continue
        inside = (0.035, 0.3 * 8 / place["h"] * tall if place["h"] < 6 else 0.2 * tall)
        axes = figure.add_axes(
            (left + inside[0], bottom + inside[1], width - inside[0] - GAP / 24, tall - inside[1] - 1.1 / (height + 1))
        )
        axes.set_title(panel["title"], fontsize=9, loc="left", weight="bold")
        _DRAWN[panel["type"]](axes, panel, cluster, variables, seconds)
    return figure


def fetched(panel: Mapping[str, Any], cluster: Cluster, variables: Mapping[str, str], seconds: float) -> list[Series]:
    """The series of a panel: legend, minutes from the start, values."""
    found: list[Series] = []
    first = time.time() - seconds
    for target in panel["targets"]:
        for one in course(cluster, filled_in(target["expr"], variables), seconds, first + seconds):
            points = [(float(at), float(value)) for at, value in one["values"]]
            minutes = [round((at - first) / 60, 2) for at, _ in points]  # a panel's queries are asked at one moment
            found.append((legend(target, one["metric"]), minutes, [value for _, value in points]))
    return found


def legend(target: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """As Grafana makes it of the labels."""
    text = target["legendFormat"]
    return "" if text == "__auto" else re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), text)


def shown(value: float, unit: str) -> str:
    """A number in its unit."""
    if unit == "percentunit":
        return f"{100 * value:.0f}%"
    if unit == "s":
        return f"{value:.1f} s" if value >= 1 else f"{1e3 * value:.0f} ms"
    if unit == "currencyUSD":
        return f"${value:.2f}"
    if unit == "bytes":
        return f"{value / 2**20:.0f} MiB"
    return f"{value / 1e3:.1f} k" if value >= 1e3 else f"{value:.3g}"


def lines(axes: Axes, panel: Mapping[str, Any], cluster: Cluster, variables: Mapping[str, str], seconds: float) -> None:
    """A time series, or several stacked."""
    defaults = panel["fieldConfig"]["defaults"]
    custom = defaults.get("custom", {})
    series = fetched(panel, cluster, variables, seconds)
    if not series:
        nothing(axes, defaults)
        return
    limits = [one["matcher"]["options"] for one in panel["fieldConfig"]["overrides"]]
    if "stacking" in custom and series:
        times = sorted({at for _, xs, _ in series for at in xs})
        values = [[dict(zip(xs, ys, strict=True)).get(at, 0.0) for at in times] for _, xs, ys in series]
        axes.stackplot(times, values, labels=[name for name, _, _ in series], alpha=0.6)
    else:
        step = "steps-post" if custom.get("lineInterpolation") == "stepAfter" else "default"
        for name, xs, ys in series:
            limit = any(re.fullmatch(pattern, name) for pattern in limits)
            style = {"color": "red", "linestyle": "--"} if limit else {}
            axes.plot(xs, ys, label=name, linewidth=1.3, drawstyle=step, clip_on=False, **style)
    if not any(value for _, _, ys in series for value in ys):
        axes.set_ylim(0, 1)  # or the line would lie on an axis of hundredths
    if "min" in defaults:
        axes.set_ylim(bottom=defaults["min"])
    if "max" in defaults:
        axes.set_ylim(top=defaults["max"])
    axes.set_xlim(0, seconds / 60)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, defaults["unit"])))
    axes.tick_params(labelsize=7)
    axes.set_ylabel(custom.get("axisLabel", ""), fontsize=7)
    axes.grid(alpha=0.3)
    if any(name for name, _, _ in series):
        axes.legend(fontsize=6.5, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncol=4, frameon=False)


def nothing(axes: Axes, defaults: Mapping[str, Any]) -> None:
    """What Grafana writes where there are no series."""
    axes.set_axis_off()
    text = textwrap.fill(defaults.get("noValue", "No data"), 48)
    axes.text(0.5, 0.5, text, fontsize=8, ha="center", va="center", color="#555555", transform=axes.transAxes)


def number(axes: Axes, panel: Mapping[str, Any], cluster: Cluster, variables: Mapping[str, str], _: float) -> None:
    """One number."""
    axes.axis("off")
    found = answer(cluster, filled_in(panel["targets"][0]["expr"], variables))
    text = shown(float(found[0]["value"][1]), panel["fieldConfig"]["defaults"]["unit"]) if found else "No data"
    axes.text(0.5, 0.4, text, fontsize=20, ha="center", va="center", color="#2f7d32", transform=axes.transAxes)


def cloud(axes: Axes, panel: Mapping[str, Any], cluster: Cluster, variables: Mapping[str, str], seconds: float) -> None:
    """One series against another."""
    across, up = (dict(zip(xs, ys, strict=True)) for _, xs, ys in fetched(panel, cluster, variables, seconds))
    moments = sorted(across.keys() & up.keys())
    points = axes.scatter([across[at] for at in moments], [up[at] for at in moments], c=moments, s=9, cmap="viridis")
    points.axes.set_xlabel(panel["targets"][0]["legendFormat"], fontsize=7)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, "s")))
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)


def history(
    axes: Axes, panel: Mapping[str, Any], cluster: Cluster, variables: Mapping[str, str], seconds: float
) -> None:
    """One coloured line a series."""
    series = sorted(fetched(panel, cluster, variables, seconds), key=lambda one: int(re.sub(r"\D", "", one[0]) or 0))
    if not series:
        nothing(axes, panel["fieldConfig"]["defaults"])
        return
    written = panel["options"]["showValue"] != "never"
    top = max((max(ys) for _, _, ys in series), default=1.0)
    for index, (_, xs, ys) in enumerate(series):
        axes.scatter(xs, [index] * len(xs), c=ys, cmap="BuPu", vmin=-1, vmax=top, marker="s", s=20)
        if ys and written:
            axes.text(seconds / 60 * 1.01, index, f"K {ys[-1]:.0f}", fontsize=6, va="center")
    axes.set_yticks(range(len(series)), [name for name, _, _ in series], fontsize=6)
    axes.set_xlim(0, seconds / 60)
    axes.tick_params(axis="x", labelsize=7)


def table(axes: Axes, panel: Mapping[str, Any], cluster: Cluster, variables: Mapping[str, str], _: float) -> None:
    """Labels, and a column for each query."""
    axes.axis("off")
    names = next(
        (one["options"].get("renameByName", {}) for one in panel["transformations"] if one["id"] == "organize"), {}
    )
    units = {one["matcher"]["options"]: one["properties"][0]["value"] for one in panel["fieldConfig"]["overrides"]}
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    heads: list[str] = []
    for target in panel["targets"]:
        column = names.get(f"Value #{target['refId']}", "")
        for one in answer(cluster, filled_in(target["expr"], variables)):
            labels = dict(sorted(one["metric"].items()))
            row = rows.setdefault(tuple(labels.values()), dict(labels))
            if column:
                row[column] = shown(float(one["value"][1]), units.get(column, "none"))
        heads += [column] if column else []
    heads = [*dict.fromkeys(label for row in rows.values() for label in row if label not in heads), *heads]
    if not rows:
        nothing(axes, panel["fieldConfig"]["defaults"])
    cells = [[row.get(head, "") for head in heads] for _, row in sorted(rows.items())]
    if cells:
        drawn = axes.table(cellText=cells, colLabels=heads, loc="upper left", cellLoc="left", edges="horizontal")
        drawn.auto_set_font_size(False)
        drawn.set_fontsize(6.5 if len(heads) < 6 else 8)


_DRAWN = {"timeseries": lines, "stat": number, "xychart": cloud, "status-history": history, "table": table}

if __name__ == "__main__":
    candidate() if sys.argv[1:] == ["candidate"] else main()
