"""GPUs of one engine, and how target and drafter are spread over them."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.engine import capabilities as known
from outrider.engine.admission.checks import Check, Said, error, warning
from outrider.engine.capabilities import Feature
from outrider.engine.config import EngineConfig
from outrider.engine.model_facts import ModelFacts, PairFacts

OWN_WEIGHTS = ("draft_model", "eagle", "eagle3", "mtp", "dflash", "dspark", "medusa", "mlp_speculator")
"""Methods that run a network of their own, as a separate model or as a head."""
PIPELINE_FAMILIES = ("deepseek_v3", "qwen3_5", "qwen3_5_moe")
"""Families whose MTP head was shown to work on the last of several pipeline stages (vllm-project/vllm#46994)."""


def _gpus(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    tensor, pipeline, data = config.tensor_parallel_size, config.pipeline_parallel_size, config.data_parallel_size
    if config.gpus == tensor * pipeline * data:
        return
    if pipeline == data == 1:
        yield error(
            "spec.resources.gpus",
            f"spec.resources.gpus is {config.gpus} and spec.parallelism.tensor {tensor}: each GPU of a replica takes"
            " one share, so set one of them only",
        )
    else:
        yield error(
            "spec.resources.gpus",
            f"spec.resources.gpus is {config.gpus}, and spec.parallelism asks for tensor {tensor} x pipeline {pipeline}"
            f" x data {data} = {tensor * pipeline * data}: make them equal, or leave spec.resources.gpus out",
        )


def _drafter(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    size, target = config.drafter.tensor_parallel_size if config.drafter else None, config.tensor_parallel_size
    field = "spec.speculation.draft.tensorParallelSize"
    if not config.speculates or size is None or size == target:
        return
    if size != 1:
        yield error(field, f"{field} is {size}: it must be 1 or {target}, so set one of them")
    elif config.method == "draft_model" and known.runner(config) == "V1":
        yield error(
            field,
            f"{field} is 1 and spec.parallelism.tensor {target}: vLLM's older runner, which heterogeneousVocab needs,"
            f" takes only equal sizes; set {target} or leave it out",
        )


def _heads(config: EngineConfig, facts: PairFacts) -> Iterator[Said]:
    size = config.tensor_parallel_size
    if facts.target is not None:
        yield from _divided(facts.target, size, "spec.parallelism.tensor", "the model", "choose a divisor")
    drafter_size = (config.drafter.tensor_parallel_size if config.drafter else None) or size
    if facts.drafter is not None and config.speculates:
        remedy = "set spec.speculation.draft.tensorParallelSize to 1"
        yield from _divided(
            facts.drafter, drafter_size, "spec.speculation.draft.tensorParallelSize", "the drafter", remedy
        )


def _divided(model: ModelFacts, size: int, field: str, whose: str, remedy: str) -> Iterator[Said]:
    heads, kv_heads = model.attention_heads, model.kv_heads
    if isinstance(heads, int) and heads % size:
        yield error(
            field, f"{field}: the {heads} attention heads of {whose} are not divisible by {size} GPUs; {remedy}"
        )
    elif isinstance(kv_heads, int) and kv_heads % size and size % kv_heads:
        yield error(
            field,
            f"{field}: the {kv_heads} KV heads of {whose} can be neither shared nor copied evenly over {size} GPUs;"
            f" {remedy}",
        )


def _heads_lack(config: EngineConfig, facts: PairFacts) -> str | None:
    if config.tensor_parallel_size == 1:
        return None
    if facts.target is None:
        return "the model's config.json is not known"
    return "the drafter's config.json is not known" if config.drafter is not None and facts.drafter is None else None


def _pipeline(config: EngineConfig, facts: PairFacts) -> Iterator[Said]:
    field, stages = "spec.parallelism.pipeline", config.pipeline_parallel_size
    if stages == 1 or not config.speculates:
        return
    there = known.supports(config.version, Feature.SPECULATION_WITH_PIPELINE)
    if there is False and config.method in OWN_WEIGHTS:
        yield error(
            field,
            f"{field} is {stages} and spec.speculation.method {config.method}: pipeline > 1 with speculation needs vLLM"
            f" 0.30, and this is {config.version}; raise spec.engine.version, set pipeline 1, or tuning.mode Off",
        )
    elif facts.target is None or facts.target.model_type not in PIPELINE_FAMILIES or config.method != "mtp":
        yield warning(
            field,
            f"{field} is {stages} with method {config.method}: several pipeline stages with speculation were shown to"
            f" work for method mtp of {', '.join(PIPELINE_FAMILIES)} only, and faults are reported; compare answers"
            " with an engine without speculation before you rely on them",
        )


def _data(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    if config.data_parallel_size == 1 or not config.speculates:
        return
    yield warning(
        "spec.parallelism.data",
        f"spec.parallelism.data is {config.data_parallel_size}: table ignored with data > 1, K fixed at"
        f" {config.max_speculative_tokens}, since ranks that draft different numbers would wait for each other for"
        " ever; replicas of one rank each can adapt",
    )


CHECKS = (
    Check(
        code="GpusNotUsed",
        fields=("spec.resources.gpus", "spec.parallelism"),
        why="Each GPU of a replica holds one share of the model; a GPU beyond that is paid for and idle, and one less"
        " ends the engine at start.",
        remedy="Make resources.gpus the product of tensor, pipeline and data, or leave it out.",
        source="vllm/config/parallel.py of vLLM 0.33.0",
        find=_gpus,
    ),
    Check(
        code="DrafterParallelism",
        fields=("spec.speculation.draft.tensorParallelSize",),
        why="vLLM runs a drafter on one GPU or on all that share the model, and on nothing between.",
        remedy="Set 1 or the model's number.",
        source="vllm-project/vllm#10483, vllm-project/vllm#31886; _verify_and_get_draft_tp in"
        " vllm/config/speculative.py and _raise_if_draft_tp_mismatch in vllm/v1/spec_decode/draft_model.py of vLLM"
        " 0.33.0",
        find=_drafter,
    ),
    Check(
        code="HeadsNotDivisible",
        fields=("spec.parallelism.tensor", "spec.speculation.draft.tensorParallelSize"),
        why="Attention heads are shared out whole; KV heads are shared out or copied. A drafter takes the model's size"
        " unless it has its own.",
        remedy="Choose a size that divides the heads; draft.tensorParallelSize 1 for a small drafter.",
        source="vllm-project/vllm#11797, vllm-project/vllm-ascend#2139; vllm/config/model.py of vLLM 0.33.0",
        find=_heads,
        lacks=_heads_lack,
    ),
    Check(
        code="PipelineWithSpeculation",
        fields=("spec.parallelism.pipeline", "spec.speculation.method"),
        why="Up to vLLM 0.29 a drafter is built with the model's pipeline stages and fails at start; later it lives on"
        " the last stage.",
        remedy="Use vLLM 0.30 or later, one pipeline stage, or no speculation.",
        source=known.FEATURES[Feature.SPECULATION_WITH_PIPELINE].source
        + "; vllm-project/vllm#49355, vllm-project/vllm#57755",
        find=_pipeline,
    ),
    Check(
        code="TableIgnored",
        fields=("spec.parallelism.data", "spec.speculation.tuning"),
        why="vLLM drops the table by batch size when an engine has several data ranks.",
        remedy="Use replicas in place of data ranks, or accept one K.",
        source=known.FEATURES[Feature.TABLE_WITH_DATA_PARALLEL].source
        + "; vllm-project/vllm#40589, vllm-project/vllm#44954",
        find=_data,
    ),
)
