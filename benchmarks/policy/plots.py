"""The plots of the page, as SVG that does not differ between two runs of the same figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "outrider"

from matplotlib import pyplot as plt  # noqa: E402

from benchmarks.policy.headline import Table  # noqa: E402
from benchmarks.policy.traces import BASELINES, Frontiers  # noqa: E402

CAPTIONS: Mapping[str, str] = {
    "policy-load": "Token goodput over the oracle's by load, every arm",
    "policy-adaptation": "After a step of acceptance: token goodput over the oracle's by quarter of a minute",
    "policy-headroom": "What is to be gained at each load: no drafter, the best constant K in hindsight, Outrider",
    "policy-traces": "Traces: share of requests that miss an objective against replica-hours; each baseline at several"
    " fixed targets, Outrider at the one it sets",
}
STYLES: Mapping[str, dict[str, Any]] = {
    "outrider": {"color": "black", "linewidth": 2.2},
    "no-drafter": {"color": "tab:gray", "linestyle": "--"},
    "vllm-table": {"color": "tab:green"},
    "acceptance-threshold": {"color": "tab:orange"},
    "smartspec": {"color": "tab:blue"},
    "ema": {"color": "tab:red"},
}


def write(table: Table, traces: Frontiers, folder: Path) -> None:
    """All of them."""
    for name, draw in (("policy-load", _load), ("policy-adaptation", _adaptation), ("policy-headroom", _headroom)):
        figure, axes = plt.subplots(figsize=(8.0, 4.2), layout="constrained")
        draw(table, axes)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)
    figure = _traces(traces)
    figure.savefig(folder / "policy-traces.svg", metadata={"Date": None})
    plt.close(figure)


def _load(table: Table, axes: Any) -> None:
    found = table.groups("steady")
    levels = [table.level(case) for case in found]
    for arm in table.arms(found[0]):
        if arm != "oracle":
            style = STYLES.get(
                arm, {"color": str(0.55 + 0.05 * int(arm[-1])), "linewidth": 0.9} if arm[-1].isdigit() else {}
            )
            axes.plot(levels, [median(table.ratio(case, arm, "oracle")) for case in found], label=arm, **style)
    axes.set(xscale="log", xlabel="clients", ylabel="token goodput / oracle", ylim=(0.0, 1.18))
    axes.legend(fontsize=7, ncols=2)


def _adaptation(table: Table, axes: Any) -> None:
    case = "adapt-up-64" if "adapt-up-64" in table.groups("adapt") else table.groups("adapt")[-1]
    seed = table.seeds(case)[0]
    bound = table.at(case, "oracle", seed).rates
    for arm in table.arms(case):
        if arm != "oracle":
            shares = [mine / best for (_, mine), (_, best) in zip(table.at(case, arm, seed).rates, bound, strict=True)]
            axes.plot([time_s for time_s, _ in bound], shares, label=arm, **STYLES.get(arm, {}))
    axes.set(xlabel=f"seconds after the step ({case})", ylabel="token goodput / oracle", ylim=(0.0, 1.15))
    axes.axvline(0.0, color="black", linewidth=0.5)
    axes.legend(fontsize=7)


def _headroom(table: Table, axes: Any) -> None:
    found = table.groups("steady")
    best = table.best_single_constant(found)
    places = range(len(found))
    for offset, (arm, label) in enumerate(
        (("no-drafter", "no drafter"), (best, f"{best}, best for all of them"), ("outrider", "Outrider"))
    ):
        heights = [median(table.ratio(case, arm, "oracle")) for case in found]
        colour = ("tab:gray", "tab:blue", "black")[offset]
        axes.bar([place + 0.27 * (offset - 1) for place in places], heights, 0.25, label=label, color=colour)
    axes.axhline(1.0, color="tab:red", linewidth=0.8)
    axes.set(xlabel="clients", ylabel="token goodput / oracle", ylim=(0.0, 1.3))
    axes.set_xticks(list(places), [f"{table.level(case):g}" for case in found])
    axes.legend(fontsize=7, loc="upper left", ncols=3)


def _traces(traces: Frontiers) -> Any:
    columns = min(2, len(traces.traces))
    rows = -(-len(traces.traces) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(4.6 * columns, 3.4 * rows + 0.6), layout="constrained", squeeze=False
    )
    for axes, name in zip(grid.flat, traces.traces, strict=False):
        seed = traces.seeds(name)[0]
        for arm in BASELINES:
            style = STYLES.get(arm, {"color": str(0.45 + 0.07 * int(arm[-1])) if arm[-1].isdigit() else None})
            played = traces.baseline(name, arm, seed)
            axes.plot(
                [one.replica_hours for one in played],
                [100.0 * one.misses for one in played],
                marker=".",
                linewidth=0.9,
                label=arm,
                **{key: value for key, value in style.items() if key != "linewidth"},
            )
        mine = traces.outrider(name, seed)
        axes.plot(
            [mine.replica_hours], [100.0 * mine.misses], "*", color="black", markersize=12, zorder=3, label="outrider"
        )
        axes.set(title=name, xlabel="replica-hours", ylabel="requests that miss, %", yscale="log")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=7)
    return figure
