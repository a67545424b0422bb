"""The page of commands: all that the command line has, with statuses that tests pin."""

from __future__ import annotations

import pytest
from typer.main import get_command

from outrider.cli import exits
from outrider.cli.main import app
from outrider.reference import commands
from outrider.reference.__main__ import HEADER
from tests.unit.api.bodies import ROOT


def test_the_committed_page_is_what_the_commands_say() -> None:
    assert (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8") == HEADER + commands.page()


def test_every_command_and_option_is_on_the_page() -> None:
    text = commands.page()
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        section = text.split(f"## outrider {name}\n", 1)[1].split("\n## ", 1)[0]
        assert "For example" not in section
        for option in command.params:
            assert all(f"`{spelling}`" in section for spelling in option.opts if spelling.startswith("-"))


def test_statuses_are_those_that_scripts_know() -> None:
    assert (exits.WELL, exits.NO, exits.FAILED, exits.ABSENT, exits.INTERRUPTED) == (0, 1, 2, 3, 130)


@pytest.mark.parametrize("name", ["status", "explain", "top", "report", "support-bundle", "preflight", "simulate"])
def test_every_command_that_answers_takes_the_three_forms(name: str) -> None:
    section = commands.page().split(f"## outrider {name}\n", 1)[1].split("\n## ", 1)[0]
    assert "One of `table`, `json`, `yaml`." in section
