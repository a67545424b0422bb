"""What ``outrider preflight`` says of the examples: it refuses none, and warns of what each says itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outrider.cli.main import app
from tests.unit.api.bodies import EXAMPLES, ROOT

FOLDER = ROOT / "examples"
PATHS = [*EXAMPLES, FOLDER / "gitops" / "base" / "service.yaml"]


@pytest.fixture(scope="module")
def examined() -> dict[Path, dict[str, Any]]:
    """The reports on the whole folder, by file."""
    done = CliRunner().invoke(app, ["preflight", str(FOLDER), "--output", "json"])
    assert done.exit_code == 0, done.output
    return {Path(report["source"]): report for report in json.loads(done.stdout)["resources"]}


def test_every_resource_of_the_folder_is_looked_at(examined: dict[Path, dict[str, Any]]) -> None:
    assert set(examined) == set(PATHS)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_it_warns_of_what_the_example_says_and_of_nothing_else(
    examined: dict[Path, dict[str, Any]], path: Path
) -> None:
    said = re.findall(r"^# preflight: warns (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    states = {check["name"]: check["state"] for check in examined[path]["checks"]}
    assert len(said) <= 1
    assert {name for name, state in states.items() if state == "warning"} == set(", ".join(said).split(", ")) - {""}
    assert "refused" not in states.values()
