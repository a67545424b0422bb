"""A cache folder of the test's own, and a Go that only pretends."""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path

import pytest

from tests.testbed import slots

BEYOND = slots.first_port(slots.NUMBERS.stop)
"""The first port after those of all clusters; the last one of the tests too stays below 32768."""
FEW, WORKERS = 8, 32
"""Slots that a test has, and processes of pytest-xdist that have other ones."""

# Answers what the local cluster asks of `go`. A build takes FAKE_GO_SECONDS and fails if FAKE_GO_FAILS is its package;
# each adds a line to FAKE_GO_CALLS.
_GO = """\
#!{python}
import json, os, pathlib, sys, time
arguments = sys.argv[1:]
if arguments[0] == "env":
    print(json.dumps({{"GOVERSION": "go1.99.0", "GOTOOLCHAIN": "local", "GOOS": "linux"}}))
elif arguments[0] == "list":
    print(os.environ["FAKE_GO_MODULE"])
else:
    with open(os.environ["FAKE_GO_CALLS"], "a") as calls:
        print(arguments[-1], os.environ["GOFLAGS"], os.environ["CGO_ENABLED"], file=calls)
    time.sleep(float(os.environ.get("FAKE_GO_SECONDS", "0")))
    if arguments[-1] == os.environ.get("FAKE_GO_FAILS"):
        sys.exit("main.go:1: undefined: everything")
    binary = pathlib.Path(arguments[arguments.index("-o") + 1])
    binary.parent.mkdir()
    binary.write_text("built")
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The local cluster's cache folder, empty. Its slots have ports of their own, since their locks are other ones: a
    look at a port holds it for a moment, which would be in the way of a real cluster that starts just then."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)
    monkeypatch.setattr(slots, "NUMBERS", range(slots.NUMBERS.start, slots.NUMBERS.start + FEW))
    monkeypatch.setattr(slots, "FIRST_PORT", BEYOND + worker % WORKERS * FEW * slots.PORTS_A_SLOT)
    return tmp_path / "cache" / "outrider" / "testbed"


@pytest.fixture
def go_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts the pretended Go first on PATH; the file lists the builds asked of it."""
    program = tmp_path / "bin" / "go"
    program.parent.mkdir()
    program.write_text(_GO.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    stage = tmp_path / "module" / "kustomize" / "stage" / "pod" / "fast" / "pod-ready.yaml"
    stage.parent.mkdir(parents=True)
    stage.write_text("kind: Stage\n")
    calls = tmp_path / "calls"
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_GO_MODULE", str(tmp_path / "module"))
    monkeypatch.setenv("FAKE_GO_CALLS", str(calls))
    return calls
