"""A cache folder of the test's own, and a Go that only pretends."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

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
    """The local cluster's cache folder, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
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
