"""The command `outrider simulate`: what it prints, writes and refuses."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from outrider.cli.main import app
from outrider.replay import table
from outrider.replay.policies import POLICIES
from outrider.replay.virtual import SAMPLE
from outrider.simulator.traces import TRACES

EXAMPLE = Path("examples/01-minimal.yaml")
QUICK = ["--duration", "60s", "--rate-factor", "1", "--jobs", "1"]
runner = CliRunner(env={"COLUMNS": "200"})


def test_the_resource_of_the_package_is_the_first_example() -> None:
    assert SAMPLE.read_text() == EXAMPLE.read_text()


def test_help_names_every_policy_and_trace() -> None:
    result = runner.invoke(app, ["simulate", "--help"])
    assert result.exit_code == 0
    said = " ".join(result.stdout.replace("│", " ").split())
    constants = {f"k{k}" for k in range(1, 7)}  # told as a range
    assert all(name in said for name in [*(POLICIES.keys() - constants), *TRACES])


def test_without_options_but_the_time_it_compares_a_few_policies() -> None:
    result = runner.invoke(app, ["simulate", *QUICK])
    assert result.exit_code == 0, result.output
    assert "ml/chat on 1 engine over 01:00 of azure-conversation at 1 times its rate" in result.stdout
    for name in ("no-drafter", "k1", "k5", "vllm-table", "outrider"):
        assert f"\n{name}: " in result.stdout
    assert "replayed 5 policies in" in result.stderr


def test_json_is_all_there_is_on_standard_output_and_the_page_is_written(tmp_path: Path) -> None:
    path = tmp_path / "result.html"
    more = ["-o", "json", "--html", str(path), "--policy", "k2", "--policy", "k2", "--seed", "7"]
    result = runner.invoke(app, ["simulate", str(EXAMPLE), *QUICK, *more])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [one["name"] for one in document["policies"]] == ["k2"]
    assert document["inputs"]["seed"] == 7
    assert path.read_text().startswith("<!doctype html>")
    assert str(path) in result.stderr


def scaled(*options: str) -> dict[str, Any]:
    crowd = ["--duration", "100s", "--rate-factor", "8", "--jobs", "1", "--policy", "outrider", "-o", "json"]
    result = runner.invoke(app, ["simulate", *crowd, *options])
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_gpus_bound_the_replicas_and_the_table_says_what_they_took_and_how_long_they_were_too_few() -> None:
    document = scaled("--gpus", "2", "--cold-start", "15s")
    assert document["inputs"]["replicas"] == {
        "fixed": None, "gpus_each": 1, "gpus": 2, "cold_start_s": 15.0, "min": 1, "max": 2,
    }  # fmt: skip
    totals = document["policies"][0]["totals"]
    assert totals["most_replicas"] == 2
    assert totals["short_share"] > 0.3
    assert any("more than the 2 replicas that there may be" in note for note in document["notes"])
    console = Console(record=True, width=200, file=io.StringIO())
    table.show(document, console)
    shown = console.export_text()
    assert "1 to 2 engines, autoscaled, 15 s to start, over 01:40" in shown
    assert f"{totals['gpu_seconds'] / 3600.0:.2f}" in shown


def test_engines_that_take_longer_to_start_leave_fewer_requests_within_the_objectives() -> None:
    quick, slow = (scaled("--cold-start", one)["policies"][0]["totals"] for one in ("5s", "90s"))
    assert quick["requests_met"] > slow["requests_met"]
    assert quick["most_replicas"] > 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param(["--policy", "magic"], "--policy magic: this resource can have no-drafter, k0", id="policy"),
        pytest.param(["--policy", "k7"], "--policy k7", id="a k above the ceiling"),
        pytest.param(["--duration", "long"], "--duration: 'long' is no duration; write for example", id="duration"),
        pytest.param(["--duration", "10s"], "give at least 60s", id="too short"),
        pytest.param(["--trace", "nowhere"], "--trace: 'nowhere' is neither a trace by name (azure-", id="trace"),
        pytest.param(["--rate-factor", "0"], "--rate-factor 0: must be a number above 0", id="rate"),
        pytest.param(["--rate-factor", "nan"], "--rate-factor nan", id="no rate"),
        pytest.param(["--rate-factor", "fast"], "--rate-factor fast: must be a number", id="no number"),
        pytest.param(["--acceptance", "2"], "--acceptance: acceptance '2' leaves 0 to 1", id="acceptance"),
        pytest.param(["--shift", "0.4"], "--shift: '0.4' is no shift; write TIME:CURVE", id="shift"),
        pytest.param(["--shift", "2h:0.4"], "give a longer --duration", id="shift after the end"),
        pytest.param(["--cold-start", "soon"], "--cold-start: 'soon' is no duration", id="cold start"),
        pytest.param(["--gpus", "1", "two.yaml"], "give 4 or more", id="fewer GPUs than the fewest replicas take"),
        pytest.param(["--max-replicas", "1", "two.yaml"], "give 2 or more", id="a most below the fewest"),
        pytest.param(["--html", "/no/such/place/page.html"], "--html /no/such/place/page.html", id="page"),
        pytest.param(["nothing.yaml"], "MANIFEST nothing.yaml: cannot be read", id="no file"),
        pytest.param(["README.md"], "MANIFEST README.md: not one YAML document", id="no yaml"),
        pytest.param([".github-is-no-resource.yaml"], "cannot be read", id="hidden file"),
        pytest.param(["pyproject.toml"], "MANIFEST pyproject.toml", id="another file"),
    ],
)
def test_a_mistake_names_its_option_and_what_to_write(options: list[str], said: str, tmp_path: Path) -> None:
    larger = EXAMPLE.read_text().replace("minReplicas: 1", "minReplicas: 2").replace("gpus: 1", "gpus: 2")
    (tmp_path / "two.yaml").write_text(larger)
    options = [str(tmp_path / one) if one == "two.yaml" else one for one in options]
    result = runner.invoke(app, ["simulate", *options])
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        pytest.param("kind: SpeculativeInferenceService", "kind: Deployment", "holds Deployment", id="kind"),
        pytest.param("  name: chat\n", "", "has no metadata.name", id="name"),
        pytest.param("method: eagle3", "method: eagle9", "method", id="what the API server would refuse"),
        pytest.param(
            "    maxSpeculativeTokens: 5", "    maxSpeculativeTokens: 5\n    tuning: {mode: 'Off'}",
            "nothing to compare", id="no drafter",
        ),
    ],
)  # fmt: skip
def test_a_resource_that_cannot_be_replayed_is_refused(before: str, after: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "service.yaml"
    path.write_text(EXAMPLE.read_text().replace(before, after))
    result = runner.invoke(app, ["simulate", str(path), *QUICK])
    assert result.exit_code == 2
    assert said in result.stderr
    assert str(path) in result.stderr
