"""The parts of the spec that say what runs and where: model, objectives, replicas, resources, engine, life of a pod,
monitoring."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from outrider.api.defaults import MIN_GRACE_MARGIN_S, PRE_STOP_S, SHUTDOWN_TIMEOUT_S
from outrider.api.fields import (
    Bool,
    Int,
    ModelId,
    Part,
    Quantity,
    Revision,
    Rule,
    SecretKey,
    StringMap,
    Text,
    Values,
    Word,
    refuse,
)

Percentile = Literal[50, 75, 90, 95, 99]

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
    r"|TRITON_CACHE_DIR|TORCHINDUCTOR_CACHE_DIR)$"
)


class Model(Part):
    """The model that is served."""

    id: ModelId
    """Repository or path of the model, for example `meta-llama/Llama-3.1-8B-Instruct`."""
    revision: Revision | None = None
    """Commit, tag or branch; pin it, so that a pod that starts tomorrow serves the same weights."""
    served_name: Text | None = None
    """Name that clients ask for, for example `chat`; the model's id when left out."""
    quantization: Word | None = None
    """Quantisation method in vLLM's words, for example `fp8`; what the model's own files say when left out."""
    kv_cache_dtype: Word | None = None
    """Data type of the KV cache, for example `fp8`; the model's own when left out."""
    max_length: Annotated[Int, Field(ge=1)] | None = None
    """Longest context in tokens, for example 32768; the model's own when left out."""
    token_secret: SecretKey | None = None
    """Secret with the token of a gated repository."""


class Objectives(Part):
    """What users of the service should see; tuning and scaling keep within it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.tpotMilliseconds) || self.tpotMilliseconds >= 1",
            lambda objectives: objectives.tpot_milliseconds is None or objectives.tpot_milliseconds >= 1,
            "tpotMilliseconds must be 1 or more; to have no objective for it leave the field out",
            ".tpotMilliseconds",
        ),
        Rule(
            "!has(self.ttftMilliseconds) || self.ttftMilliseconds >= 1",
            lambda objectives: objectives.ttft_milliseconds is None or objectives.ttft_milliseconds >= 1,
            "ttftMilliseconds must be 1 or more; to have no objective for it leave the field out",
            ".ttftMilliseconds",
        ),
    )

    tpot_milliseconds: Annotated[Int, Field(le=60_000)] | None = None
    """Time per output token of one request, in milliseconds, 1 to 60000, for example 40."""
    ttft_milliseconds: Annotated[Int, Field(le=3_600_000)] | None = None
    """Time from a request's arrival to its first token, in milliseconds, 1 to 3600000, for example 2000."""
    percentile: Percentile | None = None
    """Share of requests, in percent, that must meet the objectives; 95 when left out."""


class Autoscaling(Part):
    """Who sets the number of replicas, and between which bounds. Leave the block out for one fixed replica, or for
    as many as run when it is removed."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            lambda scaling: (
                scaling.min_replicas is None
                or scaling.max_replicas is None
                or scaling.min_replicas <= scaling.max_replicas
            ),
            "minReplicas must not be above maxReplicas: lower one or raise the other",
            ".minReplicas",
            Values(
                "minReplicas %d is above maxReplicas %d: lower one or raise the other",
                ("self.minReplicas", "self.maxReplicas"),
                lambda scaling: (scaling.min_replicas, scaling.max_replicas),
            ),
        ),
        Rule(
            "has(self.maxReplicas) || (has(self.mode) && self.mode == 'Off')",
            lambda scaling: scaling.max_replicas is not None or scaling.mode == "Off",
            'autoscaling needs an upper bound: set maxReplicas, or mode: "Off" (quoted) for a fixed number,'
            " minReplicas",
            ".maxReplicas",
        ),
    )

    mode: Literal["KEDA", "Off"] | None = None
    """KEDA scales by load; Off keeps minReplicas. KEDA when left out. In YAML write `"Off"` with its quotes: the bare
    word is a boolean there."""
    min_replicas: Annotated[Int, Field(ge=1, le=1000)] | None = None
    """Fewest replicas, 1 or more; 1 when left out."""
    max_replicas: Annotated[Int, Field(ge=1, le=1000)] | None = None
    """Most replicas, for example 6."""
    scale_down_stabilization_seconds: Annotated[Int, Field(ge=0, le=3600)] | None = None
    """For how long load must stay low before a replica is given up, in seconds, 0 to 3600; 300 when left out."""


class Resources(Part):
    """What one replica takes of a node."""

    gpus: Annotated[Int, Field(ge=1, le=16)] | None = None
    """GPUs of one replica, 1 to 16; as many as parallelism.tensor when left out."""
    gpu_resource: Annotated[str, Field(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$", max_length=253)] | None = None
    """Name of the GPU resource; `nvidia.com/gpu` when left out."""
    cpu: Quantity | None = None
    """Requested processors, for example `8`; there is no limit, which would throttle the engine's front end."""
    memory: Quantity | None = None
    """Main memory, requested and limited, for example `64Gi`; it includes sharedMemory."""
    shared_memory: Quantity | None = None
    """Upper bound of /dev/shm, for example `16Gi`; 8Gi when left out."""


EnvironmentName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128),
    *refuse(
        REFUSED_ENVIRONMENT,
        "this variable is set by the operator, or refused because it opens the engine; remove it from engine.env",
    ),
]
Argument = Annotated[
    str,
    Field(min_length=1, max_length=1024),
    *refuse(
        REFUSED_ARGUMENTS,
        "this argument is set by the operator or refused for safety: remove it here and use the field of the spec that"
        " stands"
        " for it, such as engine.maxNumSeqs, engine.maxNumBatchedTokens, model.maxLength, parallelism.tensor or"
        " speculation",
    ),
]


class EnvironmentVariable(Part):
    """One variable of the engine's environment, by value or from a Secret."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.value) != has(self.secret)",
            lambda variable: (variable.value is None) != (variable.secret is None),
            "give a variable of engine.env either value or secret",
        ),
    )

    name: EnvironmentName
    """Name of the variable, for example `VLLM_LOGGING_LEVEL`."""
    value: Annotated[str, Field(max_length=4096)] | None = None
    """Its value, as it stands."""
    secret: SecretKey | None = None
    """Secret key that holds its value; the pod waits until it exists."""


class EngineSettings(Part):
    """The inference engine."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.maxNumSeqs) || !has(self.maxNumBatchedTokens) || self.maxNumBatchedTokens >= self.maxNumSeqs",
            lambda engine: (
                engine.max_num_seqs is None
                or engine.max_num_batched_tokens is None
                or engine.max_num_batched_tokens >= engine.max_num_seqs
            ),
            "maxNumBatchedTokens must hold at least one token for each of maxNumSeqs requests: raise it or lower"
            " maxNumSeqs",
            ".maxNumBatchedTokens",
        ),
    )

    version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+([.-]?[a-z0-9.]+)?$", max_length=32)] | None = None
    """Version of vLLM in the image, for example `0.33.0`, which it is when left out; what is checked depends on it."""
    image: Annotated[str, Field(pattern=r"^[^\s]+$", max_length=512)] | None = None
    """Image of the engine; the operator's own for the version when left out. Another image may lack the runtime plugin,
    so it counts as ready by vLLM's own health alone, and its tokens may not be tunable."""
    extra_args: Annotated[list[Argument], Field(max_length=64)] = Field(default_factory=list)
    """Further arguments of vLLM's API server, one element each, for example `["--enable-prefix-caching"]`; not those
    that the operator sets itself."""
    env: Annotated[
        list[EnvironmentVariable],
        Field(
            max_length=64, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
        ),
    ] = Field(default_factory=list)
    """Further environment variables of the engine."""
    max_num_seqs: Annotated[Int, Field(ge=1, le=4096)] | None = None
    """Most requests in one engine step, 1 to 4096; 256 when left out."""
    max_num_batched_tokens: Annotated[Int, Field(ge=1, le=1_048_576)] | None = None
    """Most tokens in one engine step; 8192 when left out, or more where the largest batch needs it."""
    gpu_memory_utilization_percent: Annotated[Int, Field(ge=1, le=99)] | None = None
    """Share of the GPU memory that the engine may take, in percent; the engine's own rule when left out."""


class Parallelism(Part):
    """How one replica spreads over its GPUs."""

    tensor: Annotated[Int, Field(ge=1, le=16)] | None = None
    """GPUs that share each layer, 1 to 16; as many as resources.gpus when left out."""


class Toleration(Part):
    """As in a pod."""

    key: Annotated[str, Field(max_length=317)] | None = None
    """Key of the taint; all taints when left out."""
    operator: Literal["Exists", "Equal"] | None = None
    """How key and value are compared; Equal when left out."""
    value: Annotated[str, Field(max_length=63)] | None = None
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; all effects when left out."""
    toleration_seconds: Annotated[Int, Field(ge=0)] | None = None
    """For how long a NoExecute taint is borne, in seconds; for ever when left out."""


class Placement(Part):
    """Which nodes may run replicas."""

    node_selector: StringMap = Field(default_factory=dict)
    """Labels that a node must have, for example `nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3`."""
    tolerations: Annotated[list[Toleration], Field(max_length=16)] = Field(default_factory=list)
    """Taints that replicas bear."""


class Drain(Part):
    """How a replica ends: it leaves the endpoints, finishes its requests, then stops."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.terminationGraceSeconds) || self.terminationGraceSeconds >"
            f" (has(self.preStopSeconds) ? self.preStopSeconds : {PRE_STOP_S})"
            f" + (has(self.shutdownTimeoutSeconds) ? self.shutdownTimeoutSeconds : {SHUTDOWN_TIMEOUT_S})"
            f" + {MIN_GRACE_MARGIN_S}",
            lambda drain: (
                drain.termination_grace_seconds is None
                or drain.termination_grace_seconds
                > (PRE_STOP_S if drain.pre_stop_seconds is None else drain.pre_stop_seconds)
                + (SHUTDOWN_TIMEOUT_S if drain.shutdown_timeout_seconds is None else drain.shutdown_timeout_seconds)
                + MIN_GRACE_MARGIN_S
            ),
            f"terminationGraceSeconds must be over preStopSeconds (default {PRE_STOP_S}) + shutdownTimeoutSeconds"
            " (default"
            f" {SHUTDOWN_TIMEOUT_S}) + {MIN_GRACE_MARGIN_S}, or answers are cut off: raise it, or leave it out",
            ".terminationGraceSeconds",
        ),
    )

    pre_stop_seconds: Annotated[Int, Field(ge=0, le=600)] | None = None
    """Pause before the stop signal, in seconds, so that nobody sends requests any more; 15 when left out."""
    shutdown_timeout_seconds: Annotated[Int, Field(ge=0, le=7200)] | None = None
    """For how long running requests may finish, in seconds; 60 when left out, 0 cuts them off."""
    termination_grace_seconds: Annotated[Int, Field(ge=1, le=14400)] | None = None
    """When the pod is killed, in seconds after the decision to stop it; the two above and 15 when left out."""


class Startup(Part):
    """How long a replica may take to load."""

    budget_seconds: Annotated[Int, Field(ge=60, le=86_400)] | None = None
    """Longest time from start to the first healthy answer, in seconds, 60 to 86400; 1800 when left out."""


class Monitoring(Part):
    """How Prometheus finds the engines."""

    pod_monitor: Bool | None = None
    """Whether the operator makes a PodMonitor, where that kind is installed; true when left out."""
    labels: StringMap = Field(default_factory=dict)
    """Labels of the PodMonitor by which a Prometheus selects it, for example `release: prometheus`."""
