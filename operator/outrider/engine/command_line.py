"""The engine's command line and environment, rendered from its configuration.

Arguments are elements of an argument vector and never pass a shell. The order is fixed and nothing depends on the
operator's own version: the text is part of the pod template, and any change to it restarts every engine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from outrider.core import graphs
from outrider.core.schedule import Schedule, constant, from_lookup, parse_rows
from outrider.engine import capabilities as known
from outrider.engine import json_arguments
from outrider.engine.capabilities import Feature
from outrider.engine.config import EngineConfig, Lora

HTTP_PORT = 8000
ADMIN_PORT = 8001
ADMIN_KEY_FILE = "/etc/outrider/admin/key"
SCHEDULE_FILE = "/etc/outrider/schedule/schedule.json"
CACHE_PATH = "/var/cache/engine"
TMP_PATH = "/tmp"  # a path inside the container, on a volume of its own


def _grid(first_s: float, last_s: float, ratio: float) -> list[float]:
    """Bounds from first to last, each ``ratio`` times the one before, to three digits."""
    bounds = [first_s]
    while bounds[-1] < last_s:
        bounds.append(float(f"{min(bounds[-1] * ratio, last_s):.3g}"))
    return bounds


# vLLM's lowest bounds are 10 ms a token and 300 ms in the queue: too coarse for a fast decoder, and a percentile can be
# no finer than the bucket it falls into. The grids are the same for every service, whatever its objectives: were they
# built around the objectives, changing one would restart all engines. Keys are vLLM's families; it refuses to start on
# any other.
HISTOGRAM_BUCKETS: dict[str, list[float]] = {
    # inter_token_latency and request_time_per_output_token: the SLO quantity, within 5 % up to 2 s, then only for
    # stalls.
    "inter_token_latency": [*_grid(0.001, 2.0, 1.1), 5.0, 10.0, 30.0],
    "time_to_first_token": _grid(0.01, 600.0, 1.15),
    # queue time, with the phases of a request: five histograms, so a coarser grid.
    "request_latency": _grid(0.01, 7200.0, 1.35),
}


def speculative_tokens_values(config: EngineConfig) -> tuple[int, ...]:
    """The K that the engine has graphs for, ascending: all that tuning may choose from while it runs.

    ``(0,)`` without speculation; the ceiling alone where the engine keeps one K. A schedule of the user's own within
    the usual choice leaves that as it is, so that going from Fixed to Adaptive needs no restart; otherwise it gets
    exactly its own K.
    """
    if not config.speculates:
        return (0,)
    if not takes_table(config):
        return (config.max_speculative_tokens,)
    chosen = graphs.choose_speculative_tokens(config.max_speculative_tokens)
    kept = kept_values(config)
    if not kept <= set(chosen):
        return tuple(sorted(kept))
    # The table has a row for each batch size at most. What is left of a safe set is safe; the largest K are kept.
    return chosen if len(chosen) <= config.max_num_seqs else chosen[-config.max_num_seqs :]


def takes_table(config: EngineConfig) -> bool:
    """Whether this engine chooses K by batch size; otherwise every step drafts the ceiling."""
    return not config.one_k and known.table_possible(config)


def kept_values(config: EngineConfig) -> set[int]:
    """The K that mode Fixed is to keep; empty in other modes."""
    if config.mode != "Fixed":
        return set()
    return {row.num_speculative_tokens for row in config.rows} or {config.initial_speculative_tokens}


def capture_sizes(config: EngineConfig) -> tuple[int, ...]:
    """CUDA-graph sizes in tokens, ascending."""
    values = speculative_tokens_values(config)
    return graphs.capture_sizes(values, graphs.capture_limit(values, config.max_num_seqs))


def initial_schedule(config: EngineConfig) -> Schedule:
    """What the engine runs before it hears of a decision, and when its lease has run out.

    Mode Fixed: the schedule of the resource, with its last row up to the largest batch. Otherwise one K for all batch
    sizes: the largest with graphs that is not above the wished one, or the smallest that the user's lower bound allows.

    Raises:
        InvalidSchedule: the schedule of the resource is not one that this engine can run.

    """
    values, largest = speculative_tokens_values(config), config.max_num_seqs
    if config.mode == "Fixed" and config.rows and len(values) > 1:
        # Rows past the largest batch are never looked up; vLLM cuts them as well.
        rows = [
            [row.first, min(row.last, largest), row.num_speculative_tokens]
            for row in config.rows
            if row.first <= largest
        ]
        checked = parse_rows(rows, ceiling=config.max_speculative_tokens, max_batch_size=largest, allowed=values)
        # vLLM keeps the last row's K beyond it. The controller takes a schedule that ends early for one of an engine
        # with other batch sizes, and would return to it in every pass.
        return from_lookup(checked.lookup(largest)[1:])
    allowed = [k for k in values if k >= config.min_speculative_tokens] or [max(values)]
    below = [k for k in allowed if k <= config.initial_speculative_tokens]
    return constant(below[-1] if below else allowed[0], largest)


def start_table(config: EngineConfig) -> list[list[int]]:
    """The table that the engine starts with: the initial schedule, and every other K at one of the largest batch sizes.

    Graphs are captured for the K of this table only. The runtime plugin puts the initial schedule in its place before
    the first request; an image without the plugin serves with it for ever, and as good as never reaches those sizes.
    """
    initial, largest = initial_schedule(config), config.max_num_seqs
    others = [k for k in speculative_tokens_values(config) if k not in initial.values]
    lookup = initial.lookup(largest)[1:]
    lookup[largest - len(others) :] = others
    return from_lookup(lookup).as_lists()


def speculative_config(config: EngineConfig) -> dict[str, Any] | None:
    """The value of ``--speculative-config``, keys in the order in which they are written; None without speculation."""
    if not config.speculates:
        return None
    values: dict[str, Any] = {"method": config.method}
    if config.drafter is not None:
        values |= {
            "model": config.drafter.path or config.drafter.model,
            "revision": config.drafter.revision if config.drafter.source == "hub" else None,
            "quantization": config.drafter.quantization,
            "draft_tensor_parallel_size": config.drafter.tensor_parallel_size,
            "max_model_len": config.drafter.max_length,
        }
    values["num_speculative_tokens"] = config.max_speculative_tokens
    if takes_table(config):
        values["num_speculative_tokens_per_batch_size"] = start_table(config)
    values |= json_arguments.method_options(config)
    return {key: value for key, value in values.items() if value is not None}


def engine_args(config: EngineConfig) -> list[str]:
    """Arguments of vLLM's API server, one element each, escaped for Kubernetes."""
    return [escape(argument) for argument in (*_own_arguments(config), *config.extra_args)]


def _own_arguments(config: EngineConfig) -> Iterator[str]:
    yield from ("--model", config.model_path or config.model)
    yield from _optional("--revision", config.revision if config.model_source == "hub" else None)
    yield from ("--served-model-name", config.served_name)
    yield from ("--port", str(HTTP_PORT))
    yield from ("--api-server-count", "1")
    yield from ("--tensor-parallel-size", str(config.tensor_parallel_size))
    if config.pipeline_parallel_size > 1:
        yield from ("--pipeline-parallel-size", str(config.pipeline_parallel_size))
    if config.data_parallel_size > 1:
        yield from ("--data-parallel-size", str(config.data_parallel_size))
    yield from _optional("--quantization", config.quantization)
    yield from _optional("--kv-cache-dtype", config.kv_cache_dtype)
    yield from _optional("--max-model-len", config.max_length)
    if config.gpu_memory_utilization is not None:
        yield from ("--gpu-memory-utilization", f"{config.gpu_memory_utilization:.2f}")
    yield from ("--max-num-seqs", str(config.max_num_seqs))
    yield from ("--max-num-batched-tokens", str(config.max_num_batched_tokens))
    yield from _features(config)
    speculation = speculative_config(config)
    if speculation is not None:
        yield from ("--speculative-config", _json(speculation))
        yield from ("--cudagraph-capture-sizes", *map(str, capture_sizes(config)))
    if known.has(config.version, known.SHUTDOWN_TIMEOUT_SINCE):
        yield from ("--shutdown-timeout", str(config.shutdown_timeout_s))
    if known.has(config.version, known.HISTOGRAM_BUCKETS_SINCE):
        yield from ("--custom-histogram-buckets", _json(HISTOGRAM_BUCKETS))


def _features(config: EngineConfig) -> Iterator[str]:
    """What an engine has only when the resource asks for it."""
    yield from _switch("prefix-caching", config.prefix_caching)
    yield from _switch("chunked-prefill", config.chunked_prefill)
    if config.lora is not None:
        yield from _adapters(config.lora)
    if config.structured_output_backend is not None and known.has(config.version, Feature.STRUCTURED_OUTPUTS):
        yield from ("--structured-outputs-config", _json({"backend": config.structured_output_backend}))
    if known.has(config.version, Feature.QUEUE_LIMITS):
        yield from _optional("--max-num-queued-reqs", config.max_queued_requests)
        yield from _optional("--max-num-queued-tokens", config.max_queued_tokens)
    if config.kv_transfer is not None:
        document = json_arguments.kv_transfer_config(config.kv_transfer, config.version)
        yield from ("--kv-transfer-config", _json(document))
    if config.trust_remote_code:
        yield "--trust-remote-code"


def _adapters(lora: Lora) -> Iterator[str]:
    yield "--enable-lora"
    yield from _optional("--max-loras", lora.max_adapters)
    yield from _optional("--max-lora-rank", lora.max_rank)
    if lora.modules:
        # The short form, name=path, would be cut at the wrong place in a name with an equals sign.
        yield from ("--lora-modules", *(_json({"name": name, "path": path}) for name, path in lora.modules))


def engine_env(config: EngineConfig) -> dict[str, str]:
    """Variables of the engine's environment that the operator sets, in the order in which they are written."""
    return {
        "VLLM_PLUGINS": "outrider",
        # Said outright: a feature flag must not swap the runner under a controller.
        "VLLM_USE_V2_MODEL_RUNNER": "1" if known.runner(config) == "V2" else "0",
        "VLLM_NO_USAGE_STATS": "1",
        # vLLM's front end gives the engine ten minutes; a large model that loads for longer would never start.
        "VLLM_ENGINE_READY_TIMEOUT_S": str(config.startup_budget_s),
        "VLLM_CACHE_ROOT": f"{CACHE_PATH}/vllm",
        "VLLM_RPC_BASE_PATH": TMP_PATH,
        "HF_HOME": f"{CACHE_PATH}/huggingface",
        "XDG_CACHE_HOME": CACHE_PATH,
        "TRITON_CACHE_DIR": f"{CACHE_PATH}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{CACHE_PATH}/inductor",
        "TMPDIR": TMP_PATH,
        "HOME": CACHE_PATH,
        "USER": "engine",  # the user id has no entry in the image, and libraries ask for its name
        "OUTRIDER_ADMIN_PORT": str(ADMIN_PORT),
        "OUTRIDER_ADMIN_KEY_FILE": ADMIN_KEY_FILE,
        "OUTRIDER_SCHEDULE_FILE": SCHEDULE_FILE,
        "OUTRIDER_INITIAL_SCHEDULE": _json(initial_schedule(config).as_lists()),
    }


def escape(text: str) -> str:
    """Protect text from Kubernetes, which expands ``$(NAME)`` in arguments and values and reads ``$$`` as ``$``.

    It also takes a letter beyond ASCII behind a ``$`` apart into bytes (third_party/forked/golang/expansion of 1.37).
    """
    return re.sub(r"\$(?=[($]|[^\x00-\x7f])", "$$", text)


def _optional(flag: str, value: str | int | None) -> tuple[str, ...]:
    return () if value is None else (flag, str(value))


def _switch(name: str, wanted: bool | None) -> tuple[str, ...]:
    return () if wanted is None else (f"--{'' if wanted else 'no-'}enable-{name}",)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
