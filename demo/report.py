"""What is printed around the live part: how to look around, the arms side by side, and where files are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from demo import scenario
from demo.page import ARM_TITLES, arm_title
from tests.testbed.cluster import Cluster
from tests.testbed.state import read_state


def arms_table(console: Console, document: Mapping[str, Any]) -> None:
    """Print the arms."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    asked = f"TPOT met ({document['percentile_asked']} % asked)"
    for title in ("", "tokens/s", asked, "replica-s", "good tokens per replica-s"):
        table.add_column(title, justify="right" if title else "left", no_wrap=not title)
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


def way_in(console: Console, cluster: Cluster, lead: str) -> None:
    """Print how to look around while the cluster is up."""
    state = read_state(cluster.run_dir)
    lines = [f"export KUBECONFIG={cluster.kubeconfig}"]
    if state is not None:
        lines.append(f"export PATH={Path(state.kubectl).parent}:$PATH   # has kubectl")
    namespace, service = scenario.NAMESPACE, scenario.SERVICE
    lines += [f"kubectl get sis -n {namespace} -o wide", f"kubectl describe sis {service} -n {namespace}"]
    console.print("\n".join(["", lead, *(f"  {line}" for line in lines), ""]), soft_wrap=True, markup=False)


def meaning(console: Console, document: Mapping[str, Any]) -> None:
    """Print what the table says."""
    console.print()
    for sentence in document["comparison"]:
        console.print(sentence, markup=False)


def stays(console: Console, results: Path | None, cluster: Cluster) -> None:
    """Print, after an interrupt, what is left of the demo; ``results`` is None before they were written."""
    left = [] if results is None else [f"results: {results / 'index.html'}"]
    if cluster.logs.exists():
        left.append(f"logs: {cluster.logs}")
    console.print("; ".join(["ended, nothing was left running", *left]), soft_wrap=True, markup=False)


def _text(value: float | None) -> str:
    return "no" if value is None else f"{value:g}"
