"""Building the tools, with a Go that pretends: once each, in order, with words for the one who waits."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testbed.build import BuildEvent, check_version, ensure_tools
from tests.testbed.errors import ClusterError
from tests.testbed.places import REPOSITORY
from tests.testbed.progress import build_line
from tests.testbed.tools import TOOLS

APISERVER = "k8s.io/kubernetes/cmd/kube-apiserver"


def lines(events: list[BuildEvent]) -> list[str]:
    """What a person would have read, without paths and times."""
    shown = [line.partition(";")[0] for event in events if (line := build_line(event)) is not None]
    return [re.sub(r" (in|after) [\d.]+ (s|min)", "", line) for line in shown]


def test_missing_tools_are_built_in_order_and_then_found(
    cache: Path, go_calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.testbed.build.AT_ONCE", 1)
    events: list[BuildEvent] = []
    tools = ensure_tools([], events.append)

    assert lines(events) == [
        "[1/3] etcd: building, usually 40 s on two cores",
        "[1/3] etcd: built",
        "[2/3] kube-apiserver: building, usually 5.5 min on two cores",
        "[2/3] kube-apiserver: built",
        "[3/3] kubectl: building, usually 25 s on two cores",
        "[3/3] kubectl: built",
    ]
    assert tools["etcd"].read_text() == "built"
    assert tools["etcd"].is_relative_to(cache)
    assert len(go_calls.read_text().splitlines()) == 3

    again: list[BuildEvent] = []
    assert ensure_tools([], again.append) == tools
    assert [event.state for event in again] == ["ready"] * 3
    assert lines(again) == []
    assert len(go_calls.read_text().splitlines()) == 3


def test_two_of_one_module_are_never_built_together(
    cache: Path, go_calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.testbed.build.AT_ONCE", 2)
    monkeypatch.setenv("FAKE_GO_SECONDS", "0.2")
    events: list[BuildEvent] = []
    ensure_tools([], events.append)

    order = [(event.tool.name, event.state) for event in events]
    assert order[:2] == [("etcd", "building"), ("kube-apiserver", "building")]
    assert order.index(("kube-apiserver", "built")) < order.index(("kubectl", "building"))


def test_files_of_the_module_stay_beside_the_binary(cache: Path, go_calls: Path) -> None:
    tools = ensure_tools(["kwok"], lambda _: None)
    assert [path.name for path in tools.assets("kwok")] == ["pod-ready.yaml"]


def test_the_users_flags_do_not_reach_the_build(cache: Path, go_calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOFLAGS", "-race")
    monkeypatch.setenv("CGO_ENABLED", "1")
    ensure_tools([], lambda _: None)
    assert go_calls.read_text().splitlines()[0].split()[1:] == ["-mod=readonly", "0"]


def test_a_failed_build_names_the_tool_and_shows_the_end_of_its_log(
    cache: Path, go_calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_GO_FAILS", APISERVER)
    events: list[BuildEvent] = []
    with pytest.raises(ClusterError, match=r"(?s)kube-apiserver could not be built.*undefined: everything"):
        ensure_tools([], events.append)
    assert "failed" in {event.state for event in events}
    assert not list((cache / "tools" / "kube-apiserver").glob("*"))
    assert not list((cache / "tools").glob(".building-*"))


def test_builders_at_the_same_time_build_once(cache: Path, go_calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_SECONDS", "0.3")
    command = [sys.executable, "-m", "tests.testbed", "build", "--with", "control"]
    builders = [subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.DEVNULL) for _ in range(3)]
    assert [builder.wait(timeout=300) for builder in builders] == [0, 0, 0]
    assert len(go_calls.read_text().splitlines()) == 3


def test_without_go_the_error_says_what_to_install(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ClusterError, match=r"Go is not installed(?s:.*)Install Go 1\.26"):
        ensure_tools([], lambda _: None)


@pytest.mark.parametrize(
    ("present", "toolchain", "fine"),
    [
        pytest.param("go1.26.8", "local", True, id="the same release is fine"),
        pytest.param("go1.27.0", "local", True, id="a later release is fine"),
        pytest.param("go1.26.10", "local", True, id="ten comes after eight"),
        pytest.param("devel go1.28-abcdef", "local", True, id="a development version is later than any"),
        pytest.param("go1.26.2", "local", False, id="an older release is refused"),
        pytest.param("go1.26rc1", "local", False, id="a release candidate is older than the release"),
        pytest.param("go1.19.8", "", False, id="a Go too old to know toolchains is refused"),
        pytest.param("go1.26.2", "auto", True, id="an older release may fetch a later one"),
    ],
)
def test_go_must_be_recent_enough(present: str, toolchain: str, fine: bool) -> None:
    settings = {"GOVERSION": present, "GOTOOLCHAIN": toolchain}
    if fine:
        check_version(settings, "1.26.8")
    else:
        with pytest.raises(ClusterError, match=r"too old.*1\.26\.8 or later\n.*GOTOOLCHAIN=auto"):
            check_version(settings, "1.26.8")


def test_every_tool_says_how_long_it_takes() -> None:
    assert all(tool.usual_s > 0 for tool in TOOLS)
