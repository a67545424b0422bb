"""The command `outrider`: what it prints, and how it fails."""

from __future__ import annotations

import os

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
