"""The plots of the page, as SVG that does not differ between two runs of the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "outrider"

from matplotlib import pyplot as plt  # noqa: E402

from benchmarks.gpu.compare import Compared  # noqa: E402
from benchmarks.gpu.headline import FIXED, NONE, OUTRIDER, by_level  # noqa: E402
from benchmarks.gpu.rows import Results  # noqa: E402

REACH_PERCENT = 5.0


def write(compared: Sequence[Compared], plain: Sequence[Compared], folder: Path) -> None:
    """Error of throughput, with and without what the calibration adds to the simulator."""
    figure, axes = plt.subplots(figsize=(9.0, 3.6), layout="constrained")
    places = range(len(compared))
    for offset, label, colour, many in (
        (-0.2, "as the other benchmarks use it", "tab:gray", plain),
        (0.2, "scheduled ahead, prompts beside decoding", "black", compared),
    ):
        heights = [100.0 * one.error("tokens_per_second") for one in many]
        axes.bar([place + offset for place in places], heights, 0.38, label=label, color=colour)
    axes.axhspan(-REACH_PERCENT, REACH_PERCENT, color="tab:green", alpha=0.15, linewidth=0)
    axes.axhline(0.0, color="black", linewidth=0.5)
    axes.set(ylabel="throughput of the simulator\nagainst the GPU, %")
    new = [not place or compared[place - 1].arm != one.arm for place, one in enumerate(compared)]
    labels = [f"{one.level}\n{one.arm if first else ''}" for one, first in zip(compared, new, strict=True)]
    axes.set_xticks(list(places), labels, fontsize=8)
    axes.legend(fontsize=7)
    figure.savefig(folder / "gpu-simulator.svg", metadata={"Date": None})
    plt.close(figure)


def write_worth(boots: Sequence[Results], folder: Path) -> None:
    """Tokens a second of each round, over the mean of the best fixed K or no drafter at that level."""
    many = by_level(boots)
    levels = sorted({level for level, _ in many})
    arms = [arm for arm in (NONE, *FIXED, "threshold", OUTRIDER) if (levels[0], arm) in many]
    figure, axes = plt.subplots(figsize=(8.0, 3.8), layout="constrained")
    for number, arm in enumerate(arms):
        for place, level in enumerate(levels):
            best = max(fmean(many[level, one]) for one in arms if one in (NONE, *FIXED) and (level, one) in many)
            rounds = [100.0 * one / best for one in many.get((level, arm), ())]
            x = place + 0.13 * (number - (len(arms) - 1) / 2)
            colour = "black" if arm == OUTRIDER else f"C{number}"
            axes.plot([x] * len(rounds), rounds, "_", markersize=9, color=colour, label=arm if not place else None)
    axes.axhline(100.0, color="black", linewidth=0.5)
    axes.axhline(98.0, color="tab:green", linewidth=0.8, linestyle="--", label="reach: 98 %")
    axes.set(xlabel="requests in flight", ylabel="tokens a second, % of the best\nfixed K or no drafter (mean)")
    axes.set_xticks(range(len(levels)), [str(level) for level in levels])
    axes.legend(fontsize=7, ncols=2, loc="lower right")
    figure.savefig(folder / "gpu-worth.svg", metadata={"Date": None})
    plt.close(figure)
