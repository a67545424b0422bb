"""While tools are built: progress and a simulation, and nothing of either when there is nothing to build."""

from __future__ import annotations

import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from demo import waiting
from demo.scenario import Scenario
from demo.waiting import FIRST_BUILD, Waiting
from tests.testbed.build import BuildEvent, State
from tests.testbed.tools import tools_of


def event(state: State) -> BuildEvent:
    return BuildEvent(state, tools_of(["control"])[0], Path("build.log"), position=1, total=2, elapsed_s=3.0)


def console() -> tuple[Console, StringIO]:
    output = StringIO()
    return Console(file=output, width=100, force_terminal=False), output


def test_nothing_is_said_when_all_tools_are_there() -> None:
    shown, output = console()
    screen = Waiting(shown, Scenario())
    screen.report(event("ready"))
    screen.close()
    assert output.getvalue() == ""


def test_a_build_is_announced_at_once_and_a_labelled_simulation_runs_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "SPEED", 1e4)
    shown, output = console()
    screen = Waiting(shown, Scenario())
    screen.report(event("building"))
    assert FIRST_BUILD[:40] in output.getvalue()
    seen, deadline_s = "", time.monotonic() + 120
    while "service=chat" not in seen and time.monotonic() < deadline_s:
        screen._over.wait(0.05)
        seen += capsys.readouterr().out
    screen.close()
    assert all(text.startswith("simulation-in-virtual-time ") for text in seen.splitlines())
    assert "service=chat" in seen
    assert "building, usually" in output.getvalue()
