"""The tutorial, command by command, on a cluster of its own name; what a reader is told to see must be there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.fixtures import StartCluster
from tests.testbed.operator import ROOT
from tests.unit.markdown import blocks

PAGE = ROOT / "docs" / "tutorial.md"
TIMEOUT_S = 900
NOT_HERE = ("make setup", "source .venv/bin/activate")
"""What a test that runs has behind it."""


@pytest.fixture
def name(start_cluster: StartCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """Name of the cluster; `start_cluster` is here for its mark alone, since the page starts its own."""
    name = f"tutorial-{os.getpid()}"
    yield name
    subprocess.run([sys.executable, "-m", "tests.testbed", "down", "--name", name], cwd=ROOT, check=False)


def script(name: str) -> str:
    """Every command of the page, each shown before it runs, on a cluster of this name."""
    text = "".join(block.text for block in blocks(PAGE.read_text(encoding="utf-8")) if block.language == "sh")
    lines = [line for line in text.splitlines() if line not in NOT_HERE]
    assert len(lines) == len(text.splitlines()) - len(NOT_HERE)
    joined = re.sub(r"(-m tests\.testbed) (\w+)", rf"\1 \2 --name {name}", "\n".join(lines))
    joined = re.sub(r"(-m tests\.testbed\.traffic \w+)", rf"\1 --name {name}", joined)
    return f"set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\nset -x\n{joined}\n"


def test_every_command_of_the_tutorial_does_what_the_page_says(name: str, tmp_path: Path) -> None:
    for read in ("crds", "deploy", "examples"):  # kubectl follows no link to a folder
        shutil.copytree(ROOT / read, tmp_path / read)
    for run in ("tests", "operator", "runtime"):
        (tmp_path / run).symlink_to(ROOT / run)
    paths = (str(Path(sys.executable).parent), os.environ["PATH"])
    environment = os.environ | {"PATH": os.pathsep.join(paths), "NO_COLOR": "1"}
    done = subprocess.run(
        ["bash", "-c", script(name)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    shown = f"{done.stdout}\n{done.stderr}\n{log(tmp_path)}"
    assert done.returncode == 0, shown
    tables = re.findall(r"^chat +(\w+) +(\w+) +(\d+) ", done.stdout, re.MULTILINE)
    assert [row[0] for row in tables] == ["True"] * len(tables), shown
    assert [row[1] for row in tables] == ["Adaptive", "Adaptive", "Adaptive", "Paused"], shown
    assert int(tables[0][2]) == 3, shown
    assert int(tables[2][2]) == 1, shown
    assert "minReplicas" in done.stderr, shown  # the mistake is refused, with the field
    assert "ScheduleChanged" in done.stdout, shown


def log(folder: Path) -> str:
    """The operator's last lines."""
    path = folder / "operator.log"
    return path.read_text(encoding="utf-8")[-3000:] if path.exists() else ""
