"""Words of vLLM's own for data types and quantisations, by version line.

Only lines whose sources were read have a row; of others nothing is known, and nothing is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from outrider.engine.capabilities.versions import parse_version

Line = tuple[int, int]

KV_CACHE_DTYPES: Mapping[Line, frozenset[str]] = {
    (0, 33): frozenset(
        {
            "auto",
            "float16",
            "bfloat16",
            "fp8",
            "fp8_e4m3",
            "fp8_e5m2",
            "fp8_inc",
            "fp8_ds_mla",
            "nvfp4_ds_mla",
            "turboquant_k8v4",
            "turboquant_4bit_nc",
            "turboquant_k3v4_nc",
            "turboquant_3bit_nc",
            "octave_k3v4",
            "octave_k3v3",
            "octave_k3v3_compact",
            "ultraquant_4bit",
            "int4_per_token_head",
            "int8_per_token_head",
            "fp8_per_token_head",
            "nvfp4",
            "nvfp4_4over6",
        }
    ),
}
"""``CacheDType`` in vllm/config/cache.py; the command line takes no other."""

QUANTIZATIONS: Mapping[Line, frozenset[str]] = {
    (0, 33): frozenset(
        {
            "awq",
            "auto_awq",
            "fp8",
            "fbgemm_fp8",
            "fp_quant",
            "modelopt",
            "modelopt_fp4",
            "modelopt_mxfp8",
            "modelopt_mixed",
            "auto_gptq",
            "gptq",
            "gptq_marlin",
            "awq_marlin",
            "humming",
            "compressed-tensors",
            "experts_int8",
            "quark",
            "moe_wna16",
            "torchao",
            "inc",
            "mxfp4",
            "gpt_oss_mxfp4",
            "deepseek_v4_fp8",
            "online",
            "fp8_per_tensor",
            "fp8_per_block",
            "fp8_per_channel",
            "int8_per_channel_weight_only",
            "nvfp4_per_token",
            "mxfp8",
        }
    ),
}
"""``QuantizationMethods`` in vllm/model_executor/layers/quantization/__init__.py."""


def of(version: str | None, words: Mapping[Line, frozenset[str]]) -> frozenset[str] | None:
    """The words of a version; None where nobody looked."""
    return None if version is None else words.get(parse_version(version)[:2])
