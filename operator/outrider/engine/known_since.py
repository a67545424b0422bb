"""Since when vLLM takes a flag, or a key of a JSON argument, that a field of the resource asks for.

An engine ends at start on a flag or a key that it does not know, so what a version does not know is left out. Numbers
are the first version in which it was read, which is not always the one that brought it.
"""

from __future__ import annotations

from collections.abc import Iterator

from outrider.engine import capabilities as known
from outrider.engine.capabilities import Version
from outrider.engine.config import EngineConfig

SINCE: dict[str, Version] = {
    "--structured-outputs-config": (0, 11, 0),  # before, the same setting was --guided-decoding-backend
    "--max-num-queued-reqs": (0, 29, 0),  # vllm-project/vllm#58192 reports it there; 0.26.0 does not have it
    "--max-num-queued-tokens": (0, 29, 0),
    "kv_load_failure_policy": (0, 14, 0),  # vllm-project/vllm#32200
    # Keys of --speculative-config, read in config/speculative.py of 0.32.0 and 0.33.0.
    "use_heterogeneous_vocab": (0, 32, 0),
    "enable_adaptive_verification": (0, 32, 0),
    "draft_sample_method": (0, 32, 0),
    "draft_lm_head_quantization": (0, 33, 0),
    "rejection_sample_method": (0, 32, 0),  # earlier versions have it with other words
    "fly": (0, 33, 0),  # as a value of rejection_sample_method, and its keys
}


def knows(version: str | None, name: str) -> bool:
    """Whether a version takes a flag, key or value; what no row names is as old as any version that is rendered."""
    return known.has(version, SINCE.get(name, (0, 0, 0)))


def not_known(config: EngineConfig) -> tuple[str, ...]:
    """Fields of the resource that ask for what this version does not take, so that nothing is rendered for them."""
    return tuple(_not_known(config))


def _not_known(config: EngineConfig) -> Iterator[str]:
    sampling, transfer = config.rejection_sampling, config.kv_transfer
    asked = (
        ("--structured-outputs-config", config.structured_output_backend, "engine.structuredOutputBackend"),
        ("--max-num-queued-reqs", config.max_queued_requests, "engine.maxQueuedRequests"),
        ("--max-num-queued-tokens", config.max_queued_tokens, "engine.maxQueuedTokens"),
        ("kv_load_failure_policy", transfer and transfer.load_failure_policy, "engine.kvTransfer.loadFailurePolicy"),
        ("use_heterogeneous_vocab", config.heterogeneous_vocab, "speculation.heterogeneousVocab"),
        ("enable_adaptive_verification", config.adaptive_verification, "speculation.adaptiveVerification"),
        ("draft_sample_method", config.draft_sampling, "speculation.draftSampling"),
        ("draft_lm_head_quantization", config.draft_head_quantization, "speculation.draftHeadQuantization"),
        ("rejection_sample_method", sampling, "speculation.rejectionSampling"),
    )
    for name, value, field in asked:
        if value is not None and not knows(config.version, name):
            yield f"spec.{field}"
    if sampling is not None and sampling.method == "fly" and not knows(config.version, "fly"):
        yield "spec.speculation.rejectionSampling.method"
