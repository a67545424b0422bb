"""The runtime image's Dockerfile: nothing here can build it, so it is linted and its promises are read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from outrider import __version__
from outrider.api import defaults
from outrider.engine import command_line
from outrider.engine.capabilities import KNOWN_BEST
from tests.unit.engine.builders import config

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = ROOT / "runtime" / "Dockerfile"
HADOLINT = Path(sys.executable).with_name("hadolint")


def instructions(text: str) -> list[tuple[str, str]]:
    """Instructions in order with what follows them, comments left out and continued lines joined."""
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", kept)
    return [
        (word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines()) if word
    ]


FOUND = instructions(DOCKERFILE.read_text())


def arguments_of(instruction: str) -> list[str]:
    """What follows each instruction of this kind."""
    return [rest for word, rest in FOUND if word == instruction]


def lint(path: Path) -> list[str]:
    """What hadolint finds at any level, pragmas ignored."""
    command = [str(HADOLINT), "--format", "json", "--no-fail", "--disable-ignore-pragma", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [f"line {fault['line']}: {fault['code']} {fault['message']}" for fault in json.loads(done.stdout)]


def test_the_linter_finds_nothing() -> None:
    assert lint(DOCKERFILE) == []


@pytest.mark.parametrize(
    ("good", "bad", "code"),
    [
        pytest.param(
            "FROM vllm/vllm-openai:${VLLM_VERSION}@${VLLM_DIGEST}", "FROM vllm/vllm-openai", "DL3006", id="no tag"
        ),
        pytest.param("USER 1000:1000", "USER 0", "DL3002", id="root at the end"),
        pytest.param(
            '["python3", "-m", "outrider_runtime.serve"]',
            "python3 -m outrider_runtime.serve",
            "DL3025",
            id="shell form",
        ),
        pytest.param("WORKDIR /", "ADD x.py /", "DL3020", id="ADD"),
        pytest.param("WORKDIR /", "RUN apt-get install gcc", "DL3008", id="packages"),
    ],
)
def test_the_linter_would_find(tmp_path: Path, good: str, bad: str, code: str) -> None:
    text = DOCKERFILE.read_text()
    assert good in text
    spoilt = tmp_path / "Dockerfile"
    spoilt.write_text(text.replace(good, bad))
    assert any(code in fault for fault in lint(spoilt))


def test_the_base_is_the_official_image_by_version_and_digest() -> None:
    assert arguments_of("FROM") == ["vllm/vllm-openai:${VLLM_VERSION}@${VLLM_DIGEST}"]
    before = [rest for word, rest in FOUND[: FOUND.index(("FROM", arguments_of("FROM")[0]))] if word == "ARG"]
    version, digest, check = before
    assert version == f"VLLM_VERSION=v{KNOWN_BEST}"
    assert digest == "VLLM_DIGEST"  # none by default, and without one the next line ends the build with a sentence
    assert re.fullmatch(
        r'DIGEST_IS_GIVEN="\$\{VLLM_DIGEST:\?look up the digest .* --build-arg VLLM_DIGEST=sha256:…}"', check
    )


def test_it_runs_as_the_user_of_the_pods() -> None:
    assert arguments_of("USER")[-1] == f"{defaults.USER_ID}:{defaults.USER_ID}"
    (install,) = arguments_of("RUN")
    assert f"install -d -o {defaults.USER_ID} -g {defaults.USER_ID} {command_line.CACHE_PATH}" in install


def test_it_takes_one_wheel_and_nothing_from_anywhere_else() -> None:
    (install,) = arguments_of("RUN")
    assert "--no-index --no-deps /dist/outrider-*.whl" in install
    assert not re.search(r"\b(apt|apt-get|curl|wget|gcc|git)\b", install)
    assert not {"ADD", "COPY"} & {word for word, _ in FOUND}


def test_it_starts_the_plugin_on_the_ports_that_the_operator_expects() -> None:
    assert json.loads(arguments_of("ENTRYPOINT")[0]) == ["python3", "-m", "outrider_runtime.serve"]
    assert arguments_of("CMD") == []  # the operator gives arguments and nothing else
    assert arguments_of("EXPOSE") == [f"{command_line.HTTP_PORT} {command_line.ADMIN_PORT}"]


def test_it_writes_where_the_operator_has_it_write() -> None:
    """With the root file system read-only these are volumes; the image says the same for those who run it by hand."""
    (text,) = arguments_of("ENV")
    own = dict(pair.split("=", 1) for pair in text.split())
    operators = command_line.engine_env(config())
    assert own == {name: operators[name] for name in own}
    below = {
        name for name, value in operators.items() if value.startswith((command_line.CACHE_PATH, command_line.TMP_PATH))
    }
    assert below <= set(own)


def test_its_labels_say_where_it_comes_from() -> None:
    (text,) = arguments_of("LABEL")
    labels = dict(re.findall(r'org\.opencontainers\.image\.([a-z.]+)="([^"]*)"', text))
    assert labels["revision"] == "${REVISION}"
    assert labels["created"] == "${CREATED}"
    assert labels["source"] == "${SOURCE}"
    assert labels["base.digest"] == "${VLLM_DIGEST}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"OUTRIDER_VERSION={__version__}" in arguments_of("ARG")
    assert labels["licenses"] == project["license"]
