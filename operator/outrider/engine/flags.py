"""Arguments and variables of the engine that are not the user's to set: each with what to do instead.

vLLM's parser takes more than the literal name: unambiguous abbreviations (``--max-num-seq``), underscores, a value
behind ``=``, keys behind a dot (``--speculative-config.method``), short forms and their abbreviations (``-s`` for
``-sc``). So a name counts as ours when it, written with dashes and without value and key, begins a name of ours. That
refuses some ambiguous abbreviations that vLLM would refuse as well.
"""

from __future__ import annotations

_SPECULATION = "is set from spec.speculation"
_GRAPHS = "would change the CUDA graphs, which the operator sizes for all speculative tokens"
_ONE_ENGINE = "is not offered: an engine is one set of tensor-parallel GPUs, and replicas do the rest"
_OPENS = "opens the engine to whoever reaches it"
_METRICS = "would take away the metrics that tuning and scaling rest on"
_ADDRESS = "is set by the operator: probes, scrapes and clients rely on it"

FLAGS: dict[str, str] = {
    "--model": "is set from spec.model.id",
    "--revision": "is set from spec.model.revision",
    "--served-model-name": "is set from spec.model.servedName",
    "--quantization": "is set from spec.model.quantization",
    "--kv-cache-dtype": "is set from spec.model.kvCacheDtype",
    "--max-model-len": "is set from spec.model.maxLength",
    "--speculative-config": _SPECULATION,
    "--spec-method": _SPECULATION,
    "--spec-model": _SPECULATION,
    "--spec-tokens": _SPECULATION,
    "--max-num-seqs": "is set from spec.engine.maxNumSeqs",
    "--max-num-batched-tokens": "is set from spec.engine.maxNumBatchedTokens",
    "--gpu-memory-utilization": "is set from spec.engine.gpuMemoryUtilizationPercent",
    "--tensor-parallel-size": "is set from spec.parallelism.tensor",
    "--shutdown-timeout": "is set from spec.drain.shutdownTimeoutSeconds",
    "--cudagraph-capture-sizes": _GRAPHS,
    "--max-cudagraph-capture-size": _GRAPHS,
    "--compilation-config": _GRAPHS,
    "--pipeline-parallel-size": _ONE_ENGINE,
    "--data-parallel-size": _ONE_ENGINE,
    "--api-server-count": "is always 1: with more, gauges come from whichever server answered last",
    "--headless": _ONE_ENGINE,
    "--grpc": "loads no plugins, so the engine could not be controlled",
    "--scheduler-cls": "would replace the scheduler whose speculative tokens are controlled",
    "--custom-histogram-buckets": _METRICS,
    "--disable-log-stats": _METRICS,
    "--host": _ADDRESS,
    "--port": _ADDRESS,
    "--uds": _ADDRESS,
    "--api-key": "is visible to all who see the process: set VLLM_API_KEY in spec.engine.env from a Secret",
    "--config": "hides arguments in a file: name them in spec.engine.extraArgs",
    "--trust-remote-code": "runs code of the model's repository",
    "--allowed-local-media-path": "lets requests read files of the engine",
    "-sc": _SPECULATION,
    "-tp": "is set from spec.parallelism.tensor",
    "-pp": _ONE_ENGINE,
    "-dp": _ONE_ENGINE,
    "-q": "is set from spec.model.quantization",
    "-cc": _GRAPHS,
    "-asc": "is always 1: with more, gauges come from whichever server answered last",
}

_PATHS = "is set by the operator: the rest of the file system is read-only"
_PLUGIN = "is set by the operator: the runtime plugin relies on it"

ENVIRONMENT: dict[str, str] = {
    "VLLM_PLUGINS": _PLUGIN,
    "VLLM_USE_V2_MODEL_RUNNER": "is set by the operator: it decides how speculative tokens are scheduled",
    "VLLM_NO_USAGE_STATS": "is set by the operator",
    "VLLM_ENGINE_READY_TIMEOUT_S": "is set from spec.startup.budgetSeconds",
    "VLLM_CACHE_ROOT": _PATHS,
    "VLLM_RPC_BASE_PATH": _PATHS,
    "VLLM_SERVER_DEV_MODE": _OPENS,
    "VLLM_ALLOW_INSECURE_SERIALIZATION": _OPENS,
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": _OPENS,
    "VLLM_USE_RUST_FRONTEND": "loads no plugins, so the engine could not be controlled",
    "VLLM_PORT": _ADDRESS,
    "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "would keep a dead engine in service",
    "HF_HOME": _PATHS,
    "HF_TOKEN": "is set from spec.model.tokenSecret",
    "HOME": _PATHS,
    "USER": _PATHS,
    "TMPDIR": _PATHS,
    "XDG_CACHE_HOME": _PATHS,
    "TRITON_CACHE_DIR": _PATHS,
    "TORCHINDUCTOR_CACHE_DIR": _PATHS,
}


def owned_flag(argument: str) -> str | None:
    """The flag of ours that vLLM may take an argument for; None when it is the user's own, or a value."""
    if not argument.startswith("-"):
        return None
    name = argument.split("=", 1)[0].split(".", 1)[0].removesuffix("+")
    if name.startswith("--"):
        name = name.replace("_", "-")
        return next((flag for flag in FLAGS if flag.startswith(name)), None)
    if name.lstrip("-").isdigit():
        return None  # a negative number is a value
    # A short form of one letter takes its value without a space: -qfp8.
    short = [flag for flag in FLAGS if not flag.startswith("--")]
    return next((flag for flag in short if flag.startswith(name) or (len(flag) == 2 and name.startswith(flag))), None)


def refused_variable(name: str) -> str | None:
    """Why a variable is not the user's to set; None when it is."""
    return _PLUGIN if name.startswith("OUTRIDER_") else ENVIRONMENT.get(name)
