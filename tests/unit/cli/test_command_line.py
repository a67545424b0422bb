"""The command `outrider`: what it prints, and how it fails."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from outrider import __version__
from outrider.cli.main import app
from outrider.settings import Settings, variable


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """With an environment that says nothing about Outrider."""
    for name in [name for name in os.environ if name.startswith("OUTRIDER_")]:
        monkeypatch.delenv(name)
    return CliRunner()


def test_version(runner: CliRunner) -> None:
    result = runner.invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"outrider {__version__}\n")


def test_help_names_the_commands(runner: CliRunner) -> None:
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "run" in result.stdout
    assert "Speculative-decoding inference services" in result.stdout


def test_help_of_a_command_says_where_its_settings_come_from(runner: CliRunner) -> None:
    result = runner.invoke(app, ["run", "--help"])
    assert result.exit_code == 0
    said = " ".join(result.stdout.replace("│", " ").split())
    assert all(variable(name) in said for name in Settings.model_fields)
    assert "OUTRIDER_PROMETHEUS_URL: Where engine metrics are asked for (required, for example" in said
    assert "OUTRIDER_PAUSED: Observe and explain for the whole fleet, change nothing (default: false)" in said
    assert ": (" not in said, "every variable says what it is"
    assert "OUTRIDER_CONTROL_PERIOD_S: Seconds between two control passes (default: 15)" in said


def test_without_a_command_the_help_is_shown(runner: CliRunner) -> None:
    result = runner.invoke(app, [])
    assert "Usage" in result.output


def test_run_without_settings_names_what_is_missing(runner: CliRunner) -> None:
    result = runner.invoke(app, ["run"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        "outrider: setting OUTRIDER_PROMETHEUS_URL: is not set; write for example"
        " OUTRIDER_PROMETHEUS_URL=http://prometheus-operated.monitoring:9090\n"
    )


def test_run_names_every_setting_that_is_wrong(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_PROMETHEUS_URL", "prometheus:9090")
    monkeypatch.setenv("OUTRIDER_LEASE_S", "10")
    result = runner.invoke(app, ["run"])
    assert result.exit_code == 2
    faults = result.stderr.splitlines()
    assert [fault.split(":")[1].strip() for fault in faults] == [
        "setting OUTRIDER_PROMETHEUS_URL",
        "setting OUTRIDER_LEASE_S",
    ]


def test_an_unknown_command_is_no_trace(runner: CliRunner) -> None:
    result = runner.invoke(app, ["steer"])
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_the_commands_are_known_without_loading_what_they_run_on() -> None:
    heavy = ("kopf", "numpy", "scipy", "pydantic", "kubernetes", "aiohttp")
    program = f"import sys, outrider.cli.main; print([name for name in {heavy} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert loaded == "[]\n", "what one command needs is imported in its function: help must come at once"


def test_the_list_of_commands_says_where_the_settings_of_run_stand(runner: CliRunner) -> None:
    said = " ".join(runner.invoke(app, ["--help"]).stdout.replace("│", " ").split())
    assert "Settings come from the environment; run --help lists them." in said


def test_completion_of_bash_is_a_script() -> None:
    program = "import os, sys; from outrider.cli.main import main; sys.argv = ['outrider', *sys.argv[1:]]; main()"
    # The shell is told from the processes above; it stays one of them where its command is not the last.
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(program)} --show-completion; exit $?"
    told = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
    assert "_OUTRIDER_COMPLETE=complete_bash" in told
    assert "complete -o default -F _outrider_completion outrider" in told
