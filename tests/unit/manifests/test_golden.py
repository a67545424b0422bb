"""Children against their golden files.

``pytest tests/unit/manifests --refresh-golden`` writes them anew; read the diff, since a change of a pod template
restarts every engine of that kind.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.manifests.golden import FOLDER, golden_path, render, resources


@pytest.mark.parametrize(("name", "path"), resources().items(), ids=resources().keys())
def test_children_are_as_they_were(name: str, path: Path, golden: Callable[[Path, str], None]) -> None:
    golden(golden_path(name), render(path))


def test_no_golden_file_is_left_over() -> None:
    assert {path.name for path in FOLDER.glob("*.children.yaml")} == {golden_path(name).name for name in resources()}


def test_no_anchors_since_yaml_readers_stumble_over_them() -> None:
    assert not [path for path in FOLDER.glob("*.children.yaml") if "&id" in path.read_text(encoding="utf-8")]
