"""Golden manifests: all children of some services, as they are sent to the API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from outrider.api.resource import parse
from tests.unit.api.bodies import EXAMPLES, ROOT, changed
from tests.unit.manifests.builders import all_children

FOLDER = ROOT / "tests" / "golden" / "manifests"


def resources() -> dict[str, Path]:
    """Paths of the resources by the name of their golden file."""
    own = sorted(FOLDER.glob("*.resource.yaml"))
    return {path.name.removesuffix(".yaml").removesuffix(".resource"): path for path in (*EXAMPLES, *own)}


def manifests(path: Path) -> list[dict[str, Any]]:
    """All children of the service in a file, with a schedule in force."""
    body = yaml.safe_load(path.read_text(encoding="utf-8"))
    return all_children(parse(changed(body, {"metadata.uid": "00000000-0000-4000-8000-000000000001"})), target=42)


def render(path: Path) -> str:
    """The golden text for a resource's file."""
    return yaml.safe_dump_all(manifests(path), sort_keys=False, width=120, allow_unicode=True)


def golden_path(name: str) -> Path:
    """Where the golden text is kept."""
    return FOLDER / f"{name}.children.yaml"
