"""The reference page of the resource, from the very schema that the API server gets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from outrider.api import GROUP, KIND, VERSION
from outrider.api.crd import COLUMNS, custom_resource_definition

Schema = Mapping[str, Any]

INTRODUCTION = f"""\
# {KIND}

`apiVersion: {GROUP}/{VERSION}`, `kind: {KIND}`, short name `sis`.

The spec belongs to its author: Outrider writes status alone. A field that is left out is resolved by the operator, not
written into the object; `kubectl get sis NAME -o jsonpath='{{.status.effective}}'` shows what was resolved. Times are
whole milliseconds or seconds and shares are percent, as the names of the fields say. `kubectl explain sis.spec` prints
the same sentences. Fields marked with * are required.
"""


def page() -> str:
    """The page as Markdown, the same text for the same models."""
    version = custom_resource_definition()["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    parts = [INTRODUCTION, *_rules(schema), *_section("spec", schema["properties"]["spec"])]
    parts += [_columns(), *_section("status", schema["properties"]["status"])]
    return "\n".join(part.rstrip() + "\n" for part in parts if part)


def _section(path: str, schema: Schema) -> Iterator[str]:
    """One object: its fields as a table, its rules, then the objects in it."""
    yield f"## {path}\n\n{_escape(schema.get('description', ''))}"
    required = schema.get("required", ())
    rows = [
        f"| {_name(path, name, field)}{'*' if name in required else ''} | {_type(field)} | {_escape(_text(field))} |"
        for name, field in schema["properties"].items()
    ]
    yield "\n".join(["| field | type | meaning |", "|---|---|---|", *rows])
    yield from _rules(schema)
    for name, field in schema["properties"].items():
        inner = _object(field)
        if inner is not None:
            yield from _section(_path(path, name, field), inner)


def _rules(schema: Schema) -> Iterator[str]:
    rules = [f"- {_escape(rule['message'])}" for rule in schema.get("x-kubernetes-validations", ())]
    if rules:
        yield "Refused at `kubectl apply`, in these words:\n\n" + "\n".join(rules)


def _columns() -> str:
    rows = [f"| {name} | {text}{' (`-o wide`)' if priority else ''} |" for name, _, _, text, priority in COLUMNS]
    return "\n".join(["## Columns of `kubectl get sis`\n", "| column | meaning |", "|---|---|", *rows])


def _object(field: Schema) -> Schema | None:
    """The object with named fields that a field holds, directly or as the items of a list; None for all others."""
    inner: Schema = field.get("items", field)
    return inner if inner.get("properties") else None


def _path(path: str, name: str, field: Schema) -> str:
    return f"{path}.{name}" + ("[]" if field.get("type") == "array" else "")


def _name(path: str, name: str, field: Schema) -> str:
    if _object(field) is None:
        return f"`{name}`"
    anchor = re.sub(r"[^a-z0-9_-]", "", _path(path, name, field).lower())
    return f"[`{name}`](#{anchor})"


def _type(field: Schema) -> str:
    """The type with its bounds, in few words."""
    if field.get("type") == "array":
        most = f", at most {field['maxItems']}" if "maxItems" in field else ""
        return f"list of {_type(field['items'])}{most}"
    if "enum" in field:
        return "one of " + ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if field.get("x-kubernetes-preserve-unknown-fields"):
        return "object, passed through"
    if "additionalProperties" in field:
        return f"map to {_type(field['additionalProperties'])}"
    # Where a rule with words of its own stands for the least value, only the most is a bound of the schema.
    most = "to" if "minimum" in field else "up to"
    bounds = [f"{key} {field[name]}" for key, name in (("from", "minimum"), (most, "maximum")) if name in field]
    return " ".join([str(field.get("type", "any")), *bounds])


def _text(field: Schema) -> str:
    """What the field means, and in which words a value is refused."""
    refusals = [f"Refused: {rule['message']}." for rule in field.get("x-kubernetes-validations", ())]
    inner = field.get("properties") is not None  # rules of an object stand in its own section
    return " ".join([field.get("description", ""), *([] if inner else refusals)])


def _escape(text: str) -> str:
    """A bar would end the cell of a table; a bare angle bracket would be taken for HTML."""
    return text.replace("|", "\\|").replace("<", "&lt;")
