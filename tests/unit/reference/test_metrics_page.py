"""The page of the operator's metrics: all that are exported, each with its labels."""

from __future__ import annotations

import re

from prometheus_client import REGISTRY

import outrider.telemetry
from outrider.reference import metrics


def test_every_metric_that_the_operator_exports_has_a_row() -> None:
    exported = {one.name for one in REGISTRY.collect() if one.name.startswith("outrider_")}
    rows = re.findall(r"^\| `(outrider_\w+?)(?:_total)?` \| (\w+) ", metrics.page(), re.MULTILINE)
    assert {name for name, _ in rows} == exported
    assert len(rows) == len(exported)
    assert {kind for _, kind in rows} == {"counter", "gauge", "histogram"}


def test_a_row_names_the_labels_and_says_what_it_tells() -> None:
    assert (
        "| `outrider_trials_ended_total` | counter | `namespace`, `service`, `outcome` | Trials of candidates that are"
        " over, by how they ended. |"
    ) in metrics.page().splitlines()


def test_those_whose_series_come_and_go_are_there_without_any() -> None:
    assert outrider.telemetry.TRIAL_STAGE in metrics.every()
    assert outrider.telemetry.TRIALS_ENDED.metric in metrics.every()
