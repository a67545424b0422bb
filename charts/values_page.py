"""The page and the schema's descriptions of the chart's values, both from the comments in values.yaml.

A comment directly above a value is its description. Pure: text in, text out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from outrider.reference.markdown import table

TITLE = """\
# Values of the chart

Every value of [`charts/outrider`](../../charts/outrider), its default, and what it is for.

"""
NOT_SHOWN = frozenset({"global"})
"""Properties of the schema that values.yaml does not have."""


class ValuesFault(Exception):
    """values.yaml and values.schema.json do not fit; names the value and what to do."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value of the chart."""

    path: tuple[str, ...]
    default: Any
    description: str

    @property
    def name(self) -> str:
        """The path as `helm --set` takes it."""
        return ".".join(self.path)


def read(text: str) -> list[Value]:
    """All values, in the file's order.

    Raises:
        ValuesFault: one without a comment.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    return list(_walk(root, (), text.splitlines(), yaml.safe_load(text)))


def _walk(node: yaml.MappingNode, path: tuple[str, ...], lines: list[str], values: Any) -> Iterator[Value]:
    for key, child in node.value:
        name, at = str(key.value), key.start_mark.line
        comment = _comment_above(lines, at)
        here = (*path, name)
        if comment:
            yield Value(here, values[name], comment)
        elif isinstance(child, yaml.MappingNode) and child.value:
            yield from _walk(child, here, lines, values[name])
        else:
            raise ValuesFault(
                f"values.yaml line {at + 1}: {'.'.join(here)} has no comment above it; say what it is for"
            )


def _comment_above(lines: list[str], at: int) -> str:
    """The lines of comment that end right above line ``at``, as one text."""
    found: list[str] = []
    while at > 0 and lines[at - 1].lstrip().startswith("#"):
        at -= 1
        found.insert(0, lines[at].lstrip().removeprefix("#").strip())
    return " ".join(found)


def page(values: list[Value]) -> str:
    """The reference page."""
    rows = [(f"`{one.name}`", f"`{_plain(one.default)}`", one.description) for one in values]
    return TITLE + table(("value", "default", "meaning"), rows) + "\n"


def _plain(value: Any) -> str:
    """A default on one line, as JSON, which YAML reads too."""
    return json.dumps(value, ensure_ascii=False)


def described(schema: Mapping[str, Any], values: list[Value]) -> dict[str, Any]:
    """The schema with the description of each value in its place.

    Raises:
        ValuesFault: a value that the schema does not have, or the reverse.
    """
    result: dict[str, Any] = json.loads(json.dumps(schema))
    known = set()
    for one in values:
        found = result
        for depth, part in enumerate(one.path, start=1):
            if part not in found.get("properties", {}):
                raise ValuesFault(f"values.schema.json has no {'.'.join(one.path[:depth])}: add its type")
            found = found["properties"][part]
        found.pop("description", None)
        found["description"] = one.description
        known.add(one.path)
    for path in _leaves(result, known):
        raise ValuesFault(f"values.yaml has no {'.'.join(path)}: add it with its default, or take it from the schema")
    return result


def _leaves(schema: Mapping[str, Any], known: set[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Paths of the schema that no value stands for."""
    waiting: list[tuple[tuple[str, ...], Any]] = [
        ((name,), below) for name, below in schema["properties"].items() if name not in NOT_SHOWN
    ]
    while waiting:
        path, below = waiting.pop()
        if path in known:
            continue
        if "properties" not in below:
            yield path
        waiting.extend(((*path, name), deeper) for name, deeper in below.get("properties", {}).items())
