"""The features that a configuration asks for, each with the field that does."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.engine.capabilities.features import Feature
from outrider.engine.config import EngineConfig

REJECTION = {
    "standard": Feature.REJECTION_STANDARD,
    "block": Feature.REJECTION_BLOCK,
    "fly": Feature.REJECTION_FLY,
}
"""By vLLM's word for which drafts are kept."""


def asked(config: EngineConfig) -> Iterator[tuple[str, Feature]]:
    """Path of a field that is set, and the feature that it needs."""
    if config.structured_output_backend is not None:
        yield "spec.engine.structuredOutputBackend", Feature.STRUCTURED_OUTPUTS
    if config.max_queued_requests is not None:
        yield "spec.engine.maxQueuedRequests", Feature.QUEUE_LIMITS
    if config.max_queued_tokens is not None:
        yield "spec.engine.maxQueuedTokens", Feature.QUEUE_LIMITS
    if config.kv_transfer is not None:
        yield "spec.engine.kvTransfer", Feature.KV_TRANSFER
        if config.kv_transfer.load_failure_policy is not None:
            yield "spec.engine.kvTransfer.loadFailurePolicy", Feature.KV_LOAD_FAILURE_POLICY
    if config.data_parallel_size > 1:
        yield "spec.parallelism.data", Feature.DATA_PARALLEL
    if config.speculates:
        yield from _of_speculation(config)


def _of_speculation(config: EngineConfig) -> Iterator[tuple[str, Feature]]:
    yield "spec.speculation.method", Feature.SPECULATIVE_CONFIG
    if config.ngram is not None:
        yield "spec.speculation.ngram", Feature.NGRAM_OPTIONS
    if config.suffix is not None:
        yield "spec.speculation.suffix", Feature.SUFFIX_OPTIONS
    if config.heterogeneous_vocab:
        yield "spec.speculation.heterogeneousVocab", Feature.HETEROGENEOUS_VOCAB
    if config.adaptive_verification:
        yield "spec.speculation.adaptiveVerification", Feature.ADAPTIVE_VERIFICATION
    if config.draft_sampling is not None:
        yield "spec.speculation.draftSampling", Feature.DRAFT_SAMPLING
    if config.draft_head_quantization is not None:
        yield "spec.speculation.draftHeadQuantization", Feature.DRAFT_HEAD_QUANTIZATION
    if config.rejection_sampling is not None:
        yield "spec.speculation.rejectionSampling.method", REJECTION[config.rejection_sampling.method]
