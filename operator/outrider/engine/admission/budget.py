"""Memory of the GPUs, when it is known."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.core.series import Missing
from outrider.engine import memory
from outrider.engine.admission.checks import Check, Said, error, warning
from outrider.engine.config import EngineConfig
from outrider.engine.memory import Estimate, gib
from outrider.engine.model_facts import PairFacts

_FIELD = "spec.resources.gpus"
FEW_TOKENS = 512
"""For each of maxNumSeqs: a short prompt and its answer; with less, requests are preempted and computed again."""


def _fits(config: EngineConfig, facts: PairFacts) -> Iterator[Said]:
    found = memory.estimate(config, facts)
    if isinstance(found, Missing):
        return
    held = found.weights_bytes + found.drafter_bytes
    if held * found.weights.sure > found.budget_bytes:
        yield error(
            _FIELD,
            f"{_FIELD}: the weights need {gib(held)} on each GPU ({found.weights.source}; an estimate), and the engine"
            f" may take {gib(found.budget_bytes)} of it: raise spec.parallelism.tensor, choose larger GPUs, or"
            " quantised weights",
        )
        return
    if _one_request_is_too_long(found, facts):
        yield error(
            "spec.model.maxLength",
            f"spec.model.maxLength: one request of {found.longest} tokens needs {gib(found.longest_bytes)} of KV cache,"
            f" and beside the weights there is {gib(found.budget_bytes - held)} on each GPU (an estimate), so vLLM"
            f" would not start: {_shorter(found)}, raise spec.parallelism.tensor, or choose larger GPUs",
        )
        return
    yield from _tight(config, found, facts)


def _tight(config: EngineConfig, found: Estimate, facts: PairFacts) -> Iterator[Said]:
    if found.room_bytes <= 0 or (found.longest_bytes > found.room_bytes and not _windowed(facts)):
        yield warning(
            _FIELD,
            f"{_FIELD}: little or nothing is left for the KV cache ({found.words()}): lower spec.model.maxLength or"
            " maxNumBatchedTokens, or raise spec.parallelism.tensor",
        )
    elif found.room_tokens is not None and found.room_tokens < config.max_num_seqs * FEW_TOKENS:
        each = found.room_tokens // config.max_num_seqs
        yield warning(
            "spec.engine.maxNumSeqs",
            f"spec.engine.maxNumSeqs is {config.max_num_seqs}, and the KV cache has room for about {each} tokens of"
            f" each request ({found.words()}): with longer ones requests are preempted; lower maxNumSeqs, or raise"
            " spec.parallelism.tensor",
        )


def _windowed(facts: PairFacts) -> bool:
    """Whether layers keep less than the whole context, by which the estimate is too large."""
    return facts.target is not None and (isinstance(facts.target.sliding_window, int) or facts.target.mamba)


def _one_request_is_too_long(found: Estimate, facts: PairFacts) -> bool:
    held = (found.weights_bytes + found.drafter_bytes) * found.weights.sure
    return not _windowed(facts) and found.longest_bytes > found.budget_bytes - held


def _shorter(found: Estimate) -> str:
    tokens = (found.room_tokens or 0) // 1024 * 1024
    return f"lower it to {tokens} or less" if tokens > 0 else "lower it"


def _unknown(config: EngineConfig, facts: PairFacts) -> str | None:
    found = memory.estimate(config, facts)
    return str(found) if isinstance(found, Missing) else None


CHECKS = (
    Check(
        code="MemoryFit",
        fields=(_FIELD, "spec.model", "spec.speculation.draft", "spec.engine.maxNumSeqs", "spec.parallelism"),
        why="Weights, drafter, buffers and the KV cache of at least one request of the longest context must fit into"
        " the share of a GPU that the engine may take.",
        remedy="More GPUs for each replica, larger ones, quantised weights, or a shorter context.",
        source="vllm-project/vllm#8073, vllm-project/vllm#9995; vllm/v1/core/kv_cache_planning.py and"
        " vllm/v1/worker/gpu_worker.py of vLLM 0.33.0",
        find=_fits,
        lacks=_unknown,
    ),
)
