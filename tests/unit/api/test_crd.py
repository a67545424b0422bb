"""The generated CRD: in step with the models, and structural. Whether an API server takes it:
tests/testbed/test_crd.py."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.api.crd import FILE_NAME, custom_resource_definition, main, render
from outrider.api.status import Status
from tests.unit.api.bodies import ROOT

VERSION = custom_resource_definition()["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]
SPEC, STATUS = SCHEMA["properties"]["spec"], SCHEMA["properties"]["status"]

Node = dict[str, Any]


def nodes(schema: Node, path: str) -> Iterator[tuple[str, Node]]:
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from nodes(field, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key], f"{path}[]")


IN_SPEC = [*nodes(SPEC, "spec")]
ALL = [*IN_SPEC, *nodes(STATUS, "status")]


def rules_of(node: Node) -> list[dict[str, str]]:
    found: list[dict[str, str]] = node.get("x-kubernetes-validations", [])
    return found


def test_the_committed_crd_is_the_one_of_the_models() -> None:
    committed = (ROOT / "crds" / FILE_NAME).read_text(encoding="utf-8")
    assert committed == render(), "the models changed: run `make generate`"


def test_the_command_writes_it(tmp_path: Path) -> None:
    assert main([str(tmp_path / "crds")]) == 0
    assert (tmp_path / "crds" / FILE_NAME).read_text(encoding="utf-8") == render()


@pytest.mark.parametrize(("path", "node"), ALL, ids=[path for path, _ in ALL])
def test_every_node_is_structural(path: str, node: Node) -> None:
    assert not {"$ref", "$defs", "title", "const", "allOf", "oneOf"} & node.keys()
    assert ("type" in node) != ("x-kubernetes-int-or-string" in node)
    assert not {"additionalProperties", "properties"} <= node.keys()
    assert node.get("type") != "number", "no floats in the API"
    assert "default" not in node or path == "status"


@pytest.mark.parametrize(("path", "node"), IN_SPEC, ids=[path for path, _ in IN_SPEC])
def test_the_spec_is_bounded_so_that_rules_have_a_known_cost(path: str, node: Node) -> None:
    if node.get("type") == "string":
        assert "maxLength" in node or "enum" in node
    if node.get("type") == "array":
        assert "maxItems" in node
    if "additionalProperties" in node or "x-kubernetes-preserve-unknown-fields" in node:
        assert "maxProperties" in node
    for name, field in node.get("properties", {}).items():
        if field.get("type") == "integer" and "enum" not in field:
            assert "maximum" in field, name
            # Where the remedy matters a rule with a sentence stands for the bare minimum.
            assert "minimum" in field or any(f"self.{name} >= 1" in rule["rule"] for rule in rules_of(node)), name


@pytest.mark.parametrize(
    ("path", "node"),
    [(path, node) for path, node in ALL if not path.endswith("[]")],
    ids=[path for path, _ in ALL if not path.endswith("[]")],
)
def test_every_field_says_in_a_sentence_what_it_is(path: str, node: Node) -> None:
    assert re.fullmatch(r"[A-Z].*\.", node["description"])


@pytest.mark.parametrize(("path", "node"), IN_SPEC, ids=[path for path, _ in IN_SPEC])
def test_fields_of_the_spec_are_documented_where_kubectl_explain_shows_them(path: str, node: Node) -> None:
    for name, field in node.get("properties", {}).items():
        text = field["description"]
        assert len(text.split()) >= 6, f"{name}: more than its name"
        if name not in node.get("required", ()):
            assert re.search(r"left out|One of the four|needed unless", text), f"{name}: and when it is left out?"
        if field.get("type") == "integer" and "enum" not in field:
            assert re.search(rf"\b({field['maximum']}|maxSpeculativeTokens)\b", text), f"{name}: up to what?"
        if "enum" in field:
            assert all(str(value) in text for value in field["enum"]), f"{name}: which words?"


CEL_SINCE = {
    **dict.fromkeys(("has", "size", "matches", "contains", "all", "filter", "map", "exists_one"), (1, 0)),
    "isSorted": (1, 0),
    "orValue": (1, 28),
    "hasValue": (1, 28),
    "format": (1, 29),
}
"""Version of Kubernetes that brought each function to every rule: `pkg/cel/environment/base.go` of k8s.io/apiserver
0.37.2, where 1.0 stands for what was always there. Optional fields (`.?`) came with orValue."""
OLDEST_KUBERNETES = (1, 33)


def test_rules_use_no_function_that_an_old_api_server_lacks() -> None:
    expressions = [
        text
        for _, node in nodes(SCHEMA, "")
        for rule in rules_of(node)
        for text in (rule["rule"], rule.get("messageExpression", ""))
    ]
    code = [re.sub(r"'(\\.|[^'\\])*'", "''", text) for text in expressions]
    used = {name for text in code for name in re.findall(r"([A-Za-z_]\w*)\(", text)}
    assert used == CEL_SINCE.keys()
    assert max(CEL_SINCE.values()) <= OLDEST_KUBERNETES


def test_the_crd_leaves_room_in_the_annotation_of_client_side_apply() -> None:
    limit = 262_144  # bytes of all annotations of an object
    assert len(json.dumps(custom_resource_definition(), separators=(",", ":")).encode()) < limit / 2


def test_every_rule_blames_a_field_that_exists() -> None:
    rules = [(node, rule) for _, node in ALL for rule in rules_of(node)]
    assert len(rules) > 60
    for node, rule in rules:
        place = node
        for name in rule.get("fieldPath", "").split(".")[1:]:
            place = place["properties"][name]


def test_status_is_not_current_before_the_first_pass() -> None:
    assert STATUS["default"] == {"observedGeneration": -1}
    assert Status().as_dict() == {"observedGeneration": -1, "conditions": [], "history": []}


def test_conditions_are_a_map_by_type() -> None:
    conditions = STATUS["properties"]["conditions"]
    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])


def test_columns_read_fields_that_exist() -> None:
    names = [column["name"] for column in VERSION["additionalPrinterColumns"] if not column.get("priority")]
    assert names == ["Ready", "Mode", "K", "Tokens/Step", "Replicas", "Candidate", "Age"]
    for column in VERSION["additionalPrinterColumns"]:
        path = column["jsonPath"].split("[")[0]
        place = SCHEMA
        if path.startswith(".metadata"):
            continue
        for name in path.split(".")[1:]:
            place = place["properties"][name]
