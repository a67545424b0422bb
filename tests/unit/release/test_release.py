"""What a release is made of: one version, a changelog, images, and a workflow that nothing here can run."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import outrider
from outrider.engine.capabilities import parse_version
from outrider.reference import support
from tests.testbed.tools import TOOLS, module_version

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WORKFLOW = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
HADOLINT = Path(sys.executable).with_name("hadolint")


def steps() -> list[dict[str, Any]]:
    jobs: dict[str, Any] = yaml.safe_load(WORKFLOW)["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


class TestVersion:
    def test_the_package_the_chart_and_the_images_have_one_version(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert project.get("version", outrider.__version__) == outrider.__version__
        assert ("version" in project) != ("version" in project.get("dynamic", []))
        for dockerfile in (ROOT / "operator" / "Dockerfile", ROOT / "runtime" / "Dockerfile"):
            assert f"ARG OUTRIDER_VERSION={outrider.__version__}\n" in dockerfile.read_text(encoding="utf-8")
        for path in ROOT.glob("charts/*/Chart.yaml"):
            chart = yaml.safe_load(path.read_text(encoding="utf-8"))
            assert {str(chart["version"]), str(chart["appVersion"])} == {outrider.__version__}

    def test_the_command_prints_it(self) -> None:
        command = [sys.executable, "-c", "from outrider.cli.main import main; main()", "--version"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout == f"outrider {outrider.__version__}\n"


class TestChangelog:
    TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

    def test_versions_fall_and_none_is_later_than_ours(self) -> None:
        first, *released = re.findall(r"^## \[(.+?)\]", self.TEXT, re.MULTILINE)
        assert first == "Unreleased"
        numbers = [parse_version(version) for version in released]
        assert numbers == sorted(numbers, reverse=True)
        assert all(number <= parse_version(outrider.__version__) for number in numbers)

    def test_parts_are_those_of_keep_a_changelog(self) -> None:
        parts = set(re.findall(r"^### (.+)$", self.TEXT, re.MULTILINE))
        assert parts
        assert parts <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


class TestWorkflow:
    def test_every_action_is_pinned_by_commit_with_its_version_beside(self) -> None:
        for path in WORKFLOWS:
            uses = re.findall(r"^\s*(?:- )?uses: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert uses
            for line in uses:
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line

    def test_an_action_has_one_commit_everywhere(self) -> None:
        pairs = {tuple(line.split("@")) for line in re.findall(r"uses: (\S+)", WORKFLOW)}
        assert len({name for name, _ in pairs}) == len(pairs)

    def test_rights_are_none_until_a_job_takes_them(self) -> None:
        workflow = yaml.safe_load(WORKFLOW)
        assert workflow["permissions"] == {}
        writes = {
            name: {right for right, level in job["permissions"].items() if level == "write"}
            for name, job in workflow["jobs"].items()
        }
        attest = {"id-token", "attestations"}
        assert writes == {
            "test": set(),
            "packages": attest,
            "image": attest | {"packages"},
            "chart": attest | {"packages"},
            "publish": {"contents"},
        }

    def test_no_expression_is_pasted_into_a_script(self) -> None:
        """A value that somebody else chose, such as a tag's name, would be run."""
        assert [step["run"] for step in steps() if "${{" in step.get("run", "")] == []

    def test_each_thing_that_is_pushed_is_signed_and_attested(self) -> None:
        jobs = yaml.safe_load(WORKFLOW)["jobs"]
        for name in ("image", "chart"):
            text = yaml.safe_dump(jobs[name])
            assert "cosign sign --yes" in text
            assert "attest-build-provenance@" in text
        assert "attest-sbom@" in yaml.safe_dump(jobs["image"])
        assert "attest-sbom@" in yaml.safe_dump(jobs["packages"])

    @pytest.mark.parametrize(
        "name",
        [
            "operator/Dockerfile",
            "runtime/Dockerfile",
            "requirements/operator.txt",
            ".ci/run",
            "tests/testbed/tools/helm/go.mod",
            "tests/testbed/tools/prometheus/go.mod",
        ],
    )
    def test_files_that_it_takes_exist(self, name: str) -> None:
        assert name in WORKFLOW
        assert (ROOT / name).is_file()


class TestOperatorImage:
    TEXT = (ROOT / "operator" / "Dockerfile").read_text(encoding="utf-8")

    def test_the_linter_finds_nothing(self) -> None:
        done = subprocess.run([str(HADOLINT), str(ROOT / "operator" / "Dockerfile")], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "")

    def test_it_pins_its_base_and_its_packages_and_is_not_root(self) -> None:
        assert "FROM python:${PYTHON_VERSION}@${PYTHON_DIGEST}\n" in self.TEXT
        assert "--require-hashes -r /dist/operator.txt" in self.TEXT
        assert self.TEXT.rstrip().endswith(
            'USER 1000:1000\nWORKDIR /\nEXPOSE 8080 8081\nENTRYPOINT ["outrider"]\nCMD ["run"]'
        )

    def test_its_packages_are_those_of_the_tests(self) -> None:
        operator, tested = (self.pins(name) for name in ("operator.txt", "dev.txt"))
        assert len(operator) > 30
        assert operator.items() <= tested.items()
        assert "pytest" not in operator

    @staticmethod
    def pins(name: str) -> dict[str, str]:
        text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
        return dict(re.findall(r"^([\w.\[\]-]+)==(\S+)", text, re.MULTILINE))


class TestSupportPage:
    PAGE = support.page(ROOT)

    def test_it_has_the_version_of_every_program_that_the_local_cluster_runs(self) -> None:
        shown = dict(re.findall(r"^\| (\w+) \| ([\d.]+) \|.*go\.mod", self.PAGE, re.MULTILINE))
        folders = {folder: (name, module, major) for name, folder, module, major in support.PROGRAMS}
        assert {tool.folder for tool in TOOLS} <= folders.keys()
        for tool in TOOLS:
            name, module, major = folders[tool.folder]
            version = module_version(tool.go_mod.read_text(encoding="utf-8"), module)
            assert shown[name] == version or (major and shown[name].split(".")[0] == major)

    def test_the_chart_refuses_what_is_older_than_the_page_says(self) -> None:
        chart = yaml.safe_load((ROOT / "charts" / "outrider" / "Chart.yaml").read_text(encoding="utf-8"))
        assert chart["kubeVersion"] == f">={support.OLDEST['Kubernetes']}.0-0"

    def test_prometheus_bears_the_number_that_its_users_know(self) -> None:
        assert re.search(r"^\| Prometheus \| 3\.\d+\.\d+ \|", self.PAGE, re.MULTILINE)

    def test_a_file_without_the_version_is_an_error(self, tmp_path: Path) -> None:
        folder = tmp_path / "tests" / "testbed" / "tools" / "keda"
        folder.mkdir(parents=True)
        (folder / "go.mod").write_text("module x\n")
        with pytest.raises(ValueError, match="requires no version of"):
            support.page(tmp_path)
