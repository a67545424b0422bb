"""Reading a resource: what is admitted, what is refused, and in which words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from outrider.api.crd import custom_resource_definition
from outrider.api.resource import parse
from outrider.errors import InvalidSpec
from tests.unit.api.bodies import ADMITTED, EXAMPLES, ROOT, changed, example, refused, resource


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_valid_and_open_with_their_intent(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert parse(yaml.safe_load(text)).namespace == "ml"


@pytest.mark.parametrize("changes", ADMITTED.values(), ids=ADMITTED.keys())
def test_admitted(changes: dict[str, Any]) -> None:
    parse(changed(example(), changes))


@pytest.mark.parametrize("row", refused(), ids=lambda row: row["case"])
def test_refused_with_the_remedy(row: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        parse(changed(example(), row["set"]))
    assert row["words"] in refusal.value.message


def test_a_fault_is_named_by_the_path_that_the_user_wrote() -> None:
    with pytest.raises(InvalidSpec) as refusal:
        parse(changed(example(), {"spec.autoscaling.minReplicas": 9, "spec.objectives.tpotMilliseconds": 0}))
    assert refusal.value.message.split("; ") == [
        "spec.objectives.tpotMilliseconds: tpotMilliseconds must be 1 or more",
        "to have no objective for it leave the field out",
        "spec.autoscaling.minReplicas: minReplicas 9 is above maxReplicas 6: lower one or raise the other",
    ]


@pytest.mark.parametrize(
    ("path", "block"),
    [
        ("spec.speculation.ngram_prompt_lookup_max", "spec.speculation"),
        ("spec.tokens", "spec"),
        ("spec.engine.kvTransfer.port", "spec.engine.kvTransfer"),
    ],
)
def test_a_guessed_field_is_named_with_where_to_look(path: str, block: str) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        parse(changed(example(), {"spec.engine.kvTransfer": {"connector": "C", "role": "Both"}, path: 4}))
    looked_up = f"no field of this name: remove it, or see kubectl explain sis.{block} for those that there are"
    assert refusal.value.message == f"{path}: {looked_up}"


def test_each_rule_is_broken_by_a_row_of_the_table() -> None:
    answers = []
    for row in refused():
        with pytest.raises(InvalidSpec) as refusal:
            parse(changed(example(), row["set"]))
        answers.append(refusal.value.message)
    schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for rule in rules_below(schema):
        # A message with numbers in it is told from others by its words.
        text = rule.get("messageExpression", f"'{rule['message']}'.").split("'.")[0].removeprefix("'")
        words = ".*".join(re.escape(part) for part in text.split("%d"))
        assert any(re.search(words, answer) for answer in answers), rule["rule"]


def rules_below(schema: Any) -> Iterator[dict[str, str]]:
    if isinstance(schema, dict):
        yield from schema.get("x-kubernetes-validations", ())
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from rules_below(inner)


def test_an_object_of_another_kind_is_not_read() -> None:
    with pytest.raises(InvalidSpec, match="Deployment"):
        parse(changed(example(), {"kind": "Deployment"}))


def test_an_object_without_a_spec_is_refused_and_not_a_crash() -> None:
    with pytest.raises(InvalidSpec, match="spec: is needed"):
        parse(changed(example(), {"spec": None}))


def test_a_parsed_resource_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        resource().spec.model.id = "another/model"


def test_labels_annotations_and_status_are_not_read() -> None:
    plain = resource()
    noisy = resource({"metadata.labels": {"app.kubernetes.io/instance": "argo"}, "status": {"anything": [1, 2]}})
    assert noisy == plain


def test_the_readme_shows_the_minimal_example_as_it_is() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = text.split("```yaml\n")[1].split("```")[0]
    assert yaml.safe_load(shown) == example("01-minimal")
