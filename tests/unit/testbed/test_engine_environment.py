"""What the real engine's environment is told of our packages; the engine itself is for `make test-engine`."""

from __future__ import annotations

import os
from importlib.metadata import distributions
from pathlib import Path

from outrider import __version__
from tests.engine.environment import plugin_path


def test_a_foreign_environment_finds_our_version_and_entry_points(tmp_path: Path) -> None:
    (found,) = distributions(name="outrider", path=plugin_path(tmp_path).split(os.pathsep))
    groups = {point.group for point in found.entry_points}
    assert found.version == __version__
    assert {"vllm.general_plugins", "vllm.endpoint_plugins", "vllm.stat_logger_plugins"} <= groups
