"""The result of ``outrider predict``: as a document, as tables and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from outrider.core.interference import DEFAULT_SPREAD
from outrider.core.law import Arm
from outrider.core.outlook import BEST, NO_DRAFTER, Expected

SATURATED = "—"


def document(
    arms: Sequence[Expected],
    loads: Sequence[float],
    *,
    largest_measured: float,
    tpot_objective_s: float | None,
    total_rps: float | None,
) -> dict[str, Any]:
    """All numbers, times in seconds and rates in requests a second of one engine; null past saturation."""
    base = next(one.arm for one in arms if one.name == NO_DRAFTER)
    return {
        "loads": list(loads),
        "tpotObjectiveSeconds": tpot_objective_s,
        "totalLoad": total_rps,
        "arms": [
            {
                "name": one.name,
                "numSpeculativeTokens": one.num_speculative_tokens,
                "saturationRps": one.arm.saturation_rps,
                "breakEvenRps": one.break_even_rps,
                **_within(one.arm, tpot_objective_s, total_rps),
                "points": [_point(one.arm, base, load, largest_measured) for load in loads],
            }
            for one in arms
        ],
    }


def _within(arm: Arm, tpot_objective_s: float | None, total_rps: float | None) -> dict[str, Any]:
    """The 95th percentile counts, with the spread that a recorded chat trace gives."""
    if tpot_objective_s is None or total_rps is None:
        return {}
    return {
        "rateWithinObjectiveRps": arm.rate_within_rps(tpot_objective_s, DEFAULT_SPREAD),
        "replicas": arm.replicas(total_rps, tpot_objective_s, DEFAULT_SPREAD),
    }


def _point(arm: Arm, base: Arm, load: float, largest_measured: float) -> dict[str, Any] | None:
    point, other = arm.at(load), base.at(load)
    if point is None:
        return None
    return {
        "latencySeconds": point.latency_s,
        "ttftSeconds": point.ttft_s,
        "tpotSeconds": point.tpot_s,
        "batch": point.batch,
        "speedup": None if other is None else other.latency_s / point.latency_s,
        "extrapolated": point.batch > largest_measured,
    }


def show(result: dict[str, Any], *, wide: bool) -> None:
    """Print the tables; ``wide`` has batch, first token and speed-up beside latency."""
    console = Console(soft_wrap=True)
    table = Table(title="Mean latency by load of one engine", caption=_legend(wide))
    table.add_column("req/s", justify="right")
    for arm in result["arms"]:
        table.add_column(arm["name"], justify="right")
    for row, load in enumerate(result["loads"]):
        points = [arm["points"][row] for arm in result["arms"]]
        least = min((point["latencySeconds"] for point in points if point), default=None)
        table.add_row(f"{load:g}", *(_cell(point, least, wide) for point in points))
    console.print(table)
    console.print(_summary(result))


def _legend(wide: bool) -> str:
    cell = (
        "seconds, time per output token, [batch, first token, speed-up]" if wide else "seconds, time per output token"
    )
    return f"{cell}; bold: the lowest; {SATURATED}: saturated; *: beyond the measured batches"


def _cell(point: dict[str, Any] | None, least: float | None, wide: bool) -> str:
    if point is None:
        return SATURATED
    text = f"{point['latencySeconds']:.2f} s {point['tpotSeconds'] * 1e3:.1f} ms"
    if wide:
        speedup = "" if point["speedup"] is None else f" {point['speedup']:.2f}x"
        text += f"\nB {point['batch']:.1f} {point['ttftSeconds'] * 1e3:.0f} ms{speedup}"
    text += "*" if point["extrapolated"] else ""
    return f"[bold]{text}[/bold]" if point["latencySeconds"] == least else text


def _summary(result: dict[str, Any]) -> Table:
    table = Table(title="Each way to run an engine")
    for heading in ("arm", "saturation req/s", "break-even req/s"):
        table.add_column(heading, justify="left" if heading == "arm" else "right")
    counted = result["totalLoad"] is not None
    if counted:
        table.add_column(f"req/s within {result['tpotObjectiveSeconds'] * 1e3:g} ms", justify="right")
        table.add_column(f"engines for {result['totalLoad']:g} req/s", justify="right")
    for arm in result["arms"]:
        cells = [arm["name"], f"{arm['saturationRps']:.1f}", _break_even(arm)]
        if counted:
            replicas = "none helps" if arm["replicas"] is None else str(arm["replicas"])
            cells += [f"{arm['rateWithinObjectiveRps']:.1f}", replicas]
        table.add_row(*cells, style="bold" if arm["name"] == BEST else None)
    return table


def _break_even(arm: dict[str, Any]) -> str:
    if arm["name"] == NO_DRAFTER:
        return ""
    rate = arm["breakEvenRps"]
    return "none: always faster" if rate is None else "never faster" if rate == 0.0 else f"{rate:.1f}"


def draw(result: dict[str, Any], path: Path) -> None:
    """Latency over load, a line an arm, as SVG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for arm in result["arms"]:
        known = [(load, point) for load, point in zip(result["loads"], arm["points"], strict=True) if point]
        loads, latencies = [load for load, _ in known], [point["latencySeconds"] for _, point in known]
        line = "k--" if arm["name"] == NO_DRAFTER else "-"
        axes.plot(loads, latencies, line, marker="o", markersize=3, label=arm["name"])
    axes.set(xlabel="requests a second of one engine", ylabel="mean latency, s", title="Latency by load and K")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, format="svg")
