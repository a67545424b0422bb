"""``outrider predict``: what it prints for the shipped profile, and how it refuses."""

from __future__ import annotations

import builtins
import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from outrider.cli.main import app

SHIPPED = json.loads((files("outrider.simulator") / "data" / "h100-llama8b-eagle.json").read_text())


def predict(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["predict", *arguments], env={"COLUMNS": "200"})


def document(*arguments: str) -> dict[str, Any]:
    result = predict("-o", "json", *arguments)
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def arm(result: dict[str, Any], name: str) -> dict[str, Any]:
    return next(dict(one) for one in result["arms"] if one["name"] == name)


def test_without_a_profile_it_is_the_shipped_one_with_all_its_k() -> None:
    names = [one["name"] for one in document()["arms"]]
    assert names == ["no drafter", *[f"K {k}" for k in range(7)], "best table"]


def test_latency_grows_with_load_until_saturation() -> None:
    three = arm(document("--load", "1,5,10,20,500"), "K 3")
    latencies = [point["latencySeconds"] for point in three["points"] if point]
    assert latencies == sorted(latencies)
    assert three["points"][-1] is None
    assert three["saturationRps"] < 500


def test_the_best_table_is_at_no_load_slower_than_a_constant_k() -> None:
    result = document()
    for row in range(len(result["loads"])):
        points = [one["points"][row] for one in result["arms"] if one["numSpeculativeTokens"] is not None]
        least = min(point["latencySeconds"] for point in points if point)
        assert arm(result, "best table")["points"][row]["latencySeconds"] <= least * 1.001


def test_a_drafter_that_does_not_draft_only_costs() -> None:
    assert arm(document(), "K 0")["breakEvenRps"] == 0.0


def test_drafts_that_are_never_accepted_are_never_faster(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({**SHIPPED, "acceptance": [0.0] * 6}))
    assert arm(document(str(path)), "K 3")["breakEvenRps"] == 0.0


def test_engines_for_a_load_within_an_objective() -> None:
    result = document("--tpot-ms", "12", "--total-load", "100")
    assert arm(result, "K 3")["replicas"] < arm(result, "no drafter")["replicas"]
    impossible = document("--tpot-ms", "1", "--total-load", "100")
    assert arm(impossible, "K 3")["replicas"] is None


def test_longer_answers_lower_the_load_that_an_engine_takes() -> None:
    short, long = (arm(document("--output-tokens", tokens), "K 3")["saturationRps"] for tokens in ("100", "400"))
    assert short > 2 * long


def test_beyond_the_measured_batches_points_are_marked() -> None:
    rate = str(0.99 * arm(document("--max-batch", "512"), "K 3")["saturationRps"])
    assert arm(document("--max-batch", "512", "--load", rate), "K 3")["points"][0]["extrapolated"]


@pytest.mark.parametrize("form", ["table", "wide"])
def test_tables_show_each_arm_and_the_summary(form: str) -> None:
    result = predict("-o", form, "--k", "1,3", "--load", "1,10,500", "--tpot-ms", "12", "--total-load", "100")
    assert result.exit_code == 0
    for said in ("no drafter", "K 1", "K 3", "best table", "break-even", "engines for 100 req/s", "—"):
        assert said in result.stdout
    assert ("B 1" in result.stdout) is (form == "wide")


def test_the_plot_is_svg_with_a_line_an_arm(tmp_path: Path) -> None:
    path = tmp_path / "law.svg"
    assert predict("--k", "1,3", "--plot", str(path)).exit_code == 0
    assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_without_matplotlib_the_plot_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    result = predict("--plot", str(tmp_path / "law.svg"))
    assert result.exit_code == 2
    assert "pip install matplotlib" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--k", "1,9"], "--k: K 9 is not in the profile, which has 0, 1, 2, 3, 4, 5, 6"),
        (["--k", "many"], "--k: 'many' is no list of numbers"),
        (["--load", "1,-2"], "--load: numbers from 0 on are needed"),
        (["--tpot-ms", "12"], "--tpot-ms needs --total-load"),
        (["--total-load", "12"], "--total-load needs --tpot-ms"),
        (["--plot", "/nowhere/law.svg"], "--plot /nowhere/law.svg: No such file"),
        (["/nowhere/profile.json"], "PROFILE /nowhere/profile.json: No such file"),
        (["--output-tokens", "1"], "--output-tokens"),
        (["-o", "xml"], "--output"),
    ],
)
def test_refusals_name_the_option(arguments: list[str], complaint: str) -> None:
    result = predict(*arguments)
    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "PROFILE"),
        ("[]", "not of the expected form"),
        (json.dumps({**SHIPPED, "prefill": []}), "needs acceptance, and prefill"),
        (json.dumps({**SHIPPED, "rows": [{}]}), "has no field 'capture_size'"),
    ],
)
def test_a_damaged_profile_is_refused_with_the_reason(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    result = predict(str(path))
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_help_says_what_is_predicted() -> None:
    result = predict("--help")
    assert result.exit_code == 0
    assert "break-even" in result.stdout
