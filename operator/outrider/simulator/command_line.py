"""A container's arguments and environment, read as vLLM 0.33's API server reads them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from outrider.core.schedule import InvalidSchedule, Schedule, parse_rows
from outrider.simulator import arguments as argument_vector
from outrider.simulator.documents import CompilationConfig, parse_buckets
from outrider.simulator.exits import EngineExit, refuse
from outrider.simulator.settings import (
    BLOCK_SIZE,
    EngineSettings,
    Plugin,
    Speculation,
    default_capture_sizes,
    dense_capture_sizes,
    kv_blocks,
)
from outrider.simulator.speculative import Surroundings, parse_speculation

PLUGIN_NAME = "outrider"
MODEL_LENGTH = 131072  # of Llama 3.1, whose dimensions the profile has; vLLM reads it from the model's own config
LARGEST_PORT = 65535
_AT_LEAST_ONE = (
    *("max_num_seqs", "max_num_batched_tokens", "tensor_parallel_size", "pipeline_parallel_size"),
    "data_parallel_size",
)


def parse(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    plugin_installed: bool = True,
    warn: Callable[[str], None] = lambda _: None,
) -> EngineSettings:
    """Everything that an engine needs to know.

    Raises:
        EngineExit: as vLLM's process would end, with its exit status.
    """
    if environment.get("VLLM_PORT", "").startswith("tcp://"):
        raise refuse(
            f"VLLM_PORT '{environment['VLLM_PORT']}' appears to be a URI: a Service called vllm makes Kubernetes set it"
        )
    options = argument_vector.read(arguments)
    v2 = environment.get("VLLM_USE_V2_MODEL_RUNNER", "1") != "0"
    _check(options)
    around = Surroundings(
        options.max_num_seqs, _wanted_length(options), options.tensor_parallel_size, options.data_parallel_size, v2
    )
    document = _speculative_document(options)
    speculation = None if document is None else parse_speculation(document, around, warn)
    _check_budget(options, speculation)
    plugin = _plugin(environment, options, speculation, warn) if plugin_installed else None
    return _settings(options, environment, speculation, plugin, v2)


def _settings(
    options: argparse.Namespace,
    environment: Mapping[str, str],
    speculation: Speculation | None,
    plugin: Plugin | None,
    v2: bool,
) -> EngineSettings:
    model = options.model_tag or options.model
    blocks = _blocks(options)
    return EngineSettings(
        model=model,
        served_model_names=tuple(options.served_model_name or [model]),
        port=options.port,
        speculation=speculation,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        max_model_len=_length(options, blocks),
        capture_sizes=_capture_sizes(options, speculation),
        num_gpu_blocks=blocks,
        shutdown_timeout_s=float(options.shutdown_timeout),
        histogram_buckets=parse_buckets(options.custom_histogram_buckets),
        api_keys=(*options.api_key, *filter(None, [environment.get("VLLM_API_KEY")])),
        plugin=plugin,
        model_runner="V2" if v2 else "V1",
        attention_backend=options.attention_backend,
        kv_cache_dtype=options.kv_cache_dtype,
        gpu_memory_utilization=options.gpu_memory_utilization,
    )


def _check(options: argparse.Namespace) -> None:
    for name in _AT_LEAST_ONE:
        if getattr(options, name) < 1:
            raise refuse(f"{name} {getattr(options, name)}: Input should be greater than or equal to 1")
    if options.max_num_batched_tokens < options.max_num_seqs:
        raise refuse(
            f"max_num_batched_tokens ({options.max_num_batched_tokens}) must be greater than or equal to max_num_seqs"
            f" ({options.max_num_seqs})"
        )
    if not 0 < options.gpu_memory_utilization <= 1:
        raise refuse(f"gpu_memory_utilization {options.gpu_memory_utilization} must be above 0 and at most 1")
    if options.max_model_len is not None and options.max_model_len != -1 and options.max_model_len < 1:
        raise refuse(f"max_model_len must be a positive integer, -1 or auto, got {options.max_model_len}")
    if options.shutdown_timeout < 0:
        raise refuse(f"shutdown_timeout {options.shutdown_timeout}: Input should be greater than or equal to 0")
    if not 0 <= options.port <= LARGEST_PORT:
        raise refuse(f"OverflowError: port {options.port}: bind(): port must be 0-{LARGEST_PORT}")


def _speculative_document(options: argparse.Namespace) -> Any:
    document = options.speculative_config
    short = {
        "method": options.spec_method,
        "model": options.spec_model,
        "num_speculative_tokens": options.spec_tokens,
    }
    given = {key: value for key, value in short.items() if value is not None}
    if not given or (document is not None and not isinstance(document, Mapping)):
        return document
    twice = sorted(set(given) & set(document or {}))
    if twice:
        raise refuse(f"--speculative-config and the --spec- flag both set {twice[0]}: they are mutually exclusive")
    return {**(document or {}), **given}


def _check_budget(options: argparse.Namespace, speculation: Speculation | None) -> None:
    if speculation is None:
        return
    budget, ceiling = options.max_num_batched_tokens, speculation.max_speculative_tokens
    if budget <= ceiling:
        raise refuse(f"max_num_batched_tokens {budget} must be above the {ceiling} lookahead tokens")
    if options.enable_lora and budget < options.max_num_seqs * (ceiling + 1):
        raise refuse("LoRA: Consider increasing max_num_batched_tokens or decreasing num_speculative_tokens")


def _blocks(options: argparse.Namespace) -> int:
    if options.num_gpu_blocks_override:
        return int(options.num_gpu_blocks_override)
    bytes_per_value = 1.0 if options.kv_cache_dtype.startswith("fp8") else 2.0
    if options.kv_cache_memory_bytes:
        return int(options.kv_cache_memory_bytes / (2**20 * bytes_per_value))
    gpus = options.tensor_parallel_size * options.pipeline_parallel_size
    return kv_blocks(options.gpu_memory_utilization, gpus, bytes_per_value)


def _wanted_length(options: argparse.Namespace) -> int:
    """``auto`` (-1) begins with the model's own length and may shrink once the cache is known."""
    return MODEL_LENGTH if options.max_model_len in (None, -1) else int(options.max_model_len)


def _length(options: argparse.Namespace, blocks: int) -> int:
    wanted, fits = _wanted_length(options), blocks * BLOCK_SIZE
    if wanted <= fits:
        return wanted
    if options.max_model_len == -1 and fits > 0:
        return fits
    raise EngineExit(
        1,
        f"max seq len ({wanted}) is larger than the {fits} tokens that fit the KV cache: raise gpu_memory_utilization"
        " or lower max_model_len",
        after_load=True,
    )


def _capture_sizes(options: argparse.Namespace, speculation: Speculation | None) -> tuple[int, ...]:
    """CUDA graphs, in tokens: those that were named, or vLLM's choice; none above a step's budget."""
    compilation: CompilationConfig = options.compilation_config
    budget = options.max_num_batched_tokens
    sizes = _once("cudagraph_capture_sizes", options, compilation)
    largest = _once("max_cudagraph_capture_size", options, compilation)
    if sizes is not None and (not sizes or min(sizes) < 1):
        raise refuse(f"cudagraph_capture_sizes must be one or more sizes of at least 1 token, got {sizes}")
    if largest is not None and largest < 1:
        raise refuse(f"max_cudagraph_capture_size must be at least 1 token, got {largest}")
    if options.enforce_eager or compilation.cudagraph_mode == "NONE":
        return ()
    if sizes is None and largest is None:
        ceiling = 0 if speculation is None else speculation.max_speculative_tokens
        chosen = default_capture_sizes(options.max_num_seqs, ceiling)
    elif sizes is None:
        chosen = dense_capture_sizes(largest)
    else:
        chosen = tuple(sorted(set(sizes)))
    captured = tuple(size for size in chosen if size <= budget)
    if sizes is not None and largest is not None and captured[-1:] != (largest,):
        raise refuse(f"max_cudagraph_capture_size {largest} should be the largest of cudagraph_capture_sizes {sizes}")
    return captured


def _once(name: str, options: argparse.Namespace, compilation: CompilationConfig) -> Any:
    """A value that has a flag and a key of the compilation config, and may be given by one of them."""
    flag, key = getattr(options, name), getattr(compilation, name)
    if flag is not None and key is not None:
        raise refuse(f"{name} and compilation_config.{name} are mutually exclusive")
    return key if flag is None else flag


def _plugin(
    environment: Mapping[str, str],
    options: argparse.Namespace,
    speculation: Speculation | None,
    warn: Callable[[str], None],
) -> Plugin | None:
    """vLLM only opens plugins that VLLM_PLUGINS names."""
    if PLUGIN_NAME not in environment.get("VLLM_PLUGINS", "").split(","):
        return None
    return Plugin(
        admin_port=_admin_port(environment.get("OUTRIDER_ADMIN_PORT", "8001")),
        key_file=environment.get("OUTRIDER_ADMIN_KEY_FILE", ""),
        schedule_file=environment.get("OUTRIDER_SCHEDULE_FILE", ""),
        initial_schedule=_initial(environment.get("OUTRIDER_INITIAL_SCHEDULE", ""), options, speculation, warn),
    )


def _admin_port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < port <= LARGEST_PORT:
        raise refuse(f"OUTRIDER_ADMIN_PORT is {text!r}; it must be a port, 1 to {LARGEST_PORT}")
    return port


def _initial(
    text: str, options: argparse.Namespace, speculation: Speculation | None, warn: Callable[[str], None]
) -> Schedule | None:
    """The plugin fails open: an initial schedule that it cannot use leaves the start-up table in force."""
    if not text or speculation is None or speculation.table is None:
        return None
    try:
        return parse_rows(
            json.loads(text),
            ceiling=speculation.max_speculative_tokens,
            max_batch_size=options.max_num_seqs,
            allowed=speculation.values,
        )
    except (InvalidSchedule, ValueError) as error:
        warn(f"OUTRIDER_INITIAL_SCHEDULE is not usable, the start-up table stays: {error}")
        return None
