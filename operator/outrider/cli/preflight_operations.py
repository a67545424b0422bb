"""What to look at before a service is deployed: how it starts, scales and ends."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.api.defaults import MAX_REPLICAS
from outrider.cli import preflight_names
from outrider.cli.preflight_outcome import PreflightCheck, Subject, Verdict, doubt, not_checked, ok, repeated
from outrider.core.series import Missing
from outrider.engine import memory
from outrider.engine.command_line import capture_sizes, speculative_tokens_values

BYTES_PER_S = {"hub": 100e6, "object_store": 500e6, "image": 500e6, "volume": 500e6}
"""How fast an engine gets its weights, an assumption: from a hub at 100 MB/s, from a volume, a pulled image or a copied
bucket at 500."""
COPY_BYTES_PER_S = 200e6
"""How fast a bucket is copied, an assumption. That ends before the engine starts, and with it its budget."""
COMPILE_S = 300.0
"""From loaded weights to the first answer: compilation, CUDA graphs, warm-up; 220 to 235 s were reported for 31
billion parameters on one H100."""
LARGE_STEP_TOKENS = 16384
"""A prefill of so many tokens in one step holds up every running answer for several times its usual step."""
SHORT_DRAIN_S = 30


def replicas(subject: Subject) -> int:
    """The most replicas that may run."""
    resolved = subject.resolved
    bounded = resolved.scaler == "External" and resolved.max_replicas < MAX_REPLICAS
    return resolved.max_replicas if resolved.autoscaled or bounded else resolved.min_replicas


def _scales(subject: Subject) -> bool:
    """Whether a replica is ever given up for want of load."""
    return subject.resolved.autoscaled and subject.resolved.min_replicas < subject.resolved.max_replicas


def _cold_start(subject: Subject) -> Iterator[Verdict]:
    config, budget_s = subject.config, subject.config.startup_budget_s
    weights = memory.weights_of(config.model, config.quantization, subject.facts.target)
    if isinstance(weights, Missing):
        yield not_checked(f"{weights}: give --model-config")
        return
    source = subject.resolved.model_source
    rate = BYTES_PER_S[source]
    seconds = weights.total_bytes / rate + COMPILE_S
    copied_s = weights.total_bytes / COPY_BYTES_PER_S if source == "object_store" else 0.0
    words = (
        f"about {seconds / 60:.0f} min: {memory.gib(weights.total_bytes)} at {rate / 1e6:.0f} MB/s and"
        f" {COMPILE_S / 60:.0f} min to compile and warm up (assumptions)"
    ) + (f", after about {copied_s / 60:.0f} min for the copy of the bucket" if copied_s else "")
    if seconds > budget_s:
        yield doubt(
            "spec.startup.budgetSeconds",
            f"spec.startup.budgetSeconds is {budget_s}, and a cold start takes {words}: raise it, or keep weights in"
            " spec.storage.modelCache",
        )
    elif _scales(subject) and subject.resolved.scale_down_stabilization_s < copied_s + seconds:
        yield doubt(
            "spec.autoscaling.scaleDownStabilizationSeconds",
            "spec.autoscaling.scaleDownStabilizationSeconds is"
            f" {subject.resolved.scale_down_stabilization_s}, and a cold start takes {words}: a replica that is given"
            " up too soon is missed for longer than it was idle; raise it",
        )
    else:
        yield ok(f"a cold start takes {words}, within {budget_s} s")


def _tail(subject: Subject) -> Iterator[Verdict]:
    config, resolved = subject.config, subject.resolved
    yield from repeated(subject, ("BatchedTokens", "SmallBatchesPadded", "EagerEngine"))
    if resolved.tpot_s is None and resolved.ttft_s is None:
        yield not_checked("there are no objectives: set spec.objectives")
        return
    if config.max_num_batched_tokens > LARGE_STEP_TOKENS and resolved.tpot_s is not None:
        yield doubt(
            "spec.engine.maxNumBatchedTokens",
            f"spec.engine.maxNumBatchedTokens is {config.max_num_batched_tokens}, and there is an objective for the"
            " time per output token: one long prompt holds up all running answers for a whole step; 8192 is usual",
        )
    if subject.resource.spec.engine.chunked_prefill is False:
        yield doubt(
            "spec.engine.chunkedPrefill",
            "spec.engine.chunkedPrefill is false: a long prompt is computed in one piece while every running answer"
            " waits; leave it out",
        )
    least, largest = min(speculative_tokens_values(config)), max(capture_sizes(config))
    if (least + 1) * config.max_num_seqs > largest:
        yield doubt(
            "spec.engine.maxNumSeqs",
            f"spec.engine.maxNumSeqs is {config.max_num_seqs}: steps of more than {largest // (least + 1)} requests run"
            " without CUDA graphs, which shows in the slowest answers; lower it",
        )
    yield ok(f"steps of up to {config.max_num_seqs} requests and {config.max_num_batched_tokens} tokens")


def _drain(subject: Subject) -> Iterator[Verdict]:
    resolved = subject.resolved
    yield from repeated(subject, ("NoDrain",))
    if resolved.shutdown_timeout_s < SHORT_DRAIN_S:
        yield doubt(
            "spec.drain.shutdownTimeoutSeconds",
            f"spec.drain.shutdownTimeoutSeconds is {resolved.shutdown_timeout_s}: longer answers are cut off at every"
            " rollout and scale-down; set the time of your longest answer",
        )
    if resolved.pre_stop_s < 5:
        yield doubt(
            "spec.drain.preStopSeconds",
            f"spec.drain.preStopSeconds is {resolved.pre_stop_s}: while endpoints still name the pod, new requests get"
            " an empty answer that looks like a success; 15 is usual",
        )
    yield ok(
        f"{resolved.pre_stop_s} s to leave the endpoints, {resolved.shutdown_timeout_s} s to finish,"
        f" {resolved.termination_grace_s} s in all"
    )


def _disruption(subject: Subject) -> Iterator[Verdict]:
    resolved = subject.resolved
    if resolved.disruption_max_unavailable == 0:
        yield doubt(
            "spec.disruption.maxUnavailable",
            "spec.disruption.maxUnavailable is 0: no node with a replica can be drained; set 1",
        )
    if resolved.min_replicas == 1:
        when = "at low load " if _scales(subject) else ""
        yield doubt(
            "spec.autoscaling.minReplicas",
            f"spec.autoscaling.minReplicas is 1: {when}every drained node, crash and rollout is an outage of a cold"
            " start; set 2 where that matters",
        )
    elif 0 < resolved.min_replicas <= resolved.disruption_max_unavailable:
        yield doubt(
            "spec.disruption.maxUnavailable",
            f"spec.disruption.maxUnavailable is {resolved.disruption_max_unavailable}, and there may be only"
            f" {resolved.min_replicas} replicas: all may be evicted at once; lower it",
        )
    yield ok(
        f"at least {resolved.min_replicas} replicas, at most {resolved.disruption_max_unavailable} evicted at a time"
    )


def _rollout(subject: Subject) -> Iterator[Verdict]:
    resolved = subject.resolved
    if resolved.strategy == "Recreate":
        yield doubt(
            "spec.rollout.strategy",
            "spec.rollout.strategy is Recreate: every change of the engines is an outage of a cold start; RollingUpdate"
            " replaces one replica at a time, without a spare GPU",
        )
    elif resolved.max_surge > 0:
        yield doubt(
            "spec.rollout.maxSurge",
            f"spec.rollout.maxSurge is {resolved.max_surge}: a rollout waits until {resolved.max_surge} x"
            f" {resolved.gpus} further GPUs are free; leave it out where none are spare",
        )
    yield ok(f"{resolved.strategy}: at most {resolved.max_unavailable} missing at a time")


def _budget(subject: Subject) -> Iterator[Verdict]:
    most, gpus = replicas(subject), subject.resolved.gpus
    surge = subject.resolved.max_surge if subject.resolved.strategy == "RollingUpdate" else 0
    yield from repeated(subject, ("GpusNotUsed",))
    yield ok(f"up to {most} x {gpus} = {most * gpus} GPUs" + (f", and {surge * gpus} in a rollout" if surge else ""))


def _shared_memory(subject: Subject) -> Iterator[Verdict]:
    config = subject.config
    yield from repeated(subject, ("SharedMemory",))
    if config.tensor_parallel_size > 1 and config.shared_memory_bytes < 2**30:
        yield doubt(
            "spec.resources.sharedMemory",
            f"spec.resources.sharedMemory is {config.shared_memory_bytes / 2**20:g}Mi: processes of"
            f" {config.tensor_parallel_size} GPUs pass tensors through it, and too little of it ends them; 8Gi is"
            " usual",
        )
    yield ok(f"/dev/shm of up to {config.shared_memory_bytes / 2**30:g}Gi")


def _cache(subject: Subject) -> Iterator[Verdict]:
    most, claims = replicas(subject), list(preflight_names.claims(subject))
    if claims and most > 1:
        named = ", ".join(f"{name} ({field})" for field, name in claims)
        yield not_checked(
            f"whether {named} can be mounted by {most} replicas on several nodes depends on access modes: use --cluster"
        )
    elif subject.resolved.model_source == "hub" and not claims and subject.resolved.autoscaled:
        yield doubt(
            "spec.storage.modelCache",
            "spec.storage.modelCache is not set: every new replica downloads the weights again while load waits for it;"
            " name a claim that many nodes can write, or take weights from a volume or image",
        )
    else:
        yield ok("weights are found where they were, or there is one replica" if claims else "no claims are used")


CHECKS = (
    PreflightCheck(
        name="cold-start",
        why="A replica that has not answered within its budget is restarted, for ever; and one that takes long to start"
        " should not be given up lightly.",
        remedy="Raise startup.budgetSeconds, keep weights near, and look back longer before scaling down.",
        source="kserve/kserve#5062, vllm-project/vllm#17386, vllm-project/production-stack#688",
        look=_cold_start,
    ),
    PreflightCheck(
        name="tail-latency",
        why="The slowest answers are those that shared a step with a long prompt, or with more requests than there are"
        " CUDA graphs for.",
        remedy="Keep maxNumBatchedTokens near 8192 and maxNumSeqs within the captured graphs.",
        source="vllm-project/vllm#49548; _set_cudagraph_sizes in vllm/config/vllm.py of vLLM 0.33.0",
        look=_tail,
    ),
    PreflightCheck(
        name="drain",
        why="Every scale-down and rollout stops a replica that is in the middle of answers.",
        remedy="Give running requests the time of your longest answer.",
        source="kserve/kserve#5485, vllm-project/vllm#34730, vllm-project/vllm#24885",
        look=_drain,
    ),
    PreflightCheck(
        name="disruption",
        why="Nodes are drained and crash; one replica alone is then none.",
        remedy="Two replicas or more, and at most one evicted at a time.",
        source="kubernetes/kubernetes: PodDisruptionBudget, policy/v1",
        look=_disruption,
    ),
    PreflightCheck(
        name="rollout",
        why="A new pod that starts before the old one ends needs GPUs that may not be there.",
        remedy="Leave spec.rollout out, unless GPUs are spare.",
        source="defilantech/LLMKube#192, ai-runway/airunway#400",
        look=_rollout,
    ),
    PreflightCheck(
        name="gpu-budget",
        why="Scaling stops where the GPUs of the cluster end, and pods wait.",
        remedy="Compare with what the cluster has; --cluster does.",
        source="vllm-project/aibrix#617",
        look=_budget,
    ),
    PreflightCheck(
        name="shared-memory",
        why="Processes of one engine pass tensors through /dev/shm, which the runtime limits to 64 MiB and which counts"
        " against the memory of the container.",
        remedy="Leave sharedMemory at 8Gi, and memory above it.",
        source="vllm-project/production-stack#44, llm-d/llm-d-deployer#191, vllm-project/vllm#37982",
        look=_shared_memory,
    ),
    PreflightCheck(
        name="cache-volume",
        why="A volume that one node may write (ReadWriteOnce) keeps replicas on other nodes waiting, and without a"
        " volume each new replica downloads the weights.",
        remedy="A claim that many nodes can use, or weights from an image.",
        source="kubernetes/kubernetes: PersistentVolumeClaim access modes",
        look=_cache,
    ),
)
