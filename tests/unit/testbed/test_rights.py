"""Calls of an audit log beside the rules of a role."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.testbed import rights
from tests.testbed.rights import OPERATOR, Right, granted, recorded, unused

RULES = [
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list", "create", "patch"]},
    {"apiGroups": ["x.io"], "resources": ["things"], "resourceNames": ["a", "b"], "verbs": ["get"]},
]


def event(verb: str, resource: str, group: str = "apps", **more: Any) -> dict[str, Any]:
    reference = {"resource": resource, "apiGroup": group, **more.pop("reference", {})}
    return {"user": {"username": OPERATOR}, "verb": verb, "requestURI": "/…", "objectRef": reference, **more}


def log(folder: Path, *events: dict[str, Any], name: str = "audit.log") -> Path:
    path = folder / "logs" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in events))
    return path


def test_a_rule_is_a_right_for_each_of_its_verbs_and_names() -> None:
    assert {str(one) for one in rights.rights(RULES)} == {
        "list apps/deployments", "create apps/deployments", "patch apps/deployments", "get x.io/things a",
        "get x.io/things b",
    }  # fmt: skip


def test_calls_use_rights_and_what_is_left_is_told(tmp_path: Path) -> None:
    path = log(tmp_path, event("list", "deployments"), event("get", "things", "x.io", reference={"name": "a"}))
    left = unused(rights.rights(RULES), rights.calls(path))
    assert [str(one) for one in left] == ["create apps/deployments", "get x.io/things b", "patch apps/deployments"]


def test_an_apply_of_something_new_takes_two_rights(tmp_path: Path) -> None:
    made = event("patch", "deployments", reference={"name": "chat"}, responseStatus={"code": 201})
    assert [str(one) for one in unused(rights.rights(RULES[:1]), rights.calls(log(tmp_path, made)))] == [
        "list apps/deployments"
    ]


def test_calls_of_others_and_about_no_object_do_not_count(tmp_path: Path) -> None:
    other = event("list", "deployments") | {"user": {"username": "system:serviceaccount:keda:keda"}}
    discovery = event("get", "-")
    del discovery["objectRef"]
    assert list(rights.calls(log(tmp_path, other, discovery))) == []


def test_the_older_file_of_a_log_counts_too(tmp_path: Path) -> None:
    log(tmp_path, event("list", "deployments"), name="audit-2026-11-28T15-00-00.000.log")
    assert [call.right.verb for call in rights.calls(log(tmp_path, event("patch", "deployments")))] == ["list", "patch"]


def test_a_right_with_a_subresource_is_not_that_of_the_object(tmp_path: Path) -> None:
    path = log(tmp_path, event("patch", "deployments", reference={"subresource": "scale"}))
    assert [call.right for call in rights.calls(path)] == [Right("patch", "apps", "deployments/scale")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Extracts of a run in which every right was used."""
    events = [
        event(one.verb, one.resource, one.group, reference={"name": one.name or "any"}) for one in sorted(granted())
    ]
    rights.record(log(tmp_path, *events).parent, tmp_path / "extracts")
    return tmp_path / "extracts"


class TestCommand:
    def test_a_run_that_used_all_and_was_denied_nothing_is_well(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert rights.main([str(folder)]) == 0
        assert capsys.readouterr().out == f"rights: {len(granted())} given, all used, and no call denied\n"

    def test_an_unused_right_and_a_denied_call_are_told_with_what_to_do(
        self, folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        (extract,) = folder.iterdir()
        kept = [one for one in json.loads(extract.read_text()) if one["right"]["resource"] != "events"]
        extract.write_text(json.dumps(kept))
        (tmp_path / "b").mkdir()
        forbidden = event("list", "nodes", "", annotations={"authorization.k8s.io/decision": "forbid"})
        rights.record(log(tmp_path / "b", forbidden).parent, folder)
        assert rights.main([str(folder)]) == 1
        assert capsys.readouterr().out == (
            "rights: denied: list nodes (/…); give it in charts/outrider/files/rules.yaml, or do not ask\n"
            "rights: never used: create events; take it out of charts/outrider/files/rules.yaml,"
            " or test what needs it\n"
        )

    def test_a_cluster_that_the_operator_did_not_run_on_leaves_nothing(self, tmp_path: Path) -> None:
        rights.record(log(tmp_path).parent, tmp_path / "extracts")
        assert recorded(tmp_path / "extracts") == []


def test_only_rights_that_are_given_are_excused() -> None:
    assert set(rights.ASKED_WITHIN_A_CALL) <= {str(one) for one in granted()}
