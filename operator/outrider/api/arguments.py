"""Arguments and environment variables of the engine that are the user's to give, and those that are not."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from outrider.api.rules import judged, refusing

# The engine's own table, with every flag's reason and remedy, is outrider.engine.flags; a test keeps the two in step.
# Abbreviations and other spellings need the parser's rules and are caught at admission instead.
REFUSED_ARGUMENTS = (
    r"^(--(model|revision|served-model-name|host|port|uds|speculative-config|spec-method|spec-model|spec-tokens"
    r"|max-num-seqs|max-num-batched-tokens|max-model-len|cudagraph-capture-sizes|max-cudagraph-capture-size"
    r"|compilation-config|api-server-count|shutdown-timeout|custom-histogram-buckets|tensor-parallel-size"
    r"|pipeline-parallel-size|data-parallel-size|quantization|kv-cache-dtype|gpu-memory-utilization|api-key"
    r"|scheduler-cls|disable-log-stats|config|trust-remote-code|allowed-local-media-path|grpc|headless)"
    r"|-sc|-tp|-pp|-dp|-q|-cc|-asc)([=.+].*)?$"
)
REFUSED_ENVIRONMENT = (
    r"^(VLLM_PLUGINS|VLLM_USE_V2_MODEL_RUNNER|VLLM_NO_USAGE_STATS|VLLM_ENGINE_READY_TIMEOUT_S|VLLM_CACHE_ROOT"
    r"|VLLM_RPC_BASE_PATH"
    r"|VLLM_SERVER_DEV_MODE|VLLM_ALLOW_INSECURE_SERIALIZATION|VLLM_ALLOW_RUNTIME_LORA_UPDATING|VLLM_USE_RUST_FRONTEND"
    r"|VLLM_PORT|VLLM_KEEP_ALIVE_ON_ENGINE_DEATH|OUTRIDER_.*|HF_HOME|HF_TOKEN|HOME|USER|TMPDIR|XDG_CACHE_HOME"
    r"|TRITON_CACHE_DIR|TORCHINDUCTOR_CACHE_DIR|NVIDIA_VISIBLE_DEVICES)$"
)

EnvironmentName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128),
    *judged(
        refusing(
            REFUSED_ENVIRONMENT,
            "this variable is set by the operator, or refused because it opens the engine; remove it from engine.env",
        ),
    ),
]
Argument = Annotated[
    str,
    Field(min_length=1, max_length=1024),
    *judged(
        refusing(
            REFUSED_ARGUMENTS,
            "this argument is set by the operator or refused for safety: remove it here and use the field of the spec"
            " that stands for it, such as engine.maxNumSeqs, engine.maxNumBatchedTokens, model.maxLength, parallelism,"
            " security.trustRemoteCode or speculation",
        ),
    ),
]
