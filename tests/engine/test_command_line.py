"""What the operator renders for each example, read by vLLM's own parser and turned into its own configuration.

The simulated engine has a parser of ours, so a misspelt flag could pass every other test. Models are looked up as
folders below the working directory: a model's id is the path of a folder with the config.json that matters here.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.engine import environment
from tests.engine.conftest import need_environment
from tests.unit.api.bodies import EXAMPLES
from tests.unit.manifests.golden import manifests

pytestmark = pytest.mark.engine

ONLY_IN_0_33: Mapping[str, str] = {}
"""Flags that we render and that the parser of 0.32.0 does not know, each with the reason why we need it."""

PARSE_BUDGET_S = 300
_LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16"}
_QWEN = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16"}
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "meta-llama/Llama-3.1-8B-Instruct": _LLAMA
    | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}
    | {"num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072},
    "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B": _LLAMA
    | {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 32000}
    | {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8}
    | {"vocab_size": 128256, "max_position_embeddings": 2048},
    "Qwen/Qwen3-32B": _QWEN
    | {"hidden_size": 5120, "intermediate_size": 25600, "num_hidden_layers": 64, "num_attention_heads": 64}
    | {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960},
    "Qwen/Qwen3-0.6B": _QWEN
    | {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16}
    | {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960},
}
"""The published dimensions of the examples' models: vLLM compares target and drafter, and cuts the length."""

_READER = """
import json, sys
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser

def read(arguments):
    parser = make_arg_parser(FlexibleArgumentParser())
    flags = sorted(flag for action in parser._actions for flag in action.option_strings)
    known = {"flags": flags}
    try:
        options = parser.parse_args(arguments)
        config = AsyncEngineArgs.from_cli_args(options).create_engine_config(UsageContext.OPENAI_API_SERVER)
    except SystemExit as error:
        return known | {"fault": f"the parser ended with status {error.code}"}
    except Exception as error:
        return known | {"fault": f"{type(error).__name__}: {error}"}
    speculation = config.speculative_config
    return known | {
        "fault": "",
        "port": options.port,
        "served": options.served_model_name,
        "api_servers": options.api_server_count,
        "capture_sizes": options.cudagraph_capture_sizes,
        "shutdown_timeout": options.shutdown_timeout,
        "model": config.model_config.model,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "tensor_parallel": config.parallel_config.tensor_parallel_size,
        "method": speculation.method,
        "draft": speculation.draft_model_config.model,
        "ceiling": speculation.num_speculative_tokens,
        "table": speculation.num_speculative_tokens_per_batch_size,
    }

json.dump({name: read(arguments) for name, arguments in json.load(sys.stdin).items()}, open(sys.argv[1], "w"))
"""


def rendered(path: Path) -> list[str]:
    """The engine container's arguments for a resource."""
    (deployment,) = [manifest for manifest in manifests(path) if manifest["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = [text.replace("$$", "$") for text in container["args"]]  # as the kubelet reads it
    return arguments


def value(arguments: Sequence[str], flag: str) -> str:
    """What follows a flag."""
    return arguments[arguments.index(flag) + 1]


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What vLLM makes of each example's command line, by the example's name; one process for all, since it is slow."""
    need_environment()
    folder = tmp_path_factory.mktemp("models")
    for model, config in CONFIGS.items():
        (folder / model).mkdir(parents=True)
        (folder / model / "config.json").write_text(json.dumps(config))
    lines = {path.stem: _without(rendered(path), ONLY_IN_0_33) for path in EXAMPLES}
    done = subprocess.run(
        ["nice", str(environment.python()), "-c", _READER, "answer.json"],
        input=json.dumps(lines),
        cwd=folder,
        env=environment.variables(folder / "plugin") | {"VLLM_PLUGINS": ""},
        capture_output=True,
        text=True,
        timeout=PARSE_BUDGET_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, dict[str, Any]] = json.loads((folder / "answer.json").read_text())
    return answer


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_vllm_takes_the_arguments_and_makes_of_them_what_was_meant(
    readings: dict[str, dict[str, Any]], path: Path
) -> None:
    arguments = rendered(path)
    reading = {key: read for key, read in readings[path.stem].items() if key != "flags"}
    assert reading["fault"] == ""
    speculation = json.loads(value(arguments, "--speculative-config"))
    sizes = arguments[arguments.index("--cudagraph-capture-sizes") + 1 : arguments.index("--shutdown-timeout")]
    assert reading == {
        "fault": "",
        "port": 8000,
        "served": [value(arguments, "--served-model-name")],
        "api_servers": 1,
        "capture_sizes": [int(size) for size in sizes],
        "shutdown_timeout": int(value(arguments, "--shutdown-timeout")),
        "model": value(arguments, "--model"),
        "max_num_seqs": int(value(arguments, "--max-num-seqs")),
        "tensor_parallel": int(value(arguments, "--tensor-parallel-size")),
        "method": speculation["method"],
        "draft": speculation["model"],
        "ceiling": speculation["num_speculative_tokens"],
        "table": speculation[
            "num_speculative_tokens_per_batch_size"
        ],  # vLLM drops it in silence where it cannot use it
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_flag_is_written_out(readings: dict[str, dict[str, Any]], path: Path) -> None:
    """vLLM's parser takes abbreviations, which a later version may read as another flag."""
    flags = {text.partition("=")[0] for text in rendered(path) if text.startswith("--")}
    assert flags - set(ONLY_IN_0_33) <= set(readings[path.stem]["flags"])


def test_no_flag_is_excused_that_needs_it_no_more(readings: dict[str, dict[str, Any]]) -> None:
    known = set(next(iter(readings.values()))["flags"])
    assert not known & set(ONLY_IN_0_33)


def _without(arguments: Sequence[str], flags: Mapping[str, str]) -> list[str]:
    """The arguments without these flags and what follows each of them."""
    kept: list[str] = []
    skipping = False
    for text in arguments:
        if text.startswith("--"):
            skipping = text.partition("=")[0] in flags
        if not skipping:
            kept.append(text)
    return kept
