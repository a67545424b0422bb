"""What a resource asks of its engine, in the terms of admission and rendering: seconds, fractions, vLLM's words."""

from __future__ import annotations

from outrider.api import engine as api
from outrider.api import speculation as asked
from outrider.api.defaults import Resolved
from outrider.api.fields import quantity_value
from outrider.api.resource import SpeculativeInferenceService
from outrider.core.schedule import Row
from outrider.engine.config import (
    Drafter,
    EngineConfig,
    KvTransfer,
    Lora,
    NgramOptions,
    RejectionSampling,
    SuffixOptions,
)
from outrider.manifests import weights


def engine_config(resource: SpeculativeInferenceService, resolved: Resolved) -> EngineConfig:
    """The engine as admission and rendering take it."""
    spec, speculation, engine = resource.spec, resource.spec.speculation, resource.spec.engine
    memory = spec.resources.memory
    return EngineConfig(
        version=None if engine.image is not None and engine.version is None else resolved.engine_version,
        model=spec.model.id,
        revision=spec.model.revision,
        model_source=resolved.model_source,
        model_path=weights.model_path(resource),
        served_name=resolved.served_name,
        quantization=spec.model.quantization,
        kv_cache_dtype=spec.model.kv_cache_dtype,
        max_length=spec.model.max_length,
        method=speculation.method,
        drafter=_drafter(resource, resolved),
        mode=resolved.mode,
        max_speculative_tokens=resolved.max_speculative_tokens,
        min_speculative_tokens=resolved.min_speculative_tokens,
        initial_speculative_tokens=resolved.initial_speculative_tokens,
        rows=tuple(Row(row.first, row.last, row.speculative_tokens) for row in speculation.tuning.schedule or ()),
        ngram=_ngram(speculation.ngram),
        suffix=_suffix(speculation.suffix),
        heterogeneous_vocab=speculation.heterogeneous_vocab,
        adaptive_verification=speculation.adaptive_verification,
        draft_sampling=_word(speculation.draft_sampling),
        draft_head_quantization=speculation.draft_head_quantization,
        rejection_sampling=_rejection_sampling(speculation.rejection_sampling),
        gpus=resolved.gpus,
        tensor_parallel_size=resolved.tensor_parallel_size,
        pipeline_parallel_size=resolved.pipeline_parallel_size,
        data_parallel_size=resolved.data_parallel_size,
        max_num_seqs=resolved.max_num_seqs,
        max_num_batched_tokens=resolved.max_num_batched_tokens,
        gpu_memory_utilization=_fraction(engine.gpu_memory_utilization_percent),
        prefix_caching=engine.prefix_caching,
        chunked_prefill=engine.chunked_prefill,
        lora=_lora(engine.lora),
        structured_output_backend=engine.structured_output_backend,
        max_queued_requests=engine.max_queued_requests,
        max_queued_tokens=engine.max_queued_tokens,
        kv_transfer=_kv_transfer(engine.kv_transfer),
        trust_remote_code=resolved.trust_remote_code,
        shutdown_timeout_s=resolved.shutdown_timeout_s,
        startup_budget_s=resolved.startup_budget_s,
        memory_bytes=None if memory is None else quantity_value(memory),
        shared_memory_bytes=quantity_value(resolved.shared_memory),
        extra_args=tuple(engine.extra_args),
        extra_env=tuple(variable.name for variable in engine.env),
    )


def _drafter(resource: SpeculativeInferenceService, resolved: Resolved) -> Drafter | None:
    draft = resource.spec.speculation.draft
    if draft is None:
        return None
    return Drafter(
        model=draft.id,
        revision=draft.revision,
        quantization=draft.quantization,
        tensor_parallel_size=draft.tensor_parallel_size,
        max_length=draft.max_length,
        source=resolved.draft_source,
        path=weights.draft_path(resource),
    )


def _ngram(ngram: asked.Ngram | None) -> NgramOptions | None:
    if ngram is None:
        return None
    return NgramOptions(prompt_lookup_min=ngram.prompt_lookup_min, prompt_lookup_max=ngram.prompt_lookup_max)


def _suffix(suffix: asked.Suffix | None) -> SuffixOptions | None:
    if suffix is None:
        return None
    return SuffixOptions(
        max_tree_depth=suffix.max_tree_depth,
        max_cached_requests=suffix.max_cached_requests,
        max_spec_factor=_fraction(suffix.max_spec_factor_percent),
        min_token_probability=_fraction(suffix.min_token_probability_percent),
    )


def _rejection_sampling(sampling: asked.RejectionSampling | None) -> RejectionSampling | None:
    if sampling is None:
        return None
    return RejectionSampling(
        method=sampling.method.lower(),
        fly_window_size=sampling.fly_window_size,
        fly_entropy_threshold=_fraction(sampling.fly_entropy_threshold_percent),
        fly_entropy_top_k=sampling.fly_entropy_top_k,
    )


def _lora(lora: api.Lora | None) -> Lora | None:
    if lora is None:
        return None
    modules = tuple((module.name, module.id) for module in lora.modules)
    return Lora(max_adapters=lora.max_adapters, max_rank=lora.max_rank, modules=modules)


def _kv_transfer(transfer: api.KvTransfer | None) -> KvTransfer | None:
    if transfer is None:
        return None
    return KvTransfer(
        connector=transfer.connector,
        role=transfer.role.lower(),
        load_failure_policy=_word(transfer.load_failure_policy),
        extra=transfer.extra_config or {},
    )


def _word(value: str | None) -> str | None:
    """A word of the API in vLLM's spelling."""
    return None if value is None else value.lower()


def _fraction(percent: int | None) -> float | None:
    return None if percent is None else percent / 100
