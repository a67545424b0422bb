"""Arguments and variables of the engine that are not the user's to set: each with what to do instead.

vLLM's parser takes more than the literal name: unambiguous abbreviations (``--max-num-seq``), underscores, a value
behind ``=``, keys behind a dot (``--speculative-config.method``), short forms and their abbreviations (``-s`` for
``-sc``). So a name counts as ours when it, written with dashes and without value and key, begins a name of ours. That
refuses some ambiguous abbreviations that vLLM would refuse as well.
"""

from __future__ import annotations

_SPECULATION = "is set from spec.speculation"
_GRAPHS = "would change the CUDA graphs, which the operator sizes for all speculative tokens"
_ONE_POD = "is not offered: an engine is one pod with its GPUs, sized by spec.parallelism, and replicas do the rest"
_PIPELINE = "is set from spec.parallelism.pipeline"
_DATA = "is set from spec.parallelism.data"
_PLAIN = "makes the engine speak https, while probes, scrapes and clients of the Service speak http: end TLS before it"
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
    "--pipeline-parallel-size": _PIPELINE,
    "--data-parallel-size": _DATA,
    "--api-server-count": "is always 1: with more, gauges come from whichever server answered last",
    "--headless": _ONE_POD,
    "--grpc": "loads no plugins, so the engine could not be controlled",
    "--scheduler-cls": "would replace the scheduler whose speculative tokens are controlled",
    "--custom-histogram-buckets": _METRICS,
    "--disable-log-stats": _METRICS,
    "--host": _ADDRESS,
    "--port": _ADDRESS,
    "--uds": _ADDRESS,
    "--api-key": "is visible to all who see the process: set VLLM_API_KEY in spec.engine.env from a Secret",
    "--config": "hides arguments in a file: name them in spec.engine.extraArgs",
    "--trust-remote-code": "runs code of the model's repository and is set from spec.security.trustRemoteCode",
    "--allowed-local-media-path": "lets requests read files of the engine",
    "-sc": _SPECULATION,
    "-tp": "is set from spec.parallelism.tensor",
    "-pp": _PIPELINE,
    "-dp": _DATA,
    "-q": "is set from spec.model.quantization",
    "-cc": _GRAPHS,
    "-asc": "is always 1: with more, gauges come from whichever server answered last",
}

FURTHER: dict[str, str] = {
    "--device-memory-utilization": "is set from spec.engine.gpuMemoryUtilizationPercent",
    "--optimization-level": _GRAPHS,
    "--cuda-graph-sizes": _GRAPHS,
    "--nnodes": _ONE_POD,
    "--node-rank": _ONE_POD,
    "--master-addr": _ONE_POD,
    "--master-port": _ONE_POD,
    "--prefill-context-parallel-size": _ONE_POD,
    "--data-parallel-rank": _ONE_POD,
    "--data-parallel-start-rank": _ONE_POD,
    "--data-parallel-size-local": _ONE_POD,
    "--data-parallel-address": _ONE_POD,
    "--data-parallel-rpc-port": _ONE_POD,
    "--data-parallel-backend": _ONE_POD,
    "--data-parallel-hybrid-lb": _ONE_POD,
    "--data-parallel-external-lb": _ONE_POD,
    "--data-parallel-multi-port-external-lb": _ONE_POD,
    "--data-parallel-supervisor-port": _ONE_POD,
    "--ssl-keyfile": _PLAIN,
    "--ssl-certfile": _PLAIN,
    "--ssl-ca-certs": _PLAIN,
    "--ssl-cert-reqs": _PLAIN,
    "--ssl-ciphers": _PLAIN,
    "--enable-ssl-refresh": _PLAIN,
    "-O": _GRAPHS,
    "-n": _ONE_POD,
    "-r": _ONE_POD,
    "-pcp": _ONE_POD,
    "-dpn": _ONE_POD,
    "-dpr": _ONE_POD,
    "-dpl": _ONE_POD,
    "-dpa": _ONE_POD,
    "-dpp": _ONE_POD,
    "-dpb": _ONE_POD,
    "-dph": _ONE_POD,
    "-dpe": _ONE_POD,
    "-dpm": _ONE_POD,
}
"""Refused at admission alone: the pattern of the CRD holds what people reach for, and stays short."""

REFUSED = FLAGS | FURTHER

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
    "NVIDIA_VISIBLE_DEVICES": "hands out GPUs past the scheduler: set spec.resources.gpus",
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
        return next((flag for flag in REFUSED if flag.startswith(name)), None)
    if name.lstrip("-").isdigit():
        return None  # a negative number is a value
    # A short form of one letter takes its value without a space: -qfp8.
    short = [flag for flag in REFUSED if not flag.startswith("--")]
    return next((flag for flag in short if flag.startswith(name) or (len(flag) == 2 and name.startswith(flag))), None)


def spells(argument: str, flag: str) -> bool:
    """Whether vLLM may take an argument for that flag, written in full or shortened; value and key do not matter."""
    name = argument.split("=", 1)[0].split(".", 1)[0].removesuffix("+").replace("_", "-")
    return len(name) > len("--") and name.startswith("--") and flag.startswith(name)


def refused_variable(name: str) -> str | None:
    """Why a variable is not the user's to set; None when it is."""
    return _PLUGIN if name.startswith("OUTRIDER_") else ENVIRONMENT.get(name)
