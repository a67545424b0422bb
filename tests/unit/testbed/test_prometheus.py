"""Prometheus' configuration; what it does with it is seen in tests/testbed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.testbed.prometheus import add_target, configuration, label_name, targets_folder


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("serving.outrider.dev/service", "serving_outrider_dev_service"),
        ("app.kubernetes.io/component", "app_kubernetes_io_component"),
        ("plain", "plain"),
    ],
)
def test_labels_are_spelled_as_prometheus_does(label: str, name: str) -> None:
    assert label_name(label) == name


def test_the_interval_is_the_time_limit_of_a_scrape_as_well() -> None:
    assert configuration(Path("k"), Path("t"), 0.5)["global"] == {"scrape_interval": "500ms", "scrape_timeout": "500ms"}


def test_series_get_the_labels_that_queries_rely_on() -> None:
    engines, others = configuration(Path("kubeconfig"), Path("targets"), 2)["scrape_configs"]
    assert engines["kubernetes_sd_configs"] == [{"role": "pod", "kubeconfig_file": "kubeconfig"}]
    given = [rule["target_label"] for rule in engines["relabel_configs"] if "target_label" in rule]
    assert given[1:] == [
        "namespace",
        "pod",
        "pod_uid",
        "serving_outrider_dev_service",
        "serving_outrider_dev_track",
        "serving_outrider_dev_revision",
    ]
    assert others["file_sd_configs"] == [{"files": ["targets/*.json"]}]


def test_a_target_is_a_file_of_its_own(tmp_path: Path) -> None:
    targets_folder(tmp_path).mkdir()
    add_target(tmp_path, "operator", "127.0.0.1:9", {"role": "leader"})
    (written,) = targets_folder(tmp_path).iterdir()
    assert json.loads(written.read_text()) == [
        {"targets": ["127.0.0.1:9"], "labels": {"job": "operator", "role": "leader"}}
    ]
