"""What a method's own options become in ``--speculative-config``, and the value of ``--kv-transfer-config``.

Keys come in a fixed order and only when they are set: the text is part of the pod template, whose hash must not change
from one pass to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from outrider.engine import capabilities as known
from outrider.engine.capabilities import Feature
from outrider.engine.config import EngineConfig, KvTransfer

OPTIONS = {
    "use_heterogeneous_vocab": Feature.HETEROGENEOUS_VOCAB,
    "enable_adaptive_verification": Feature.ADAPTIVE_VERIFICATION,
    "draft_sample_method": Feature.DRAFT_SAMPLING,
    "draft_lm_head_quantization": Feature.DRAFT_HEAD_QUANTIZATION,
}
"""Keys that not every version with their method has."""


def method_options(config: EngineConfig) -> dict[str, Any]:
    """Keys and values of what the resource asks of its method, as far as this version knows them."""
    return {
        key: value
        for key, value in _method_options(config)
        if value is not None and (key not in OPTIONS or known.has(config.version, OPTIONS[key]))
    }


def _method_options(config: EngineConfig) -> Iterator[tuple[str, Any]]:
    if config.ngram is not None:
        # vLLM takes a bound that is left out from the other one, and 5 for both when neither is given.
        yield "prompt_lookup_min", config.ngram.prompt_lookup_min
        yield "prompt_lookup_max", config.ngram.prompt_lookup_max
    if config.suffix is not None:
        yield "suffix_decoding_max_tree_depth", config.suffix.max_tree_depth
        yield "suffix_decoding_max_cached_requests", config.suffix.max_cached_requests
        yield "suffix_decoding_max_spec_factor", config.suffix.max_spec_factor
        yield "suffix_decoding_min_token_prob", config.suffix.min_token_probability
    yield "use_heterogeneous_vocab", config.heterogeneous_vocab
    yield "enable_adaptive_verification", config.adaptive_verification
    yield "draft_sample_method", config.draft_sampling
    yield "draft_lm_head_quantization", config.draft_head_quantization
    sampling = config.rejection_sampling
    if sampling is not None and known.has(config.version, known.REJECTION[sampling.method]):
        yield "rejection_sample_method", sampling.method
        yield "fly_window_size", sampling.fly_window_size
        yield "fly_entropy_threshold", sampling.fly_entropy_threshold
        yield "fly_entropy_top_k", sampling.fly_entropy_top_k


def kv_transfer_config(transfer: KvTransfer, version: str | None) -> dict[str, Any]:
    """The value of ``--kv-transfer-config``."""
    values: dict[str, Any] = {"kv_connector": transfer.connector, "kv_role": f"kv_{transfer.role}"}
    if transfer.load_failure_policy is not None and known.has(version, Feature.KV_LOAD_FAILURE_POLICY):
        values["kv_load_failure_policy"] = transfer.load_failure_policy
    if transfer.extra:
        values["kv_connector_extra_config"] = _sorted(transfer.extra)
    return values


def _sorted(value: Any) -> Any:
    """The same with sorted keys at every depth: an object of the API server has no order of its own."""
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in value]
    if hasattr(value, "items"):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return value
