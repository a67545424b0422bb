"""Prometheus, finding engine pods through the API server as it does in a cluster.

The labels are those that the operator's PodMonitor gives, so a query that works here works there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.testbed.kwok import ENGINE, ENGINE_LABEL
from tests.testbed.layout import Layout

ENGINE_PORT = 8000
POD_LABELS = ("serving.outrider.dev/service", "serving.outrider.dev/track", "serving.outrider.dev/revision")
RETENTION = "6h"  # Long for a test, and still a bound for a cluster that is left up.


def configuration(kubeconfig: Path, targets: Path, interval_s: float) -> dict[str, Any]:
    """Scrape engine pods every ``interval_s``, and whatever the files in the folder ``targets`` list."""
    discovered = "__meta_kubernetes_pod_"
    relabelings: list[dict[str, Any]] = [
        {"action": "keep", "source_labels": [f"{discovered}label_{label_name(ENGINE_LABEL)}"], "regex": ENGINE},
        # Pods that have ended keep their address for a while; a PodMonitor leaves them out as well.
        {"action": "drop", "source_labels": [f"{discovered}phase"], "regex": "Succeeded|Failed"},
        # Every declared port is found as a target of its own; with one address they fall together.
        {
            "source_labels": [f"{discovered}ip"],
            "regex": "(.+)",
            "target_label": "__address__",
            "replacement": f"$1:{ENGINE_PORT}",
        },
        {"action": "drop", "source_labels": [f"{discovered}ip"], "regex": ""},
        {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
        {"source_labels": [f"{discovered}name"], "target_label": "pod"},
        {"source_labels": [f"{discovered}uid"], "target_label": "pod_uid"},
    ]
    for label in POD_LABELS:
        name = label_name(label)
        relabelings.append({"source_labels": [f"{discovered}label_{name}"], "target_label": name})
    return {
        "global": {"scrape_interval": _duration(interval_s), "scrape_timeout": _duration(interval_s)},
        "scrape_configs": [
            {
                "job_name": "engines",
                "kubernetes_sd_configs": [{"role": "pod", "kubeconfig_file": str(kubeconfig)}],
                "relabel_configs": relabelings,
            },
            {"job_name": "others", "file_sd_configs": [{"files": [f"{targets}/*.json"]}]},
        ],
    }


def arguments(layout: Layout, interval_s: float) -> list[str | Path]:
    """Prometheus' command line, after writing its configuration."""
    targets_folder(layout.data).mkdir(exist_ok=True)
    config = layout.data / "prometheus.yaml"
    config.write_text(yaml.safe_dump(configuration(layout.kubeconfig, targets_folder(layout.data), interval_s)))
    return [
        layout.tools["prometheus"],
        f"--config.file={config}",
        f"--storage.tsdb.path={layout.data / 'prometheus'}",
        f"--storage.tsdb.retention.time={RETENTION}",
        f"--web.listen-address={layout.address('prometheus')}",
        "--scrape.discovery-reload-interval=500ms",  # Not 5 s: tests wait for every pod that comes.
    ]


def guarded(layout: Layout, name: str, web: Path) -> list[str | Path]:
    """Command line of a second Prometheus that scrapes what the first does, behind this web.config.file."""
    return [
        layout.tools["prometheus"],
        f"--config.file={layout.data / 'prometheus.yaml'}",
        f"--storage.tsdb.path={layout.data / name}",
        f"--web.listen-address={layout.address(name)}",
        f"--web.config.file={web}",
        "--scrape.discovery-reload-interval=500ms",
    ]


def targets_folder(data: Path) -> Path:
    """Where `add_target` leaves its files."""
    return data / "prometheus-targets"


def add_target(data: Path, job: str, address: str, labels: Mapping[str, str]) -> None:
    """Have ``http://address/metrics`` scraped as ``job``, from a second or so later on.

    ``labels`` are added to each of its series.
    """
    folder = targets_folder(data)
    whole, part = folder / f"{job}.json", folder / f"{job}.new"
    part.write_text(json.dumps([{"targets": [address], "labels": {"job": job, **labels}}]))
    part.rename(whole)  # Prometheus reads as soon as it sees a change, and would warn about half a file.


def label_name(kubernetes_label: str) -> str:
    """A Kubernetes label as Prometheus spells it."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", kubernetes_label)


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
