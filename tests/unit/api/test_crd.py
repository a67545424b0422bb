"""The generated CRD: in step with the models, and structural. Whether an API server takes it:
tests/testbed/test_crd.py."""

from __future__ import annotations

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


ALL = [*nodes(SPEC, "spec"), *nodes(STATUS, "status")]


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


@pytest.mark.parametrize(("path", "node"), [*nodes(SPEC, "spec")], ids=[path for path, _ in nodes(SPEC, "spec")])
def test_the_spec_is_bounded_so_that_rules_have_a_known_cost(path: str, node: Node) -> None:
    if node.get("type") == "string":
        assert "maxLength" in node or "enum" in node
    if node.get("type") == "array":
        assert "maxItems" in node
    if "additionalProperties" in node:
        assert "maxProperties" in node


@pytest.mark.parametrize(
    ("path", "node"),
    [(path, node) for path, node in ALL if not path.endswith("[]")],
    ids=[path for path, _ in ALL if not path.endswith("[]")],
)
def test_every_field_says_in_a_sentence_what_it_is(path: str, node: Node) -> None:
    assert re.fullmatch(r"[A-Z].*\.", node["description"])


def test_every_rule_blames_a_field_that_exists() -> None:
    rules = [(node, rule) for _, node in ALL for rule in node.get("x-kubernetes-validations", ())]
    assert len(rules) > 20
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
    assert names == ["Ready", "Mode", "K", "Tokens/Step", "Replicas", "Age"]
    for column in VERSION["additionalPrinterColumns"]:
        path = column["jsonPath"].split("[")[0]
        place = SCHEMA
        if path.startswith(".metadata"):
            continue
        for name in path.split(".")[1:]:
            place = place["properties"][name]
