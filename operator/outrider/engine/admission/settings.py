"""Settings of the engine that exclude or limit each other."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.engine import capabilities as known
from outrider.engine import flags
from outrider.engine.admission.checks import Check, Said, error, warning
from outrider.engine.capabilities import Feature
from outrider.engine.config import EngineConfig
from outrider.engine.model_facts import PairFacts

_ADAPTIVE = "spec.speculation.adaptiveVerification"
_FLY = "spec.speculation.rejectionSampling"


def adapters(config: EngineConfig) -> str | None:
    """The field that asks for adapters; None without."""
    if config.lora is not None:
        return "spec.engine.lora"
    return next(
        (
            f"spec.engine.extraArgs[{position}]"
            for position, argument in enumerate(config.extra_args)
            if flags.spells(argument, "--enable-lora")
        ),
        None,
    )


def _adapters(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    field = adapters(config)
    if field is None or not config.speculates:
        return
    if known.supports(config.version, Feature.SPECULATION_WITH_LORA) is False:
        yield error(
            field,
            f"{field}: vLLM {config.version} crashes on adapters under speculation, which work from 0.11: raise"
            " spec.engine.version, or set tuning.mode Off",
        )
        return
    needed = config.max_num_seqs * (config.max_speculative_tokens + 1)
    if config.max_num_batched_tokens < needed:
        yield error(
            field,
            f"{field}: adapters under speculation need spec.engine.maxNumBatchedTokens of maxNumSeqs"
            f" {config.max_num_seqs} x (maxSpeculativeTokens {config.max_speculative_tokens} + 1) = {needed} or more,"
            f" and it is {config.max_num_batched_tokens}: raise it, or lower one of the two",
        )
    yield warning(
        field,
        f"{field}: the draft is not adapted, so adapters change the model but not its drafter; acceptance may differ"
        " from adapter to adapter",
    )


def _producer(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    if config.speculates and config.kv_transfer is not None and config.kv_transfer.role == "producer":
        yield error(
            "spec.engine.kvTransfer.role",
            "spec.engine.kvTransfer.role is Producer: a prefill-only pod gains nothing from speculation; set"
            " spec.speculation.tuning.mode Off here, and speculate where the tokens are decoded",
        )


def _fly(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    sampling, k = config.rejection_sampling, config.max_speculative_tokens
    if not config.speculates or sampling is None or sampling.method != "fly":
        return
    if k < 2:
        yield error(
            f"{_FLY}.method",
            f"{_FLY}.method Fly needs maxSpeculativeTokens of 2 or more, and it is {k}: raise it, or choose another",
        )
    elif sampling.fly_window_size is not None and sampling.fly_window_size >= k:
        yield error(
            f"{_FLY}.flyWindowSize",
            f"{_FLY}.flyWindowSize is {sampling.fly_window_size}: it must be below maxSpeculativeTokens, {k}:"
            " lower it, or raise the ceiling",
        )
    else:
        yield warning(
            f"{_FLY}.method",
            f"{_FLY}.method Fly keeps some drafts that the model would not have chosen: answers may get worse;"
            " compare them before you rely on it",
        )


def _adaptive_verification(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    if not config.speculates or not config.adaptive_verification:
        return
    if adapters(config) is not None:
        yield error(_ADAPTIVE, f"{_ADAPTIVE} does not go with adapters: remove it, or {adapters(config)}")
    if config.pipeline_parallel_size > 1:
        yield error(
            _ADAPTIVE,
            f"{_ADAPTIVE} does not go with several pipeline stages: remove it, or set spec.parallelism.pipeline 1",
        )
    for position, argument in enumerate(config.extra_args):
        if flags.spells(argument, "--enforce-eager"):
            yield error(
                _ADAPTIVE,
                f"{_ADAPTIVE} needs CUDA graphs: remove it, or --enforce-eager from spec.engine.extraArgs[{position}]",
            )


def _draft_sampling(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    field = "spec.speculation.draftSampling"
    if not config.speculates or config.draft_sampling != "probabilistic":
        return
    if config.heterogeneous_vocab:
        yield error(
            field, f"{field} Probabilistic does not go with heterogeneousVocab: set Greedy, or leave one of them out"
        )
    elif config.method in ("ngram", "suffix"):
        yield error(
            field, f"{field} is Probabilistic, and method {config.method} has no draft model to sample from: remove it"
        )


def _async(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    if not config.speculates or known.runner(config) == "V2":
        return
    for position, argument in enumerate(config.extra_args):
        if flags.spells(argument, "--async-scheduling") and config.method in ("suffix", "ngram"):
            field = f"spec.engine.extraArgs[{position}]"
            yield error(field, f"{field}: vLLM refuses --async-scheduling with method {config.method}: remove it")


def _batched_tokens(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    field = "spec.engine.maxNumBatchedTokens"
    if not config.speculates:
        return
    if config.max_num_batched_tokens <= config.max_speculative_tokens + 1:
        yield error(
            field,
            f"{field} is {config.max_num_batched_tokens}, which leaves no token beside the"
            f" {config.max_speculative_tokens} drafts of one request: raise it",
        )
    elif config.max_num_batched_tokens < config.max_num_seqs * (config.max_speculative_tokens + 1):
        most = config.max_num_batched_tokens // (config.max_speculative_tokens + 1)
        yield warning(
            field,
            f"{field} is {config.max_num_batched_tokens}: at maxSpeculativeTokens {config.max_speculative_tokens} that"
            f" is one step of {most} requests, below maxNumSeqs {config.max_num_seqs}; raise it if so many are to run"
            " at once",
        )


def _lengths(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    drafter = config.drafter
    field = "spec.speculation.draft.maxLength"
    if drafter is None or drafter.max_length is None or config.max_length is None or not config.speculates:
        return
    if drafter.max_length > config.max_length:
        yield error(
            field,
            f"{field} is {drafter.max_length}, above spec.model.maxLength {config.max_length}: lower it, or leave it"
            " out",
        )


def _gguf(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    field = "spec.model.quantization"
    if config.quantization != "gguf":
        return
    if known.supports(config.version, Feature.GGUF) is False:
        yield error(
            field,
            f"{field} is gguf: vLLM {config.version} left it to a plugin, and an engine of ours loads no plugin but its"
            " own; use weights of another quantisation, such as fp8 or awq",
        )
    elif config.speculates and config.drafter is not None:
        yield error(
            field,
            f"{field} is gguf: not supported with a separate draft, which fails while its weights are loaded; use"
            " another quantisation, a method without a drafter such as ngram, or tuning.mode Off",
        )


def _shared_memory(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    if config.memory_bytes is not None and config.memory_bytes < 2**20:
        # No container starts with less, and a kubelet's words for it do not speak of units.
        yield error(
            "spec.resources.memory",
            f"spec.resources.memory is {config.memory_bytes:.0f} bytes: give it a unit, for example 64Gi",
        )
    elif config.memory_bytes is not None and config.shared_memory_bytes > config.memory_bytes:
        yield warning(
            "spec.resources.sharedMemory",
            f"spec.resources.sharedMemory, {config.shared_memory_bytes / 2**30:g}Gi, is more than memory,"
            f" {config.memory_bytes / 2**30:g}Gi, which it counts against: an engine that fills it is killed; raise"
            " memory or lower sharedMemory",
        )


CHECKS = (
    Check(
        code="AdaptersWithSpeculation",
        fields=("spec.engine.lora", "spec.engine.extraArgs", "spec.engine.maxNumBatchedTokens"),
        why="Old engines crash on adapters under speculation; later ones adapt the model only, and size the adapters'"
        " buffers for all requests with all their drafts.",
        remedy="Use vLLM 0.11 or later, raise maxNumBatchedTokens, and look at acceptance by adapter.",
        source="vllm-project/vllm#4872, vllm-project/vllm#6912, vllm-project/vllm#21068, vllm-project/vllm#52038",
        find=_adapters,
    ),
    Check(
        code="ProducerWithSpeculation",
        fields=("spec.engine.kvTransfer.role", "spec.speculation"),
        why="An engine that only fills the KV cache for others decodes nothing, so no draft of it is ever used.",
        remedy="Set tuning.mode Off for the producer.",
        source="vllm/config/kv_transfer.py of vLLM 0.33.0",
        find=_producer,
    ),
    Check(
        code="FlyVerification",
        fields=(_FLY, "spec.speculation.maxSpeculativeTokens"),
        why="Fly looks at a window of later drafts before it drops one, and so changes what the model says.",
        remedy="Give it two drafts or more, and compare answers.",
        source="_verify_args in vllm/config/speculative.py of vLLM 0.33.0",
        find=_fly,
    ),
    Check(
        code="AdaptiveVerification",
        fields=(_ADAPTIVE,),
        why="vLLM decides on the GPU how many drafts to verify, which adapters, pipeline stages and engines without"
        " CUDA graphs cannot follow.",
        remedy="Leave one of the two out.",
        source="vllm-project/vllm#47808; _validate_adaptive_verification in vllm/config/vllm.py of vLLM 0.33.0",
        find=_adaptive_verification,
    ),
    Check(
        code="DraftSampling",
        fields=("spec.speculation.draftSampling",),
        why="Sampled drafts need the drafter's probabilities over the model's own tokens.",
        remedy="Set Greedy, or leave it out.",
        source="_verify_args in vllm/config/speculative.py of vLLM 0.33.0",
        find=_draft_sampling,
    ),
    Check(
        code="AsyncScheduling",
        fields=("spec.engine.extraArgs",),
        why="vLLM's older runner cannot schedule ahead for methods that look drafts up in the text.",
        remedy="Remove --async-scheduling.",
        source="vllm/config/vllm.py of vLLM 0.33.0",
        find=_async,
    ),
    Check(
        code="BatchedTokens",
        fields=("spec.engine.maxNumBatchedTokens", "spec.engine.maxNumSeqs", "spec.speculation.maxSpeculativeTokens"),
        why="Each request of a step counts with its token and its drafts.",
        remedy="Raise maxNumBatchedTokens, or lower maxNumSeqs or maxSpeculativeTokens.",
        source="vllm/config/vllm.py of vLLM 0.33.0",
        find=_batched_tokens,
    ),
    Check(
        code="DrafterLength",
        fields=("spec.speculation.draft.maxLength", "spec.model.maxLength"),
        why="A drafter cannot be asked for positions that the model does not have.",
        remedy="Lower draft.maxLength.",
        source="_maybe_override_draft_max_model_len in vllm/config/speculative.py of vLLM 0.33.0",
        find=_lengths,
    ),
    Check(
        code="GgufWithDrafter",
        fields=("spec.model.quantization", "spec.speculation.draft"),
        why="The loader of GGUF files takes the drafter for a part of them; from vLLM 0.24 on they need a plugin.",
        remedy="Use weights of another quantisation.",
        source="vllm-project/vllm#11839, vllm-project/vllm#53214; " + known.FEATURES[Feature.GGUF].source,
        find=_gguf,
    ),
    Check(
        code="SharedMemory",
        fields=("spec.resources.sharedMemory", "spec.resources.memory"),
        why="What an engine writes to /dev/shm counts against the memory of its container.",
        remedy="Raise memory, or lower sharedMemory.",
        source="vllm-project/production-stack#44, llm-d/llm-d-deployer#191",
        find=_shared_memory,
    ),
)
