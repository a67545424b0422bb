"""Settings and combinations that came or went with a version."""

from __future__ import annotations

from enum import StrEnum

from outrider.engine.capabilities.versions import (
    KNOWN_BEST,
    History,
    Version,
    absent,
    history,
    parse_version,
    since,
    there,
)

_ARGUMENTS = "vllm/engine/arg_utils.py"
_SPECULATIVE = "vllm/config/speculative.py"


class Feature(StrEnum):
    """Names of what a version may have."""

    SPECULATIVE_CONFIG = "--speculative-config"
    SHUTDOWN_TIMEOUT = "--shutdown-timeout"
    HISTOGRAM_BUCKETS = "--custom-histogram-buckets"
    CAPTURE_SIZES = "--cudagraph-capture-sizes"
    API_SERVER_COUNT = "--api-server-count"
    QUEUE_LIMITS = "--max-num-queued-reqs and --max-num-queued-tokens"
    STRUCTURED_OUTPUTS = "--structured-outputs-config"
    KV_TRANSFER = "--kv-transfer-config"
    KV_LOAD_FAILURE_POLICY = "kv_load_failure_policy"
    DATA_PARALLEL = "--data-parallel-size"
    TABLE = "num_speculative_tokens_per_batch_size"
    TABLE_WITH_DATA_PARALLEL = "num_speculative_tokens_per_batch_size with several data ranks"
    NGRAM_OPTIONS = "prompt_lookup_min and prompt_lookup_max"
    SUFFIX_OPTIONS = "suffix_decoding_*"
    HETEROGENEOUS_VOCAB = "use_heterogeneous_vocab"
    ADAPTIVE_VERIFICATION = "enable_adaptive_verification"
    DRAFT_SAMPLING = "draft_sample_method"
    DRAFT_HEAD_QUANTIZATION = "draft_lm_head_quantization"
    REJECTION_STANDARD = "rejection_sample_method standard"
    REJECTION_BLOCK = "rejection_sample_method block"
    REJECTION_FLY = "rejection_sample_method fly"
    SPECULATION_WITH_PIPELINE = "a drafter under several pipeline stages"
    SPECULATION_WITH_LORA = "adapters under speculation"
    GGUF = "quantization gguf"


FEATURES: dict[Feature, History] = {
    Feature.SPECULATIVE_CONFIG: history(
        absent("0.6.3", "0.6.3"),
        there("0.8.5"),
        source=f"{_ARGUMENTS} of vLLM 0.6.3.post1, which has flags such as --speculative-model, and of 0.8.5.post1",
    ),
    Feature.SHUTDOWN_TIMEOUT: history(since("0.18.0"), source="vllm-project/vllm#34730"),
    Feature.HISTOGRAM_BUCKETS: history(since("0.30.1"), source="vllm-project/vllm#48867, release notes of vLLM 0.30.1"),
    Feature.CAPTURE_SIZES: history(
        absent("0.6.3", "0.11.0"), there("0.13.0"), source=f"{_ARGUMENTS} of vLLM 0.11.0 and 0.13.0"
    ),
    Feature.API_SERVER_COUNT: history(
        absent("0.6.3", "0.8.5"),
        there("0.11.0"),
        source="vllm/entrypoints/openai/cli_args.py of vLLM 0.8.5.post1 and 0.11.0",
    ),
    Feature.QUEUE_LIMITS: history(
        absent("0.6.3", "0.24.0"),
        there("0.29.0"),
        source=f"vllm-project/vllm#49445; {_ARGUMENTS} of vLLM 0.24.0 and 0.29.0",
    ),
    Feature.STRUCTURED_OUTPUTS: history(
        absent("0.6.3", "0.9.2"), there("0.11.0"), source=f"{_ARGUMENTS} of vLLM 0.9.2 and 0.11.0"
    ),
    Feature.KV_TRANSFER: history(
        absent("0.6.3", "0.6.3"), there("0.8.5"), source=f"{_ARGUMENTS} of vLLM 0.6.3.post1 and 0.8.5.post1"
    ),
    Feature.KV_LOAD_FAILURE_POLICY: history(
        absent("0.6.3", "0.11.0"), there("0.13.0"), source="vllm/config/kv_transfer.py of vLLM 0.11.0 and 0.13.0"
    ),
    Feature.DATA_PARALLEL: history(
        absent("0.6.3", "0.6.3"), there("0.8.5"), source=f"{_ARGUMENTS} of vLLM 0.6.3.post1 and 0.8.5.post1"
    ),
    Feature.TABLE: history(
        since("0.24.0"), source="vllm-project/vllm#32374; an unknown key stops earlier engines at start"
    ),
    Feature.TABLE_WITH_DATA_PARALLEL: history(
        absent("0.6.3"), source="vllm-project/vllm#45963, vllm-project/vllm#44185; vllm/config/vllm.py of vLLM 0.33.0"
    ),
    Feature.NGRAM_OPTIONS: history(
        absent("0.6.3", "0.6.3"), there("0.8.5"), source=f"vllm/config.py of vLLM 0.8.5.post1, {_SPECULATIVE} of 0.33.0"
    ),
    Feature.SUFFIX_OPTIONS: history(
        absent("0.6.3", "0.11.0"), there("0.13.0"), source=f"{_SPECULATIVE} of vLLM 0.11.0 and 0.13.0"
    ),
    Feature.HETEROGENEOUS_VOCAB: history(
        absent("0.6.3", "0.24.0"),
        there("0.29.0"),
        source=f"vllm-project/vllm#38174; {_SPECULATIVE} of vLLM 0.24.0 and 0.29.0",
    ),
    Feature.ADAPTIVE_VERIFICATION: history(
        absent("0.6.3", "0.24.0"),
        there("0.29.0"),
        source=f"vllm-project/vllm#47808; {_SPECULATIVE} of vLLM 0.24.0 and 0.29.0",
    ),
    Feature.DRAFT_SAMPLING: history(
        absent("0.6.3", "0.20.2"), there("0.24.0"), source=f"{_SPECULATIVE} of vLLM 0.20.2 and 0.24.0"
    ),
    Feature.DRAFT_HEAD_QUANTIZATION: history(
        absent("0.6.3", "0.32.0"), there("0.33.0"), source=f"{_SPECULATIVE} of vLLM 0.32.0 and 0.33.0"
    ),
    Feature.REJECTION_STANDARD: history(
        absent("0.6.3", "0.20.2"),
        there("0.24.0"),
        source=f"{_SPECULATIVE} of vLLM 0.20.2, which calls it strict, and of 0.24.0",
    ),
    Feature.REJECTION_BLOCK: history(
        absent("0.6.3", "0.24.0"), there("0.29.0"), source=f"{_SPECULATIVE} of vLLM 0.24.0 and 0.29.0"
    ),
    Feature.REJECTION_FLY: history(
        absent("0.6.3", "0.32.0"), there("0.33.0"), source=f"{_SPECULATIVE} of vLLM 0.32.0 and 0.33.0"
    ),
    Feature.SPECULATION_WITH_PIPELINE: history(
        absent("0.6.3", "0.29.0"),
        since("0.30.0"),
        source="vllm-project/vllm#14117, vllm-project/vllm#52069, vllm-project/vllm#46994; create_draft_parallel_config"
        " in vllm/config/speculative.py of vLLM 0.29.0 and 0.32.0",
    ),
    Feature.SPECULATION_WITH_LORA: history(
        absent("0.6.3", "0.6.3"),
        there("0.11.0"),
        source="vllm-project/vllm#4872, vllm-project/vllm#6912, vllm-project/vllm#20284, vllm-project/vllm#55628",
    ),
    Feature.GGUF: history(
        there("0.6.3", "0.20.2"),
        absent("0.24.0"),
        source="vllm/config/model.py of vLLM 0.20.2 and 0.24.0; later vLLM leaves it to a plugin, vllm-gguf-plugin,"
        " and an engine of ours loads no plugin but its own",
    ),
}

# The boundaries that the command line has always asked for by their version.
SHUTDOWN_TIMEOUT_SINCE: Version = (0, 18, 0)
TABLE_SINCE: Version = (0, 24, 0)
HISTOGRAM_BUCKETS_SINCE: Version = (0, 30, 1)


def supports(version: str | None, feature: Feature) -> bool | None:
    """Whether a version has a feature; None when the version is not known, or nobody looked."""
    return None if version is None else FEATURES[feature].at(version)


def has(version: str | None, needed: Feature | Version) -> bool:
    """Whether to render something that ``needed`` stands for; an unknown version counts as the best known one.

    Of a feature only a known absence counts against it, since whoever asked for it is warned where nobody looked.
    """
    if isinstance(needed, Feature):
        return FEATURES[needed].at(version or KNOWN_BEST) is not False
    return parse_version(version or KNOWN_BEST) >= needed
