"""The command `outrider preflight`: what it reads, what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from outrider.api.defaults import resolve
from outrider.api.resource import parse
from outrider.cli.main import app
from outrider.cli.preflight_examination import DEPLOYMENT_CHECKS, Knowledge, examined
from outrider.cli.preflight_reading import Document
from outrider.engine.admission import CHECKS, admit, examine
from outrider.errors import InvalidSpec
from outrider.manifests import engine_settings
from tests.unit.api.bodies import EXAMPLES, ROOT, changed, example, refused
from tests.unit.engine.builders import LLAMA_8B

MINIMAL = str(ROOT / "examples" / "01-minimal.yaml")
PREFLIGHT = ("preflight",)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """On a terminal wide enough for every sentence."""
    monkeypatch.setenv("COLUMNS", "400")
    return CliRunner()


def run(runner: CliRunner, *arguments: str, **settings: Any) -> Result:
    return runner.invoke(app, [*PREFLIGHT, *arguments], **settings)


def written(folder: Path, changes: dict[str, Any] | None = None, name: str = "service.yaml") -> str:
    file = folder / name
    file.write_text(yaml.safe_dump(changed(example(), changes or {})), encoding="utf-8")
    return str(file)


def checks(result: Result, resource: int = 0) -> dict[str, dict[str, Any]]:
    document = json.loads(result.stdout)
    return {check["name"]: check for check in document["resources"][resource]["checks"]}


class TestEnd:
    def test_warnings_end_well(self, runner: CliRunner) -> None:
        result = run(runner, MINIMAL)
        assert result.exit_code == 0
        assert "pinned-revisions" in result.stdout
        assert result.stdout.splitlines()[-1].startswith("warning: ")

    def test_a_refusal_ends_with_one(self, runner: CliRunner, tmp_path: Path) -> None:
        result = run(runner, written(tmp_path, {"spec.engine": {"extraArgs": ["--swap-space", "4"]}}))
        assert result.exit_code == 1
        assert "vLLM 0.33.0 has no --swap-space" in result.stdout
        assert result.stdout.splitlines()[-1].startswith("refused: ")

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            pytest.param(("no-such-file.yaml",), "no-such-file.yaml: No such file or directory", id="no file"),
            pytest.param((str(ROOT / "crds"),), "no SpeculativeInferenceService in", id="nothing of ours"),
            pytest.param((MINIMAL, "--gpu-memory", "80"), "'80' is no amount of memory such as 80Gi", id="no unit"),
            pytest.param(
                (str(ROOT / "examples"), "--model-config", MINIMAL), "describe one pair, and there are", id="two pairs"
            ),
            pytest.param((MINIMAL, "--model-config", MINIMAL), "01-minimal.yaml: no JSON", id="no model"),
            pytest.param((MINIMAL, "--model-config", "nowhere"), "nowhere: No such file", id="no folder"),
        ],
    )
    def test_what_cannot_be_carried_out_ends_with_two(
        self, runner: CliRunner, arguments: tuple[str, ...], words: str
    ) -> None:
        result = run(runner, *arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("outrider: ")
        assert words in result.stderr

    @pytest.mark.parametrize(
        ("text", "place", "words"),
        [
            pytest.param("kind: [", (1, 8), "the bracket or brace of line 1 is not closed", id="an end too early"),
            pytest.param("a: {b: 1\nc: 2\n", (2, 2), "the bracket or brace of line 1 is not closed", id="no brace"),
            pytest.param("a: {b: 1 c: 2}\n", (1, 11), "or a comma is missing", id="no comma"),
            pytest.param('a: "X\nb: 1\n', (2, 5), "the quotes of line 1 are not closed", id="no closing quotes"),
            pytest.param("a:\n\tb: 1\n", (2, 1), "a tab: indent with spaces", id="a tab"),
            pytest.param("a:\n  b: 1\n c: 2\n", (3, 2), "look at its indentation", id="too few blanks"),
            pytest.param("a:\n  b: 1\n    c: 2\n", (3, 6), "the indentation of its neighbours", id="too many blanks"),
            pytest.param("a: b: c\n", (1, 5), "quotes around a value that holds a colon", id="a colon in a value"),
            pytest.param("a:1\nb: 2\n", (2, 2), "the line before has a colon with a blank after it", id="no blank"),
            pytest.param("a\nb: 2\n", (2, 2), "the line before has a colon", id="no colon"),
            pytest.param("a: 1\nb\n  c: 2\n", (3, 4), "the key in line 2 has no colon", id="no colon and a block"),
            pytest.param("a: @b\n", (1, 4), "put quotes around the value", id="a character of YAML's own"),
            pytest.param("a: *b\n", (1, 4), "put quotes around it", id="no such anchor"),
            pytest.param("a: [*]\n", (1, 6), "put quotes around it", id="a star"),
        ],
    )
    def test_a_file_that_is_no_yaml_is_told_where_and_what_to_do(
        self, runner: CliRunner, tmp_path: Path, text: str, place: tuple[int, int], words: str
    ) -> None:
        (tmp_path / "broken.yaml").write_text(text, encoding="utf-8")
        result = run(runner, str(tmp_path))
        assert result.exit_code == 2
        told, shown, mark = result.stderr.removesuffix("\n").split("\n")
        line, column = place
        assert f"broken.yaml, line {line}, column {column}: not valid YAML: " in told
        assert words in told
        assert "template" not in told
        assert shown == "  " + text.splitlines()[line - 1].replace("\t", " ")
        assert mark == " " * (2 + column - 1) + "^"

    @pytest.mark.parametrize("text", ["a: \x01\n", 'a: "\\q"\n', "a: }\n", "...\nb\n: :\n", "a: !!foo b\n", "? ]\n"])
    def test_other_faults_are_told_in_the_parsers_words(self, runner: CliRunner, tmp_path: Path, text: str) -> None:
        (tmp_path / "broken.yaml").write_text(text, encoding="utf-8")
        result = run(runner, str(tmp_path))
        assert result.exit_code == 2
        assert "not valid YAML: " in result.stderr

    def test_a_template_that_was_not_rendered(self, runner: CliRunner, tmp_path: Path) -> None:
        (tmp_path / "chart.yaml").write_text("{{- if .Values.chat }}\nkind: X\n{{- end }}\n", encoding="utf-8")
        result = run(runner, str(tmp_path))
        assert result.exit_code == 2
        assert "it looks like a template: render it first" in result.stderr

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            pytest.param("", "no SpeculativeInferenceService in standard input\n", id="nothing"),
            pytest.param(
                "kind: Secret\n---\nkind: ConfigMap\n",
                "no SpeculativeInferenceService in standard input, only ConfigMap, Secret\n",
                id="other kinds",
            ),
        ],
    )
    def test_input_without_a_resource(self, runner: CliRunner, text: str, words: str) -> None:
        result = run(runner, "-", input=text)
        assert (result.exit_code, result.stderr) == (2, f"outrider: {words}")

    def test_a_key_that_is_given_twice(self, runner: CliRunner, tmp_path: Path) -> None:
        (tmp_path / "twice.yaml").write_text("kind: X\nspec:\n  a: 1\n  a: 2\n", encoding="utf-8")
        result = run(runner, str(tmp_path))
        assert result.exit_code == 2
        assert "a is given twice: remove one of them" in result.stderr
        assert "line 4" in result.stderr


class TestReading:
    def test_several_documents_a_list_and_other_kinds(self, runner: CliRunner, tmp_path: Path) -> None:
        other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
        group = {"apiVersion": "v1", "kind": "List", "items": [other, example("02-fixed-batch-schedule")]}
        file = tmp_path / "all.yml"
        file.write_text(yaml.safe_dump_all([other, example(), group]), encoding="utf-8")
        result = run(runner, str(tmp_path), "-o", "json")
        found = [(one["source"], one["name"]) for one in json.loads(result.stdout)["resources"]]
        assert found == [(f"{file}, document 2", "chat"), (f"{file}, document 3", "code")]

    def test_standard_input(self, runner: CliRunner) -> None:
        result = run(runner, "-", "-o", "json", input=Path(MINIMAL).read_text(encoding="utf-8"))
        assert json.loads(result.stdout)["resources"][0]["source"] == "standard input"

    def test_the_configuration_of_a_model_from_a_file(self, runner: CliRunner, tmp_path: Path) -> None:
        (tmp_path / "target.json").write_text(json.dumps(LLAMA_8B), encoding="utf-8")
        (tmp_path / "draft.json").write_text(json.dumps(LLAMA_8B | {"num_attention_heads": 30}), encoding="utf-8")
        models = ("--model-config", str(tmp_path / "target.json"), "--draft-config", str(tmp_path / "draft.json"))
        file = written(tmp_path, {"spec.parallelism": {"tensor": 4}, "spec.resources": {"gpus": 4}})
        said = checks(run(runner, file, *models, "-o", "json"))["HeadsNotDivisible"]
        assert said["state"] == "refused"
        assert "the 30 attention heads of the drafter are not divisible by 4" in said["findings"][0]["message"]

    def test_a_model_that_is_a_folder_of_this_machine_is_read(self, runner: CliRunner, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B), encoding="utf-8")
        index = {"metadata": {"total_size": 40 * 2**30}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
        file = written(tmp_path, {"spec.model.id": str(tmp_path)})
        said = checks(run(runner, file, "--gpu-memory", "24Gi", "-o", "json"))["memory-fit"]
        assert said["state"] == "refused"
        assert "the weights need 40.0 GiB on each GPU (by the size of its files" in said["findings"][0]["message"]

    def test_files_of_weights_are_counted_where_there_is_no_index(self, runner: CliRunner, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B), encoding="utf-8")
        with (tmp_path / "model.safetensors").open("wb") as weights:
            weights.truncate(3 * 2**30)
        said = checks(run(runner, MINIMAL, "--model-config", str(tmp_path), "--gpu-memory", "80Gi", "-o", "json"))
        assert "weights 3.0 GiB (by the size of its files)" in said["memory-fit"]["findings"][0]["message"]


class TestOutput:
    def test_the_document_has_its_shape(self, runner: CliRunner) -> None:
        document = json.loads(run(runner, MINIMAL, "--output", "json").stdout)
        assert list(document) == ["version", "verdict", "resources"]
        assert (document["version"], document["verdict"]) == (1, "warning")
        (resource,) = document["resources"]
        assert list(resource) == ["source", "namespace", "name", "verdict", "checks"]
        assert (resource["namespace"], resource["name"], resource["verdict"]) == ("ml", "chat", "warning")
        for check in resource["checks"]:
            assert list(check) == ["name", "group", "state", "findings", "why", "remedy", "reference"]
            assert check["group"] in ("form", "admission", "deployment")
            assert check["state"] in ("ok", "warning", "refused", "notChecked")
            assert check["findings"]
            for finding in check["findings"]:
                assert list(finding) == ["state", "field", "code", "message"]

    def test_every_check_of_admission_and_of_the_list_is_there_once(self, runner: CliRunner) -> None:
        names = [
            check["name"] for check in json.loads(run(runner, MINIMAL, "-o", "json").stdout)["resources"][0]["checks"]
        ]
        assert names == [
            "form",
            *(check.code for check in CHECKS),
            "Rendering",
            *(check.name for check in DEPLOYMENT_CHECKS),
        ]
        assert len(DEPLOYMENT_CHECKS) >= 14

    def test_the_same_files_give_the_same_document(self, runner: CliRunner) -> None:
        first, second = (run(runner, str(ROOT / "examples"), "-o", "json").stdout for _ in range(2))
        assert first == second

    def test_no_colour_where_nobody_sees_it(self, runner: CliRunner) -> None:
        assert "\x1b" not in run(runner, MINIMAL).stdout

    def test_colour_on_a_terminal(self, runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        assert "\x1b[33mwarning" in run(runner, MINIMAL).stdout

    def test_where_nobody_sees_it_each_finding_is_a_line(
        self, runner: CliRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "40")
        lines = run(runner, MINIMAL).stdout.splitlines()
        assert lines[0] == f"ml/chat ({MINIMAL})"
        (line,) = [line for line in lines if "workload-fit" in line]
        assert " ".join(line.split()) == "not checked workload-fit the workload is not known: name it with --workload"

    @pytest.mark.parametrize(("columns", "tabular"), [("71", False), ("72", True)])
    def test_a_narrow_terminal_has_no_table(
        self, runner: CliRunner, monkeypatch: pytest.MonkeyPatch, columns: str, tabular: bool
    ) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", columns)
        stdout = run(runner, MINIMAL).stdout
        assert ("│" in stdout) is tabular
        assert "the workload is not known" in stdout

    def test_the_table_says_what_was_not_checked_and_why(self, runner: CliRunner) -> None:
        lines = run(runner, MINIMAL).stdout.splitlines()
        (workload,) = [line for line in lines if "workload-fit" in line]
        assert "not checked" in workload
        assert "name it with --workload" in workload

    def test_rules_that_are_met_are_named_on_demand(self, runner: CliRunner) -> None:
        assert "GpusNotUsed" not in run(runner, MINIMAL).stdout
        assert "GpusNotUsed" in run(runner, MINIMAL, "--all").stdout

    def test_a_refusal_of_admission_stands_in_the_table_once(self, runner: CliRunner, tmp_path: Path) -> None:
        stdout = run(runner, written(tmp_path, {"spec.model.id": "org/model-70B"}), "--gpu-memory", "16Gi").stdout
        assert stdout.count("the weights need") == 1


class TestSentences:
    """Preflight says what the operator would say."""

    @pytest.mark.parametrize(
        "changes",
        [
            {"spec.engine": {"extraArgs": ["--max-num-seq", "4"]}},
            {"spec.engine": {"version": "0.20.2", "maxQueuedRequests": 300}},
            {"spec.speculation.method": "draft_model", "spec.engine": {"version": "0.11.0"}},
            {"spec.engine": {"kvTransfer": {"connector": "NixlConnector", "role": "Producer"}}},
            {"spec.model.quantization": "gguf"},
        ],
    )
    def test_of_admission(self, runner: CliRunner, tmp_path: Path, changes: dict[str, Any]) -> None:
        result = run(runner, written(tmp_path, changes), "-o", "json")
        resource = parse(changed(example(), changes))
        engine = engine_settings.engine_config(resource, resolve(resource.spec))
        assert [
            (finding["code"], finding["message"])
            for check in checks(result).values()
            if check["group"] == "admission"
            for finding in check["findings"]
            if finding["code"]
        ] == sorted(
            ((one.code, one.message) for one in examine(engine)),
            key=lambda said: [check.code for check in CHECKS].index(said[0]),
        )

    def test_of_a_refusal(self, runner: CliRunner, tmp_path: Path) -> None:
        changes = {"spec.engine": {"extraArgs": ["--swap-space=4"]}}
        resource = parse(changed(example(), changes))
        with pytest.raises(InvalidSpec) as refusal:
            admit(engine_settings.engine_config(resource, resolve(resource.spec)))
        said = checks(run(runner, written(tmp_path, changes), "-o", "json"))[refusal.value.reason]
        assert [finding["message"] for finding in said["findings"]] == [refusal.value.message]

    @pytest.mark.parametrize("row", refused(), ids=lambda row: row["case"])
    def test_of_the_form(self, row: dict[str, Any]) -> None:
        body = changed(example(), row["set"])
        outcomes, subject = examined(Document("service.yaml", body), Knowledge())
        ((group, form),) = outcomes
        assert (group, form.state, subject) == ("form", "refused", None)
        with pytest.raises(InvalidSpec) as refusal:
            parse(body)
        for verdict in form.verdicts:
            said = verdict.message.removesuffix("; write the word in quotes: YAML reads a bare Off as a boolean")
            assert said in refusal.value.message or "there is no such field" in said


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_not_refused(path: Path, runner: CliRunner) -> None:
    assert run(runner, str(path)).exit_code == 0
