"""What becomes of a resource on its way from the API server to its children, told in one value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.api.defaults import resolve
from outrider.api.resource import parse
from outrider.engine.admission import admit
from outrider.errors import InvalidSpec
from outrider.manifests import engine_settings
from outrider.manifests.meta import Manifest
from tests.fuzz.strategies import Schema, spec_schema
from tests.unit.manifests.builders import all_children

_PATH = re.compile(r"\bspec((?:\.[A-Za-z0-9_]+|\[\d+\])+)")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A refusal, or children."""

    refused_by: str
    """``schema``, ``admission`` or ``rendering``; empty when it was rendered."""
    message: str
    children: tuple[Manifest, ...] = ()


def outcome(body: Mapping[str, Any]) -> Outcome:
    """Take a resource as far as it goes; whatever is not a refusal in our words is raised."""
    stage = "schema"
    try:
        resource = parse({**body, "metadata": {"uid": "5f0c", "generation": 1, **body["metadata"]}})
        stage = "admission"
        admit(engine_settings.engine_config(resource, resolve(resource.spec)))
        stage = "rendering"
        return Outcome("", "", tuple(all_children(resource)))
    except InvalidSpec as error:
        return Outcome(stage, error.message)


def names_a_field(message: str) -> bool:
    """Whether a refusal has the path of a field of the spec, or of one that stands where none is known."""
    if re.search(r"\b(metadata\.name|kind)\b", message) or re.match(r"spec\b", message):
        return True
    return any(_known(match.group(1)) for match in _PATH.finditer(message))


def _known(path: str) -> bool:
    schema: Schema = spec_schema()
    *parents, _last = re.findall(r"[A-Za-z0-9_]+", re.sub(r"\[\d+\]", "", path))
    for name in parents:
        schema = schema.get("items", schema).get("properties", {}).get(name, {})
    return bool(schema)
