"""Every flag and key that the operator can render, looked up in vLLM: the parser of the installed version takes them,
and the sources of the supported ones name them.

What a version does not know is left out by `outrider.engine.capabilities`; so this also tells when a row of its
features is wrong.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from outrider.engine.command_line import engine_args
from outrider.engine.config import KvTransfer, Lora, NgramOptions, RejectionSampling, SuffixOptions
from tests.engine import environment, wheels
from tests.engine.conftest import need_environment
from tests.engine.wheels import Sources
from tests.unit.engine.builders import config

pytestmark = pytest.mark.engine

PARSE_BUDGET_S = 300
FEATURES: Mapping[str, Any] = {
    "revision": "main",
    "quantization": "fp8",
    "kv_cache_dtype": "fp8",
    "max_length": 4096,
    "pipeline_parallel_size": 2,
    "data_parallel_size": 2,
    "gpu_memory_utilization": 0.9,
    "prefix_caching": False,
    "chunked_prefill": True,
    "lora": Lora(max_adapters=4, max_rank=64, modules=(("sql", "org/sql"), ("a=b", "/x,y"))),
    "structured_output_backend": "xgrammar",
    "max_queued_requests": 100,
    "max_queued_tokens": 60_000,
    "kv_transfer": KvTransfer(
        connector="NixlConnector", role="both", load_failure_policy="recompute", extra={"num_threads": 4}
    ),
    "trust_remote_code": True,
    "ngram": NgramOptions(prompt_lookup_min=2, prompt_lookup_max=4),
    "suffix": SuffixOptions(max_tree_depth=8, max_cached_requests=9, max_spec_factor=1.5, min_token_probability=0.2),
    "heterogeneous_vocab": True,
    "adaptive_verification": True,
    "draft_sampling": "probabilistic",
    "draft_head_quantization": "fp8",
}
"""All of them at once: names are looked up, and no engine is built of it."""
SAMPLING = {
    "block": RejectionSampling(method="block"),
    "fly": RejectionSampling(method="fly", fly_window_size=2, fly_entropy_threshold=0.3, fly_entropy_top_k=3),
}
WORDS = {"kv_both", "recompute", "xgrammar", "probabilistic", "block"}
"""Values out of vLLM's own vocabulary."""

_READER = """
import dataclasses, json, sys
from vllm.config import KVTransferConfig, SpeculativeConfig
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

options = make_arg_parser(FlexibleArgumentParser()).parse_args(json.load(sys.stdin))
keys = {field.name for field in dataclasses.fields(SpeculativeConfig)}
json.dump({
    "pipeline": options.pipeline_parallel_size,
    "data": options.data_parallel_size,
    "prefix_caching": options.enable_prefix_caching,
    "chunked_prefill": options.enable_chunked_prefill,
    "lora": [options.enable_lora, options.max_loras, options.max_lora_rank],
    "modules": [[module.name, module.path] for module in options.lora_modules],
    "backend": options.structured_outputs_config.backend,
    "queue": [options.max_num_queued_reqs, options.max_num_queued_tokens],
    "transfer": {name: getattr(options.kv_transfer_config, name) for name in (
        "kv_connector", "kv_role", "kv_load_failure_policy", "kv_connector_extra_config")},
    "trust": options.trust_remote_code,
    "unknown": sorted(set(options.speculative_config) - keys),
}, open(sys.argv[1], "w"))
"""


def lines(version: str) -> Iterator[list[str]]:
    """Command lines that between them have every flag and key that this version is given."""
    for sampling in SAMPLING.values():
        for data, vocabulary in ((2, True), (1, None)):  # with several ranks, or on the old runner, there is no table
            changes = {**FEATURES, "data_parallel_size": data, "heterogeneous_vocab": vocabulary}
            yield engine_args(config(version=version, rejection_sampling=sampling, **changes))


def test_the_installed_parser_takes_all_that_is_rendered_for_its_version(tmp_path: Path) -> None:
    need_environment()
    arguments = next(lines(wheels.INSTALLED))
    done = subprocess.run(
        ["nice", str(environment.python()), "-c", _READER, "answer.json"],
        input=json.dumps(arguments),
        cwd=tmp_path,
        env=environment.variables(tmp_path / "plugin") | {"VLLM_PLUGINS": ""},
        capture_output=True,
        text=True,
        timeout=PARSE_BUDGET_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads((tmp_path / "answer.json").read_text()) == {
        "pipeline": 2,
        "data": 2,
        "prefix_caching": False,
        "chunked_prefill": True,
        "lora": [True, 4, 64],
        "modules": [["sql", "org/sql"], ["a=b", "/x,y"]],
        "backend": "xgrammar",
        "queue": [100, 60_000],
        "transfer": {
            "kv_connector": "NixlConnector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"num_threads": 4},
        },
        "trust": True,
        "unknown": [],
    }


@pytest.mark.parametrize("version", [*wheels.WHEELS, wheels.INSTALLED])
def test_the_sources_name_all_that_is_rendered(version: str) -> None:
    if version == wheels.INSTALLED:
        need_environment()
        sources = Sources(wheels.installed())
    else:
        sources = Sources(wheels.fetch(version, lambda _: None))
    named = sources.texts("vllm.engine.arg_utils")
    fields = sources.attributes("vllm.entrypoints.common.cli_args") | sources.attributes(
        "vllm.entrypoints.launchers.cli_args"
    )
    keys = sources.attributes("vllm.config.speculative") | sources.attributes("vllm.config.kv_transfer")
    words = set().union(
        *(sources.texts(f"vllm.config.{one}") for one in ("speculative", "kv_transfer", "structured_outputs"))
    )
    assert words >= WORDS
    for line in lines(version):
        flags = {argument for argument in line if argument.startswith("--")}
        plain = {flag.replace("--no-", "--") for flag in flags}
        assert {flag for flag in plain - named if flag[2:].replace("-", "_") not in fields} == set()
        speculation = json.loads(line[line.index("--speculative-config") + 1])
        transfer = json.loads(line[line.index("--kv-transfer-config") + 1])
        assert set(speculation) | set(transfer) <= keys
