"""What a field means when the user leaves it out: every default in one place, for manifests, control and status alike.

They are not defaults of the CRD. Those would be written into the live object, where they drift against Git, and an
operator of a later version could not improve them. The resolved values are shown in ``status.effective`` instead.

A default that reaches the pod template restarts every engine of the fleet when it changes: treat those as part of the
API.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.api.resource import Spec
    from outrider.api.speculation import Mode, Policy
    from outrider.api.workload import Percentile

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
    gpus: int
    gpu_resource: str
    tensor_parallel_size: int
    shared_memory: str
    max_num_seqs: int
    max_num_batched_tokens: int
    autoscaled: bool
    """True when KEDA sets the number of replicas."""
    min_replicas: int
    """The fixed number of replicas when not autoscaled."""
    max_replicas: int
    fixed_replicas: int | None
    """The number that the user asked for without an autoscaler; None keeps what runs, or one."""
    scale_down_stabilization_s: int
    pre_stop_s: int
    shutdown_timeout_s: int
    termination_grace_s: int
    startup_budget_s: int
    pod_monitor: bool


def resolve(spec: Spec, scale_down_stabilization_s: int = SCALE_DOWN_STABILIZATION_S) -> Resolved:
    """Fill in what the user left out; the look back before scaling down is the fleet's, or the service's own."""
    tuning, engine, scaling, drain = spec.speculation.tuning, spec.engine, spec.autoscaling, spec.drain
    ceiling = spec.speculation.max_speculative_tokens
    least = tuning.min_speculative_tokens or 0
    gpus = spec.resources.gpus or spec.parallelism.tensor or 1
    max_num_seqs = engine.max_num_seqs or MAX_NUM_SEQS
    pre_stop_s = PRE_STOP_S if drain.pre_stop_seconds is None else drain.pre_stop_seconds
    shutdown_s = SHUTDOWN_TIMEOUT_S if drain.shutdown_timeout_seconds is None else drain.shutdown_timeout_seconds
    min_replicas = (scaling and scaling.min_replicas) or 1
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
        gpus=gpus,
        gpu_resource=spec.resources.gpu_resource or GPU_RESOURCE,
        tensor_parallel_size=spec.parallelism.tensor or gpus,
        shared_memory=spec.resources.shared_memory or SHARED_MEMORY,
        max_num_seqs=max_num_seqs,
        # vLLM refuses a token budget that cannot hold one verification step of the largest batch.
        max_num_batched_tokens=engine.max_num_batched_tokens
        or max(MAX_NUM_BATCHED_TOKENS, max_num_seqs * (ceiling + 1)),
        autoscaled=scaling is not None and scaling.mode != "Off",
        min_replicas=min_replicas,
        fixed_replicas=None if scaling is None or scaling.mode != "Off" else scaling.min_replicas,
        max_replicas=max(min_replicas, (scaling and scaling.max_replicas) or min_replicas),
        scale_down_stabilization_s=scale_down_stabilization_s if stabilization_s is None else stabilization_s,
        pre_stop_s=pre_stop_s,
        shutdown_timeout_s=shutdown_s,
        termination_grace_s=drain.termination_grace_seconds or pre_stop_s + shutdown_s + GRACE_MARGIN_S,
        startup_budget_s=spec.startup.budget_seconds or STARTUP_BUDGET_S,
        pod_monitor=spec.monitoring.pod_monitor is not False,
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
