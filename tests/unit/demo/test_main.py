"""How the demo ends: in a sentence, whatever ends it."""

from __future__ import annotations

import argparse
import asyncio
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import demo.__main__ as program
from demo import play, report
from demo.neighbours import NoAnswer, ServiceGone
from tests.testbed.errors import ClusterError


class FakeCluster:
    """A cluster that is entered and left; its logs stay."""

    def __init__(self, folder: Path) -> None:
        self.run_dir, self.logs, self.kubeconfig = folder, folder / "logs", folder / "kubeconfig"
        self.logs.mkdir()

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class Ending(program.Demo):
    """A demo that ends in a way of its own, without and with results."""

    error: BaseException | None = None

    def _show(self) -> bool:
        if self.error is not None:
            raise self.error
        self.results = self._options.output
        return True


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command with a demo that ends with this error, or else when it is interrupted while it waits."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    def run(error: BaseException | None, *arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(Ending, "error", error)
        monkeypatch.setattr(program, "Demo", Ending)
        monkeypatch.setattr(program.stage, "new_cluster", lambda: FakeCluster(tmp_path))
        monkeypatch.setattr(program.waiting, "build", lambda *_: 0.0)
        monkeypatch.setattr(program.signal, "pause", interrupt)
        status = program.main(arguments)
        return status, capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ServiceGone("chat"), id="somebody deleted a service"),
        pytest.param(NoAnswer("Prometheus is away"), id="a neighbour went away"),
        pytest.param(ClusterError("keda ended during the demo"), id="a process of the cluster ended"),
    ],
)
def test_a_fault_is_a_sentence_and_where_the_logs_are(ended: Any, tmp_path: Path, error: Exception) -> None:
    status, said = ended(error)
    assert status == 1
    assert f"error: {error}" in said
    assert f"logs: {tmp_path / 'logs'}" in said.replace("\n", "")


def test_an_interrupt_while_one_looks_around_says_at_once_that_it_ends_and_then_what_stays(
    ended: Any, tmp_path: Path
) -> None:
    status, said = ended(None)
    assert status == 0
    first, last = [line for line in said.splitlines() if "end" in line]
    assert first.startswith("ending the cluster")
    assert last == (
        f"ended, nothing was left running; results: {Path('build/demo/index.html')}; logs: {tmp_path / 'logs'}"
    )


def test_an_interrupt_before_ends_in_the_same_words(ended: Any, tmp_path: Path) -> None:
    status, said = ended(KeyboardInterrupt())
    assert status == program.INTERRUPTED
    assert "ending the cluster" in said
    assert said.splitlines()[-1] == f"ended, nothing was left running; logs: {tmp_path / 'logs'}"


async def test_a_fault_is_taken_out_of_the_groups_of_its_task_groups() -> None:
    async def fail() -> None:
        async with asyncio.TaskGroup() as outer, asyncio.TaskGroup() as inner:
            inner.create_task(asyncio.sleep(3600))
            outer.create_task(_raise(ServiceGone("chat")))
            await asyncio.sleep(3600)

    task = asyncio.create_task(fail())
    await asyncio.wait([task], timeout=60)
    assert isinstance(task.exception(), BaseExceptionGroup)
    with pytest.raises(ServiceGone):
        play._raise_fault(task)


async def _raise(error: Exception) -> None:
    raise error


def test_the_way_in_begins_with_a_command_that_shows_both_services(tmp_path: Path) -> None:
    console = Console(file=StringIO(), width=80, force_terminal=False)
    report.way_in(console, FakeCluster(tmp_path), "Look around:")  # type: ignore[arg-type]
    output = console.file
    assert isinstance(output, StringIO)
    lines = [line.strip() for line in output.getvalue().splitlines() if line]
    assert lines[0] == "Look around:"
    assert lines[1] == f"export KUBECONFIG={tmp_path / 'kubeconfig'}"
    assert lines[2] == "kubectl get sis -n ml -o wide"


def test_options_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    parser: argparse.ArgumentParser = program._parser()
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["--seconds", "1"])
    assert "the story needs" in capsys.readouterr().err
