"""Words that a version of vLLM may not know."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.engine.admission.checks import Check, Said, error
from outrider.engine.capabilities import words
from outrider.engine.config import EngineConfig
from outrider.engine.model_facts import PairFacts

_KV_CACHE_DTYPE = "spec.model.kvCacheDtype"
_GGUF = "gguf"
"""Has a check of its own, which says where it went."""


def _kv_cache_dtype(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    known = words.of(config.version, words.KV_CACHE_DTYPES)
    if known is not None and config.kv_cache_dtype is not None and config.kv_cache_dtype not in known:
        yield error(
            _KV_CACHE_DTYPE,
            f"{_KV_CACHE_DTYPE} is {config.kv_cache_dtype}, which the command line of vLLM {config.version} refuses:"
            f" choose among {', '.join(sorted(known))}",
        )


def _quantization(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    known = words.of(config.version, words.QUANTIZATIONS)
    if known is None:
        return
    drafter = config.drafter.quantization if config.drafter is not None and config.speculates else None
    for field, word in (
        ("spec.model.quantization", config.quantization),
        ("spec.speculation.draft.quantization", drafter),
    ):
        if word is not None and word not in {*known, _GGUF}:
            yield error(
                field,
                f"{field} is {word}, which vLLM {config.version} does not know, and an engine of ours loads no plugin"
                f" but its own: choose among {', '.join(sorted(known))}",
            )


CHECKS = (
    Check(
        code="KvCacheDtype",
        fields=(_KV_CACHE_DTYPE,),
        why="vLLM ends at start on a data type of the cache that its command line does not list.",
        remedy="Choose one of the version's own words, or leave the field out.",
        source="CacheDType in vllm/config/cache.py of vLLM 0.33.0",
        find=_kv_cache_dtype,
    ),
    Check(
        code="QuantizationUnknown",
        fields=("spec.model.quantization", "spec.speculation.draft.quantization"),
        why="A quantisation that vLLM does not know ends the engine at start.",
        remedy="Choose one of the version's own words, or leave the field out where the model's files name it.",
        source="QuantizationMethods in vllm/model_executor/layers/quantization/__init__.py of vLLM 0.33.0",
        find=_quantization,
    ),
)
