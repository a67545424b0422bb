"""What the command line says when it is used wrongly, or there is nothing to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testbed.__main__ import main
from tests.testbed.processes import ProcessTable
from tests.testbed.state import ClusterState, end, this_process


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["up", "--with", "kedda"], "there is no part 'kedda'", id="an unknown part"),
        pytest.param(["up", "--name", "../x"], "small letters, digits and dashes", id="a name that is a path"),
        pytest.param(["up", "--dilation", "0"], "must be above 0", id="time that stands still"),
        pytest.param([], "required: COMMAND", id="no command"),
    ],
)
def test_a_wrong_call_ends_with_status_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["down"], "there is no cluster 'default'", id="nothing to end"),
        pytest.param(["kubeconfig"], "Start it: python -m tests.testbed up", id="nothing to point at"),
        pytest.param(["status"], "No cluster runs.", id="nothing to describe"),
    ],
)
def test_nothing_running_is_status_1_and_the_way_on(
    cache: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    output = capsys.readouterr()
    assert said in output.out + output.err
    assert "\033" not in output.out + output.err


def test_a_name_that_does_not_run_gets_the_names_that_do(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = cache / "clusters" / "run-1"
    folder.mkdir(parents=True)
    ClusterState(str(folder), ("control",), 17, str(folder / "kubeconfig"), "kubectl", "", this_process()).write()
    ProcessTable(folder).start("sleeper", ["/bin/sleep", "60"])
    try:
        assert main(["kubeconfig", "--name", "mine"]) == 1
    finally:
        end(ProcessTable(folder))
    said = capsys.readouterr().err
    assert "cluster 'mine' does not run" in said
    assert "These run: run-1 (--name run-1). Start it: python -m tests.testbed up --name mine" in said


def test_a_missing_go_is_told_in_words(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["build", "--with", "control"]) == 1
    assert "error: Go is not installed" in capsys.readouterr().err


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    printed = capsys.readouterr().out
    assert all(f"\n    {word}" in printed for word in ("build", "up", "down", "status", "kubeconfig"))
