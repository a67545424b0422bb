"""The page of the resource: every field of the CRD, each where its links say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from outrider.api.crd import custom_resource_definition
from outrider.reference import resource


def paths(schema: dict[str, Any], path: str) -> Iterator[str]:
    """Every field with a name below a schema, as `kubectl explain` takes it."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from paths(field.get("items", field), f"{path}.{name}")


@pytest.fixture(scope="module")
def text() -> str:
    return resource.page()


def test_every_field_has_a_row_in_the_section_of_its_object(text: str) -> None:
    version = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    sections = {
        heading.split("\n", 1)[0].replace("[]", ""): heading for heading in re.split(r"^## ", text, flags=re.MULTILINE)
    }
    fields = [*paths(version["spec"], "spec"), *paths(version["status"], "status")]
    assert len(fields) > 100
    for field in fields:
        parent, name = field.rsplit(".", 1)
        assert f"`{name}`" in sections[parent], field


def test_every_link_has_its_heading(text: str) -> None:
    anchors = {
        re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    }
    links = set(re.findall(r"\]\(#([^)]*)\)", text))
    assert links
    assert links <= anchors


def test_no_row_of_a_table_is_cut(text: str) -> None:
    for line in text.splitlines():
        if line.startswith("| `") or line.startswith("| ["):
            assert len(re.findall(r"(?<!\\)\|", line)) == 4, line
