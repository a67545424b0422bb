"""The command lines of generated resources, read by vLLM's own parser: whatever is admitted can be parsed.

Only the parser is asked. What vLLM makes of the values needs the models' own files; that is tried for the examples.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.engine import environment
from tests.engine.conftest import need_environment
from tests.engine.test_command_line import ONLY_IN_0_33, PARSE_BUDGET_S, arguments_of, without
from tests.fuzz.outcome import outcome
from tests.fuzz.strategies import bodies

pytestmark = pytest.mark.engine

_READER = """
import contextlib, io, json, sys
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = make_arg_parser(FlexibleArgumentParser())

def fault(arguments):
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parser.parse_args(arguments)
    except SystemExit:
        return said.getvalue().splitlines()[-1]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""

json.dump([fault(arguments) for arguments in json.load(sys.stdin)], open(sys.argv[1], "w"))
"""
# The user's own arguments are vLLM's business: a flag that does not exist is reported by the engine, in status.
_SHARE_RENDERED = 0.15


def test_vllm_parses_whatever_is_admitted(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    need_environment()
    lines: list[list[str]] = []
    examples = request.config.getoption("--fuzz-examples")

    @settings(
        max_examples=examples,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(bodies())
    def collect(body: dict[str, Any]) -> None:
        found = outcome(body)
        if found.children and not body["spec"].get("engine", {}).get("extraArgs"):
            lines.append(without(arguments_of(found.children), ONLY_IN_0_33))

    collect()
    assert len(lines) > _SHARE_RENDERED * examples
    done = subprocess.run(
        ["nice", str(environment.python()), "-c", _READER, "answer.json"],
        input=json.dumps(lines),
        cwd=tmp_path,
        env=environment.variables(tmp_path / "plugin") | {"VLLM_PLUGINS": ""},
        capture_output=True,
        text=True,
        timeout=PARSE_BUDGET_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    faults = json.loads((tmp_path / "answer.json").read_text())
    found = {fault: line for line, fault in zip(lines, faults, strict=True) if fault}
    assert not found, "\n".join(f"{fault}\n  {line}" for fault, line in found.items())
