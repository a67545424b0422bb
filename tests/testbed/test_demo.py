"""The demo as a user runs it, shortened: it must show all that it promises and leave nothing behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from demo.scenario import SHORTEST_S

ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = 1200.0


@pytest.mark.cluster
@pytest.mark.long
def test_the_demo_shows_what_it_promises_and_ends_with_its_cluster(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demo", "--once", "--seconds", f"{SHORTEST_S:g}", "--output", str(tmp_path)]

    run = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "400"},  # No line is wrapped.
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )

    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["missed"] == []
    assert summary["engine_pods_replaced_by_tuning"] == 0
    assert summary["replicas_min"] < summary["replicas_max"]
    assert (tmp_path / "demo.png").stat().st_size > 0
    assert "<html" in (tmp_path / "index.html").read_text()
    logs = re.search(r"logs: (\S+)", run.stdout)
    assert logs, run.stdout[-3000:]
    assert [path.name for path in Path(logs[1]).parent.iterdir()] == ["logs"]  # No process and no key.
