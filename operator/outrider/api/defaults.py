"""What a field means when the user leaves it out: every default in one place, for manifests, control and status alike.

They are not defaults of the CRD. Those would be written into the live object, where they drift against Git, and an
operator of a later version could not improve them. The resolved values are shown in ``status.effective`` instead.

A default that reaches the pod template restarts every engine of the fleet when it changes: treat those as part of the
API.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.core.revisions.analysis import MARGIN, MAX_TIME_S

if TYPE_CHECKING:
    from outrider.api.life import RolloutPolicy, Strategy
    from outrider.api.model import Source, SourceKind
    from outrider.api.resource import Spec
    from outrider.api.scaling import Autoscaling, Percentile, ScaleBy, Scaler
    from outrider.api.speculation import Ngram
    from outrider.api.surroundings import ServiceType
    from outrider.api.tuning import Mode, Policy

ENGINE_VERSION = "0.33.0"  # the first vLLM whose K follows a table on the V2 runner with CUDA graphs for every K
GPU_RESOURCE = "nvidia.com/gpu"
MAX_NUM_SEQS = 256  # vLLM's own order of size; one step looks K up by a batch size up to this
MAX_NUM_BATCHED_TOKENS = 8192  # below it vLLM warns that speculation may starve prefill
SHARED_MEMORY = "8Gi"  # a cap, not a reservation; the runtime's 64 MiB crash engines with tensor parallelism
INITIAL_SPECULATIVE_TOKENS = 3  # pays at small and middling batch sizes for every published drafter
PERCENTILE: Percentile = 95
SCALE_DOWN_STABILIZATION_S = 300  # a replica takes minutes to load, so giving one up must be sure
PRE_STOP_S = 15  # endpoints and pickers need a moment to drop a pod that is about to stop
SHUTDOWN_TIMEOUT_S = 60
GRACE_MARGIN_S = 15  # over preStop and drain; vLLM needs up to 10 s more to end its workers
MIN_GRACE_MARGIN_S = 10
PROMPT_LOOKUP = 5  # vLLM's own for both bounds (vllm 0.33.0: config/speculative.py)
KV_CACHE_TARGET_PERCENT = 80  # above it vLLM soon preempts requests and computes their prompts again
MAX_SURGE = 0  # a pod that starts before another stops would wait for ever for the GPU that the other holds
MAX_UNAVAILABLE = 1
DISRUPTION_MAX_UNAVAILABLE = 1  # a minimum instead would block the drain of a service with one replica for ever
USER_ID = 1000  # any but root; set because images that run as root are common, and runAsNonRoot would refuse them
IDLE_AFTER_S = 300  # KEDA's own
MAX_REPLICAS = 1000  # the most that a resource can name
EVALUATION_MINUTES = 30  # some thousand short questions to two engines; a candidate holds a GPU meanwhile
STARTUP_BUDGET_S = 1800  # 70B weights from a hub at 100 MB/s take 23 minutes, graphs and compilation 3 more


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings of one service with every default filled in; seconds and fractions, as everywhere inside."""

    served_name: str
    engine_version: str
    mode: Mode
    policy: Policy
    max_speculative_tokens: int
    """The ceiling, 1 to 16; it stays what the spec says when the mode is Off."""
    min_speculative_tokens: int
    initial_speculative_tokens: int
    """As wished; an engine may only have graphs for a smaller one (`outrider.engine.command_line.initial_schedule`)."""
    tpot_s: float | None
    ttft_s: float | None
    percentile: float
    """0.5 to 0.99: the share of requests that must meet the objectives."""
    model_source: SourceKind
    draft_source: SourceKind
    """The drafter's; ``hub`` where there is no drafter."""
    prompt_lookup: tuple[int, int] | None
    """Fewest and most tokens that method ngram looks up; None for other methods."""
    gpus: int
    """GPUs of one replica: tensor x pipeline x data."""
    gpu_resource: str
    """The extended resource; not requested where the spec has resource claims."""
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    shared_memory: str
    max_num_seqs: int
    max_num_batched_tokens: int
    scaler: Scaler
    """Who sets the number of replicas."""
    scale_by: ScaleBy
    min_replicas: int
    """The fixed number of replicas where nobody scales; 0 only with ``idle_after_s``."""
    max_replicas: int
    """Within the budget of GPUs; `MAX_REPLICAS` for an external autoscaler without a bound."""
    gpu_budget: int | None
    """GPUs that all replicas may have together."""
    fixed_replicas: int | None
    """The number that the user asked for without an autoscaler; None keeps what runs, or one."""
    scale_down_stabilization_s: int
    idle_after_s: int | None
    """Seconds without a request after which the last replica goes; None where one always stays."""
    wake_query: str | None
    kv_cache_target_percent: int
    """1 to 100: percent, as the query of the trigger gives it."""
    strategy: Strategy
    max_surge: int
    max_unavailable: int
    """Of a rolling update; neither is used with ``Recreate``."""
    rollout_policy: RolloutPolicy | None
    """How changes that can be compared are rolled out; None leaves it to what can be compared."""
    approved: str | None
    """The revision that all replicas shall get."""
    margin: float
    """0 to 1: the loss of token goodput that is still not worse."""
    trial_max_s: float
    evaluation_max_s: float | None
    """Of a candidate's evaluation; None where none is asked."""
    quality_tolerance: float | None
    """0 to 1: the relative loss of score that is still as good; None leaves it to the result."""
    disruption_max_unavailable: int
    pre_stop_s: int
    shutdown_timeout_s: int
    termination_grace_s: int
    startup_budget_s: int
    pod_monitor: bool
    service_type: ServiceType
    session_affinity_s: int | None
    """None without affinity."""
    network_policy: bool
    run_as_user: int
    run_as_group: int
    fs_group: int
    trust_remote_code: bool

    @property
    def autoscaled(self) -> bool:
        """Whether KEDA sets the number of replicas."""
        return self.scaler == "KEDA"

    @property
    def bounded_by_gpus(self) -> bool:
        """Whether one replica more would go beyond the budget of GPUs."""
        return self.gpu_budget is not None and (self.max_replicas + 1) * self.gpus > self.gpu_budget


def resolve(spec: Spec, scale_down_stabilization_s: int = SCALE_DOWN_STABILIZATION_S) -> Resolved:
    """Fill in what the user left out; the look back before scaling down is the fleet's, or the service's own."""
    tuning, engine, scaling, drain = spec.speculation.tuning, spec.engine, spec.autoscaling, spec.drain
    ceiling = spec.speculation.max_speculative_tokens
    least = tuning.min_speculative_tokens or 0
    gpus = spec.resources.gpus or spec.parallelism.gpus
    rollout, security, service, quality = spec.rollout, spec.security, spec.service, spec.rollout.quality
    max_num_seqs = engine.max_num_seqs or MAX_NUM_SEQS
    pre_stop_s = PRE_STOP_S if drain.pre_stop_seconds is None else drain.pre_stop_seconds
    shutdown_s = SHUTDOWN_TIMEOUT_S if drain.shutdown_timeout_seconds is None else drain.shutdown_timeout_seconds
    min_replicas = 1 if scaling is None or scaling.min_replicas is None else scaling.min_replicas
    idle = None if scaling is None else scaling.idle
    stabilization_s = None if scaling is None else scaling.scale_down_stabilization_seconds
    return Resolved(
        served_name=spec.model.served_name or spec.model.id,
        engine_version=engine.version or ENGINE_VERSION,
        mode=tuning.mode or "Adaptive",
        policy=tuning.policy or "Goodput",
        max_speculative_tokens=ceiling,
        min_speculative_tokens=least,
        initial_speculative_tokens=(
            max(least, min(INITIAL_SPECULATIVE_TOKENS, ceiling))
            if tuning.initial_speculative_tokens is None
            else tuning.initial_speculative_tokens
        ),
        tpot_s=_seconds(spec.objectives.tpot_milliseconds),
        ttft_s=_seconds(spec.objectives.ttft_milliseconds),
        percentile=(spec.objectives.percentile or PERCENTILE) / 100,
        model_source=_kind(spec.model.source),
        draft_source=_kind(None if spec.speculation.draft is None else spec.speculation.draft.source),
        prompt_lookup=_prompt_lookup(spec.speculation.ngram) if spec.speculation.method == "ngram" else None,
        gpus=gpus,
        gpu_resource=spec.resources.gpu_resource or GPU_RESOURCE,
        tensor_parallel_size=spec.parallelism.tensor or gpus // spec.parallelism.copies,
        pipeline_parallel_size=spec.parallelism.pipeline or 1,
        data_parallel_size=spec.parallelism.data or 1,
        shared_memory=spec.resources.shared_memory or SHARED_MEMORY,
        max_num_seqs=max_num_seqs,
        # vLLM refuses a token budget that cannot hold one verification step of the largest batch.
        max_num_batched_tokens=engine.max_num_batched_tokens
        or max(MAX_NUM_BATCHED_TOKENS, max_num_seqs * (ceiling + 1)),
        scaler="Off" if scaling is None else scaling.mode or "KEDA",
        scale_by=(scaling and scaling.scale_by) or "Requests",
        min_replicas=min_replicas,
        fixed_replicas=None if scaling is None or scaling.mode != "Off" else scaling.min_replicas,
        max_replicas=_max_replicas(scaling, min_replicas, gpus),
        gpu_budget=None if scaling is None else scaling.gpu_budget,
        scale_down_stabilization_s=scale_down_stabilization_s if stabilization_s is None else stabilization_s,
        idle_after_s=None if idle is None else IDLE_AFTER_S if idle.after_seconds is None else idle.after_seconds,
        wake_query=None if idle is None else idle.wake_query,
        kv_cache_target_percent=(scaling and scaling.kv_cache_target_percent) or KV_CACHE_TARGET_PERCENT,
        strategy=rollout.strategy or "RollingUpdate",
        max_surge=MAX_SURGE if rollout.max_surge is None else rollout.max_surge,
        max_unavailable=MAX_UNAVAILABLE if rollout.max_unavailable is None else rollout.max_unavailable,
        rollout_policy="Rolling" if rollout.strategy == "Recreate" else rollout.policy,
        approved=rollout.approve,
        margin=MARGIN if rollout.margin_percent is None else rollout.margin_percent / 100,
        trial_max_s=MAX_TIME_S if rollout.max_minutes is None else 60.0 * rollout.max_minutes,
        evaluation_max_s=None if quality is None else 60.0 * (quality.max_minutes or EVALUATION_MINUTES),
        quality_tolerance=(
            None if quality is None or quality.tolerance_percent is None else quality.tolerance_percent / 100
        ),
        disruption_max_unavailable=(
            DISRUPTION_MAX_UNAVAILABLE if spec.disruption.max_unavailable is None else spec.disruption.max_unavailable
        ),
        pre_stop_s=pre_stop_s,
        shutdown_timeout_s=shutdown_s,
        termination_grace_s=drain.termination_grace_seconds or pre_stop_s + shutdown_s + GRACE_MARGIN_S,
        startup_budget_s=spec.startup.budget_seconds or STARTUP_BUDGET_S,
        pod_monitor=spec.monitoring.pod_monitor is not False,
        service_type=service.type or "ClusterIP",
        session_affinity_s=service.session_affinity_seconds,
        network_policy=(
            bool(spec.network_policy.allow_from) if spec.network_policy.enabled is None else spec.network_policy.enabled
        ),
        run_as_user=security.run_as_user or USER_ID,
        run_as_group=security.run_as_group or USER_ID,
        fs_group=security.fs_group or USER_ID,
        trust_remote_code=security.trust_remote_code or False,
    )


def _max_replicas(scaling: Autoscaling | None, least: int, gpus: int) -> int:
    if scaling is None:
        return least
    most = scaling.max_replicas or (MAX_REPLICAS if scaling.mode == "External" else least)
    return most if scaling.gpu_budget is None else min(most, scaling.gpu_budget // gpus)


def _kind(source: Source | None) -> SourceKind:
    return "hub" if source is None else source.kind


def _prompt_lookup(ngram: Ngram | None) -> tuple[int, int]:
    """One bound alone stands for both, as in the engine."""
    least, most = (None, None) if ngram is None else (ngram.prompt_lookup_min, ngram.prompt_lookup_max)
    return least or most or PROMPT_LOOKUP, most or least or PROMPT_LOOKUP


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
