"""The command `outrider simulate` with several services under one quota."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from outrider.cli.main import app
from tests.unit.replay.quota.builders import manifest, rates

runner = CliRunner(env={"COLUMNS": "200"})
QUICK = ["--duration", "90s", "--cold-start", "10s"]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Manifests of chat and code, and a trace for each."""
    found = {}
    for name, rate in (("chat", 2.0), ("code", 12.0)):
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(manifest(name)))
        found |= {name: str(path), f"{name} trace": rates(tmp_path, name, [rate] * 2)}
    return found


def test_services_are_replayed_together_each_with_its_own_load(files: dict[str, str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    loads = ["--trace", files["chat trace"], "--trace", f"code:{files['code trace']}", "--rate-factor", "1"]
    more = ["--acceptance", "0.8", "--acceptance", "code:0.3", "--shift", "code:60s:0.7", "--priority", "code:10"]
    command = ["simulate", files["chat"], files["code"], "--gpu-quota", "4", *QUICK, *loads, *more]
    result = runner.invoke(app, [*command, "--html", str(page), "-o", "json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    chat, code = document["services"]
    assert (chat["name"], code["name"], code["priority"]) == ("chat", "code", 10)
    assert (chat["inputs"]["trace"], code["inputs"]["trace"]) == (files["chat trace"], files["code trace"])
    assert [one["inputs"]["acceptance"][0]["curve"][0] for one in (chat, code)] == [0.8, 0.3]
    assert [len(one["inputs"]["shifts"]) for one in (chat, code)] == [0, 1]
    assert chat["inputs"]["seed"] != code["inputs"]["seed"]
    assert document["together"]["totals"]["most_gpus"] <= 4
    assert page.read_text().startswith("<!doctype html>")
    assert "replayed 2 services in" in result.stderr
    again = runner.invoke(app, [*command, "-o", "json"])
    assert again.stdout == result.stdout


def test_one_service_may_have_a_quota_too(files: dict[str, str]) -> None:
    options = ["--trace", files["code trace"], "--rate-factor", "code:1"]
    result = runner.invoke(app, ["simulate", files["code"], "--gpu-quota", "2", *QUICK, *options])
    assert result.exit_code == 0, result.output
    assert "1 service of ml on 2 nvidia.com/gpu over 01:30" in result.stdout
    assert "At most 2 of 2 GPUs were held at once" in result.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param("chat code", "several services are replayed under a quota that they share; give --gpu-quota"),
        pytest.param("chat chat --gpu-quota 4", "is of chat, as is "),
        pytest.param("chat code --gpu-quota 1", "--gpu-quota 1: the fewest replicas take chat 1 GPU, code 1"),
        pytest.param("chat code --gpu-quota 0", "--gpu-quota"),
        pytest.param("chat code --gpu-quota 4 --gpus 2", "--gpus 2: is for a service alone"),
        pytest.param("chat code --gpu-quota 4 --policy k1", "--policy k1: services that share a quota are steered by"),
        pytest.param("chat --priority chat:3", "--priority chat:3: decides between services that share a quota"),
        pytest.param("chat --gpu-quota 4 --priority chat:high", "write SERVICE:NUMBER, for example chat:1000"),
        pytest.param(
            "chat --gpu-quota 4 --priority mail:3", "--priority: no MANIFEST is of a service 'mail'; there are"
        ),
        pytest.param("chat code --gpu-quota 4 --rate-factor mail:3", "of a service 'mail'; there are chat, code"),
        pytest.param("chat code --gpu-quota 4 --trace mail:azure-code", "--trace: no MANIFEST is of a service 'mail'"),
        pytest.param("chat code --gpu-quota 4 --shift mail:1m:0.4", "--shift: no MANIFEST is of a service 'mail'"),
        pytest.param("chat code --gpu-quota 4 --acceptance code:2", "--acceptance: acceptance '2' leaves 0 to 1"),
    ],
)
def test_a_mistake_names_its_option_and_what_to_write(files: dict[str, str], options: str, said: str) -> None:
    result = runner.invoke(app, ["simulate", *(files.get(one, one) for one in options.split())])
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert "Traceback" not in result.output
