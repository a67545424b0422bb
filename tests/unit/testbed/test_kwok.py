"""kwok's stages are taken from its module, less the engine pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.testbed.kwok import engine_pod_address, node, stages, without_engines

POD_STAGE: dict[str, Any] = {
    "kind": "Stage",
    "metadata": {"name": "pod-delete"},
    "spec": {
        "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
        "selector": {"matchExpressions": [{"key": ".metadata.deletionTimestamp", "operator": "Exists"}]},
        "next": {"delete": True},
    },
}
NODE_STAGE: dict[str, Any] = {"kind": "Stage", "metadata": {}, "spec": {"resourceRef": {"kind": "Node"}, "next": {}}}
EXCLUSION = {"key": '.metadata.labels["app.kubernetes.io/component"]', "operator": "NotIn", "values": ["engine"]}


def test_a_pod_stage_keeps_its_conditions_and_gets_one_more() -> None:
    changed = without_engines(POD_STAGE)
    kept = POD_STAGE["spec"]["selector"]["matchExpressions"]
    assert changed["spec"]["selector"]["matchExpressions"] == [*kept, EXCLUSION]
    assert changed["spec"]["next"] == {"delete": True}
    assert len(kept) == 1, "the stage that came in is left whole"


def test_a_job_that_evaluates_a_candidate_is_not_called_complete_at_once() -> None:
    complete = without_engines({**POD_STAGE, "metadata": {"name": "pod-complete"}})
    *_, exclusion = complete["spec"]["selector"]["matchExpressions"]
    assert exclusion["values"] == ["engine", "evaluation"]


def test_a_pod_stage_for_all_pods_is_narrowed_too() -> None:
    everything = {**POD_STAGE, "spec": {"resourceRef": {"kind": "Pod"}, "next": {}}}
    assert without_engines(everything)["spec"]["selector"] == {"matchExpressions": [EXCLUSION]}


def test_a_node_stage_stays_as_it_is() -> None:
    assert without_engines(NODE_STAGE) == NODE_STAGE


def test_stages_of_several_files_come_together_with_ours_last(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump_all([POD_STAGE, NODE_STAGE]))
    (tmp_path / "b.yaml").write_text("# only a comment\n")
    (tmp_path / "c.yaml").write_text("kind: Kustomization\n")
    found = stages(sorted(tmp_path.glob("*.yaml")))
    assert found == [without_engines(POD_STAGE), NODE_STAGE, engine_pod_address()]


def test_the_address_stage_is_for_engine_pods_without_one() -> None:
    selector = engine_pod_address()["spec"]["selector"]
    assert selector["matchLabels"] == {"app.kubernetes.io/component": "engine"}
    assert {".metadata.deletionTimestamp", ".status.podIP"} == {each["key"] for each in selector["matchExpressions"]}


def test_a_node_has_its_own_address_range_and_its_gpus() -> None:
    made = node(1, "127.20.16.0/20", gpus=4)
    assert made["metadata"]["name"] == "gpu-1"
    assert made["spec"] == {"podCIDR": "127.20.16.0/20", "podCIDRs": ["127.20.16.0/20"]}
    assert made["status"]["allocatable"]["nvidia.com/gpu"] == "4"
