"""The plots of the page, as SVG that does not differ between two runs of the same figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "outrider"

from matplotlib import pyplot as plt  # noqa: E402

from benchmarks.capacity.cases import STATED_S  # noqa: E402
from benchmarks.capacity.headline import Table  # noqa: E402
from benchmarks.capacity.replays import BASELINES  # noqa: E402

CAPTIONS: Mapping[str, str] = {
    "capacity-frontiers": "Requests that miss an objective against replica-hours, at a cold start of two minutes: each"
    " baseline at its fixed targets, the oracle at several margins, Outrider at the target that it keeps",
    "capacity-day": "The day: replicas over time, Outrider and the fixed in-flight target nearest to it in"
    " replica-hours, and Outrider's target",
    "capacity-constant": "Constant load: replicas under Outrider's target over two hours",
}
STYLES: Mapping[str, dict[str, Any]] = {
    "in-flight": {"color": "tab:blue"},
    "queue-10": {"color": "tab:green", "linestyle": "none", "marker": "s"},
    "kv-80": {"color": "tab:gray", "linestyle": "none", "marker": "d"},
    "request-rate": {"color": "tab:orange"},
    "tokens": {"color": "tab:purple"},
    "oracle": {"color": "tab:red", "linestyle": "--"},
}


def write(table: Table, folder: Path) -> None:
    """All of them."""
    for name, draw in (("capacity-frontiers", _frontiers), ("capacity-day", _day), ("capacity-constant", _constant)):
        figure = draw(table)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)


def _frontiers(table: Table) -> Any:
    cases = table.cases("trace", "day")
    columns = min(2, len(cases))
    rows = -(-len(cases) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(9.2, 3.4 * rows + 0.6), layout="constrained", squeeze=False)
    for axes, case in zip(grid.flat, cases, strict=False):
        for arm in (*BASELINES, "oracle"):
            played = table.of(case, STATED_S, arm, 0)
            look = {"marker": ".", "linewidth": 1.0, **STYLES[arm]}
            axes.plot([one.replica_hours for one in played], [100.0 * one.misses for one in played], label=arm, **look)
        mine = table.outrider(case, STATED_S, 0)
        axes.plot([mine.replica_hours], [100.0 * mine.misses], "*", color="black", markersize=12, label="outrider")
        axes.set(title=case, xlabel="replica-hours", ylabel="requests that miss, %", yscale="symlog")
        axes.set_ylim(bottom=0.0)
    for axes in list(grid.flat)[len(cases) :]:
        axes.set_axis_off()
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=7, fontsize=7)
    return figure


def _day(table: Table) -> Any:
    figure, (above, below) = plt.subplots(2, 1, figsize=(8.0, 5.0), layout="constrained", sharex=True)
    case = table.cases("day")[0]
    mine = table.outrider(case, STATED_S, 0)
    near = min(table.of(case, STATED_S, "in-flight", 0), key=lambda one: abs(one.replica_hours - mine.replica_hours))
    for one, label, colour in (
        (mine, "outrider", "black"), (near, f"in-flight, target {near.setting:g}", "tab:blue"),
    ):  # fmt: skip
        hours = [at_s / 3600.0 for at_s, _, _ in one.replicas]
        above.step(hours, [replicas for _, replicas, _ in one.replicas], where="post", label=label, color=colour)
        below.step(hours, [target for _, _, target in one.replicas], where="post", label=label, color=colour)
    above.set(ylabel="replicas")
    below.set(xlabel="hours of the replay", ylabel="target, requests in flight")
    above.legend(fontsize=7)
    return figure


def _constant(table: Table) -> Any:
    figure, axes = plt.subplots(figsize=(8.0, 3.2), layout="constrained")
    for case in table.cases("constant"):
        one = table.outrider(case, STATED_S, 0)
        axes.step(
            [at_s / 3600.0 for at_s, _, _ in one.replicas], [replicas for _, replicas, _ in one.replicas],
            where="post", label=case,
        )  # fmt: skip
    axes.set(xlabel="hours", ylabel="replicas", ylim=(0.0, None))
    axes.legend(fontsize=7)
    return figure
