"""The plot of the page, as SVG that does not differ between two runs of the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "outrider"

from matplotlib import pyplot as plt  # noqa: E402

from benchmarks.gpu.compare import Compared  # noqa: E402

REACH_PERCENT = 5.0


def write(compared: Sequence[Compared], plain: Sequence[Compared], folder: Path) -> None:
    """Error of throughput, with and without what the calibration adds to the simulator."""
    figure, axes = plt.subplots(figsize=(8.0, 3.6), layout="constrained")
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
    axes.set_xticks(list(places), [f"{one.arm}\n{one.level}" for one in compared])
    axes.legend(fontsize=7)
    figure.savefig(folder / "gpu-simulator.svg", metadata={"Date": None})
    plt.close(figure)
