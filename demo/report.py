"""What is printed at the end: the arms side by side, where files are, and how to look around."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from demo.page import ARM_TITLES, arm_title
from tests.testbed.cluster import Cluster
from tests.testbed.state import read_state


def arms_table(console: Console, document: Mapping[str, Any]) -> None:
    """Print the arms."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("", "tokens/s", "TPOT met", "replica-s", "good tokens per replica-s"):
        table.add_column(title, justify="right" if title else "left")
    for name in ARM_TITLES:
        arm = document["arms"][name]
        table.add_row(
            arm_title(name, arm),
            f"{arm['tokens_per_second']:.0f}",
            f"{arm['tpot_attainment_percent']:.0f} %",
            f"{arm['replica_seconds']:.0f}",
            f"{arm[document['arms_ranked_by']]:.0f}",
        )
    console.print()
    console.print(table)


def where(console: Console, document: Mapping[str, Any], output: Path, cluster: Cluster) -> None:
    """Print the verdict and where everything is."""
    console.print()
    median_ms, slowest_ms = _text(document["ack_ms_p50"]), _text(document["ack_ms_max"])
    console.print(
        f"{document['schedule_changes']} schedule changes, on all pods after {median_ms} ms (median), {slowest_ms} ms"
        f" (slowest); {_text(document['seconds_from_drop_to_change'])} s from the drop to engines with another K"
    )
    console.print(
        f"{document['target_patches']} patches of the target in place; replicas {document['replicas_min']} to"
        f" {document['replicas_max']}, {document['replicas_end']} at the end;"
        f" {document['engine_pods_replaced_by_tuning']} pods replaced by tuning"
    )
    for sentence in document["missed"]:
        console.print(f"[red]not seen:[/] {sentence}")
    console.print(f"\n{output / 'index.html'}, {output / 'demo.png'}, {output / 'summary.json'}; logs: {cluster.logs}")


def way_in(console: Console, cluster: Cluster) -> None:
    """Print how to look around while the cluster is up."""
    state = read_state(cluster.run_dir)
    console.print("\nThe cluster stays up until Ctrl-C. Look around:")
    console.print(f"  export KUBECONFIG={cluster.kubeconfig}")
    if state is not None:
        console.print(f"  export PATH={Path(state.kubectl).parent}:$PATH   # has kubectl")


def _text(value: float | None) -> str:
    return "no" if value is None else f"{value:g}"
