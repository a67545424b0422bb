"""The commands that look at services, on a real cluster with a service under load: as kubectl's plugin, and by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testbed import operator
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.load import Load
from tests.testbed.service import ServiceView
from tests.testbed.test_operator import example


@pytest.fixture(scope="module")
def busy(start_cluster: StartCluster) -> Iterator[Cluster]:
    """A cluster with a service under load, steered until K was chosen once."""
    cluster = start_cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5)
    operator.install(cluster)
    operator.start(cluster)
    cluster.kubectl("create", "namespace", "ml")
    view = ServiceView(cluster, "ml", "chat")
    view.apply(example("ml"))
    cluster.wait_until("ready service", lambda: view.condition("Ready")[0] == "True")
    with Load(cluster, "ml", "chat", 24, 0.8):
        cluster.wait_until("a decision", lambda: bool(view.status().get("history")))
        cluster.wait_until("a memory", lambda: bool(view.get("configmap", "chat-memory")))
        cluster.wait_until("a look of the HPA", lambda: bool(seen_by_the_hpa(view)))
        yield cluster
    operator.stop(cluster)


def seen_by_the_hpa(view: ServiceView) -> list[Any]:
    found: list[Any] = view.get("hpa", "keda-hpa-chat").get("status", {}).get("currentMetrics") or []
    return found


def outrider(cluster: Cluster, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command as its administrator does, who names no metrics store."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER_")}
    command = [str(Path(sys.executable).with_name("outrider")), *words]
    return subprocess.run(
        command,
        env={**environment, "KUBECONFIG": str(cluster.kubeconfig)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def told(cluster: Cluster, *words: str, all_there: Callable[[str], bool]) -> str:
    """What a command says once the store had an answer to everything: a scrape that took too long ends the series of an
    engine until the next one."""

    def said() -> str:
        result = outrider(cluster, *words)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return cluster.reading("whole answer", said, all_there)


def test_status_is_zero_for_a_service_that_is_ready_and_three_for_none(busy: Cluster) -> None:
    result = outrider(busy, "status", "chat", "-n", "ml")
    assert result.returncode == 0, result.stderr
    assert "ml/chat  Ready" in result.stdout
    assert outrider(busy, "status", "chat").returncode == 3


def test_explain_has_status_memory_and_metrics_without_being_told_of_a_store(busy: Cluster) -> None:
    said = told(busy, "explain", "chat", "-n", "ml", all_there=lambda said: "requests in flight" in said)
    assert "What the operator expects of each K" in said
    assert "The HPA sees" in said
    assert "What could not be looked at" not in said


def test_top_measures_load_time_and_tokens(busy: Cluster) -> None:
    figures = ("inFlight", "tokensPerSecond", "tpotMilliseconds")

    def all_there(said: str) -> bool:
        return all(one[name] for one in json.loads(said)["services"] for name in figures)

    (one,) = json.loads(told(busy, "top", "--once", "-A", "-o", "json", all_there=all_there))["services"]
    assert one["inFlight"] > 0
    assert one["tokensPerSecond"] > 0
    assert 0 < one["tpotMilliseconds"] < 1000


def test_a_report_has_every_plot_and_what_was_saved(busy: Cluster, tmp_path: Path) -> None:
    result = outrider(busy, "report", "chat", "-n", "ml", "--since", "10m", "--html", "chat.html", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    text = (tmp_path / "chat.html").read_text()
    assert text.count('<svg class="panel"') == 7
    carried = json.loads(text.split('id="result">', 1)[1].split("</script>", 1)[0])
    assert carried["totals"]["output_tokens"] > 0
    assert carried["saved"]["gpu_hours"] != 0
    assert carried["decisions"]
    assert carried["events"]


def test_a_bundle_has_the_children_and_no_key(busy: Cluster, tmp_path: Path) -> None:
    result = outrider(busy, "support-bundle", "chat", "-n", "ml", "--file", "b.tar.gz", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert {"ml/chat/deployment.yaml", "ml/chat/scaledobject.yaml", "ml/events.yaml", "metrics/engines.txt"} <= names
    assert not [name for name in names if "secret" in name]
