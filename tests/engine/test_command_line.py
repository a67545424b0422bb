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
Config = dict[str, Any]
_LLAMA: Config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16"}
_LLAMA |= {"vocab_size": 128256, "max_position_embeddings": 131072, "num_key_value_heads": 8}
_QWEN: Config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16"}
_QWEN |= {"vocab_size": 151936, "max_position_embeddings": 40960, "num_key_value_heads": 8, "head_dim": 128}


def _sized(family: Config, hidden: int, intermediate: int, layers: int, heads: int) -> Config:
    sizes = {"hidden_size": hidden, "intermediate_size": intermediate}
    return family | sizes | {"num_hidden_layers": layers, "num_attention_heads": heads}


_LLAMA_8B = _sized(_LLAMA, 4096, 14336, 32, 32)
_QWEN_06B = _sized(_QWEN, 1024, 3072, 28, 16)
_QWEN_8B = _sized(_QWEN, 4096, 12288, 36, 32)
_QWEN_32B = _sized(_QWEN, 5120, 25600, 64, 64)
_EAGLE: Config = {"num_hidden_layers": 1, "max_position_embeddings": 2048}
_EAGLE3 = _EAGLE | {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "draft_vocab_size": 32000}
_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
_FP8_WEIGHTS = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel", "dynamic": False}
_FP8_INPUTS = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "token", "dynamic": True}
CONFIGS: Mapping[str, Config] = {
    "meta-llama/Llama-3.1-8B-Instruct": _LLAMA_8B,
    "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B": _LLAMA_8B | _EAGLE3,
    "yuhuili/EAGLE-LLaMA3.1-Instruct-8B": _LLAMA_8B | _EAGLE,
    "hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4": _LLAMA_8B | {"quantization_config": _AWQ},
    "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic": _sized(_LLAMA, 8192, 28672, 80, 64)
    | {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "float-quantized",
            "ignore": ["lm_head"],
            "config_groups": {
                "group_0": {"targets": ["Linear"], "weights": _FP8_WEIGHTS, "input_activations": _FP8_INPUTS}
            },
        }
    },
    "Qwen/Qwen3-0.6B": _QWEN_06B,
    "Qwen/Qwen3-0.6B-GPTQ-Int8": _QWEN_06B
    | {"quantization_config": {"quant_method": "gptq", "bits": 8, "group_size": 128, "desc_act": False, "sym": True}},
    "Qwen/Qwen3-8B": _QWEN_8B,
    "Qwen/Qwen3-8B-AWQ": _QWEN_8B | {"quantization_config": _AWQ},
    "AngelSlim/Qwen3-8B_eagle3": _QWEN_8B | _EAGLE3,
    "Qwen/Qwen3-32B": _QWEN_32B,
    "Qwen/Qwen3-32B-AWQ": _QWEN_32B | {"quantization_config": _AWQ},
    "Qwen/Qwen2.5-Coder-7B-Instruct": _sized(_QWEN, 3584, 18944, 28, 28)
    | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 152064, "num_key_value_heads": 4}
    | {"max_position_embeddings": 32768},
    "Qwen/Qwen3-Next-80B-A3B-Instruct-FP8": _sized(_QWEN, 2048, 5120, 48, 16)
    | {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "max_position_embeddings": 262144}
    | {"num_key_value_heads": 2, "head_dim": 256, "partial_rotary_factor": 0.25, "full_attention_interval": 4}
    | {"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_conv_kernel_dim": 4}
    | {"linear_key_head_dim": 128, "linear_value_head_dim": 128, "decoder_sparse_step": 1, "norm_topk_prob": True}
    | {"num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512}
    | {"shared_expert_intermediate_size": 512}
    | {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}},
}
"""The published dimensions of the examples' models: vLLM compares target and drafter, and cuts the length. Of EAGLE
heads it takes the positions of their model, whatever they say."""

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
    return arguments_of(manifests(path))


def arguments_of(children: Sequence[Mapping[str, Any]]) -> list[str]:
    """The engine container's arguments, as the kubelet hands them over."""
    (deployment,) = [manifest for manifest in children if manifest["kind"] == "Deployment"]
    containers = deployment["spec"]["template"]["spec"]["containers"]
    (container,) = [container for container in containers if container["name"] == "engine"]
    arguments: list[str] = [text.replace("$$", "$") for text in container["args"]]
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
    lines = {path.stem: without(rendered(path), ONLY_IN_0_33) for path in EXAMPLES}
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
        "draft": speculation.get("model", value(arguments, "--model")),  # vLLM's word where there is no drafter
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


def without(arguments: Sequence[str], flags: Mapping[str, str]) -> list[str]:
    """The arguments without these flags and what follows each of them."""
    kept: list[str] = []
    skipping = False
    for text in arguments:
        if text.startswith("--"):
            skipping = text.partition("=")[0] in flags
        if not skipping:
            kept.append(text)
    return kept
