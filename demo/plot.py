"""The demo's picture: five panels over one axis of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # before pyplot: no display is needed, whatever the environment says

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

BIN_S = 5.0
BLUE, ORANGE, GREEN, RED, GREY = "#1f5fa8", "#d9730d", "#2b8a3e", "#c92a2a", "#868e96"
LEGEND_AT = (1.07, 1.0)

Timeline = Sequence[dict[str, Any]]


def draw(
    path: Path, timeline: Timeline, arrivals_s: Sequence[float], document: dict[str, Any], objective_ms: float
) -> None:
    """Write the picture of the main service as a PNG."""
    figure, axes = plt.subplots(5, 1, figsize=(12.5, 12.5), sharex=True, constrained_layout=True)
    name, seconds = document["service"], document["scenario"]["seconds"]
    figure.suptitle(
        f"Service {name}: speculation and replicas steered while it serves\n"
        f"simulated engines, {document['scenario']['dilation']:g} times slower than the measured H100",
        fontsize=13,
    )
    _load(axes[0], timeline, arrivals_s, seconds)
    _acceptance(axes[1], timeline)
    changes = [one for one in document["changes"] if one["service"] == name]
    _speculation(axes[2], timeline, changes, document["engine_pods_replaced_by_tuning"])
    _tpot(axes[3], timeline, objective_ms)
    _replicas(axes[4], timeline)
    for axis in axes:
        axis.axvline(document["drop_s"], color=RED, linestyle="--", linewidth=1.2)
        axis.grid(axis="y", alpha=0.25)
        axis.margins(x=0)
    axes[0].annotate(
        "acceptance drops", (document["drop_s"], 1.0), xycoords=("data", "axes fraction"), xytext=(4, 3),
        textcoords="offset points", color=RED, fontsize=9,
    )  # fmt: skip
    axes[-1].set_xlabel("seconds from the start of the load")
    axes[-1].set_xlim(0, seconds)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _load(axis: Axes, timeline: Timeline, arrivals_s: Sequence[float], seconds: float) -> None:
    edges = [BIN_S * number for number in range(int(seconds / BIN_S) + 1)]
    weights = [1.0 / BIN_S] * len(arrivals_s)
    axis.hist(arrivals_s, bins=edges, weights=weights, color=BLUE, alpha=0.35, label="arrivals")
    axis.set_ylabel("requests a second")
    other = axis.twinx()
    _line(other, timeline, lambda one: _sum(one["running"], one["waiting"]), color=ORANGE, label="in flight")
    other.set_ylabel("requests in flight")
    other.set_ylim(bottom=0)
    axis.set_title("Load: the Azure conversation trace, warped to this shape", loc="left", fontsize=10, pad=16)
    _legend(axis, other)


def _acceptance(axis: Axes, timeline: Timeline) -> None:
    _line(axis, timeline, lambda one: one["acceptance_length"], color=GREEN, label="acceptance length,\nlast 8 s")
    axis.set_ylabel("tokens a step\nand request")
    axis.set_ylim(bottom=1)
    axis.set_title(
        "What a step yields: accepted draft tokens, and the one of the target model", loc="left", fontsize=10
    )
    _legend(axis)


def _speculation(axis: Axes, timeline: Timeline, changes: Sequence[dict[str, Any]], replaced: int) -> None:
    _line(
        axis, timeline, lambda one: one["speculative_tokens"], color=BLUE, label="K at the mean batch",
        drawstyle="steps-post",
    )  # fmt: skip
    for number, change in enumerate(changes):
        label = "schedule change,\nacknowledged" if number == 0 else None
        axis.axvline(change["recorded_s"], color=GREY, linewidth=1.0, label=label)
    axis.set_ylabel("speculative\ntokens K")
    axis.set_ylim(-0.2, 5.4)
    axis.set_title(f"Speculation, as the engines report it; {replaced} pods replaced for it", loc="left", fontsize=10)
    _legend(axis)


def _tpot(axis: Axes, timeline: Timeline, objective_ms: float) -> None:
    _line(
        axis, timeline, lambda one: None if one["tpot_p95_s"] is None else 1e3 * one["tpot_p95_s"], color=ORANGE,
        label="95th percentile,\nrequests that ended\nin the last 15 s",
    )  # fmt: skip
    axis.axhline(objective_ms, color=RED, linewidth=1.2, label=f"objective, {objective_ms:g} ms")
    axis.set_yscale("log")
    axis.set_yticks([10, 20, 40, 80, 160, 320], labels=["10", "20", "40", "80", "160", "320"])
    axis.minorticks_off()
    axis.set_ylabel("ms a token")
    axis.set_title("Time per output token against its objective", loc="left", fontsize=10)
    _legend(axis)


def _replicas(axis: Axes, timeline: Timeline) -> None:
    _line(axis, timeline, lambda one: one["replicas"], color=BLUE, label="replicas wanted", drawstyle="steps-post")
    _line(
        axis, timeline, lambda one: one["ready"], color=GREEN, label="replicas ready", drawstyle="steps-post",
        linestyle=":",
    )  # fmt: skip
    axis.set_ylim(0, max(one["replicas"] for one in timeline) + 1)
    axis.set_ylabel("replicas")
    other = axis.twinx()
    _line(
        other,
        timeline,
        lambda one: one["target"],
        color=GREY,
        label="target of the\nautoscaler",
        drawstyle="steps-post",
    )
    other.set_ylabel("requests in flight\nper replica")
    other.set_ylim(bottom=0)
    axis.set_title("Replicas, and the load that one may carry", loc="left", fontsize=10)
    _legend(axis, other)


def _line(axis: Axes, timeline: Timeline, value: Callable[[dict[str, Any]], float | None], **style: Any) -> None:
    """One line; where there is no value the line is broken."""
    values = [value(one) for one in timeline]
    axis.plot([one["time_s"] for one in timeline], [float("nan") if v is None else v for v in values], **style)


def _legend(*axes: Axes) -> None:
    """One legend for axes that share a panel, outside to the right."""
    handles: list[Any] = []
    labels: list[Any] = []
    for axis in axes:
        more_handles, more_labels = axis.get_legend_handles_labels()
        handles += more_handles
        labels += more_labels
    axes[0].legend(
        handles, labels, loc="upper left", bbox_to_anchor=LEGEND_AT, frameon=False, fontsize=9, borderaxespad=0.0
    )


def _sum(running: float | None, waiting: float | None) -> float | None:
    return None if running is None else running + (waiting or 0.0)
