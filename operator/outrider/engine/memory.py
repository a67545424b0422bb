"""An estimate of what one GPU of an engine holds: weights, drafter, KV cache, buffers.

All of it is an estimate before the fact. The weights are exact to a few per cent when the model's config.json is
known, and to ten when only its name says how large it is; buffers are of the right order only. So a refusal rests on
the weights and the KV cache alone, rounded down.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from outrider.core.series import Missing
from outrider.engine.config import EngineConfig
from outrider.engine.model_facts import ModelFacts, PairFacts

GIB = float(2**30)
CONTEXT_AND_GRAPHS_BYTES = 2 * GIB  # an assumption: CUDA context and libraries about 1 GiB, graphs about as much
UTILIZATION = 0.92  # gpu_memory_utilization of vLLM 0.33.0 (vllm/config/cache.py); 0.9 before
FROM_NAME, FROM_CONFIG, FROM_FILES = 0.9, 0.97, 1.0
"""How much of an estimate of the weights is sure, by what it rests on."""

_FOUR_BITS = ("awq", "gptq", "nvfp4", "fp4", "mxfp4", "int4", "4bit", "4-bit", "bitsandbytes", "bnb", "gguf", "w4a16")
_EIGHT_BITS = ("fp8", "int8", "modelopt", "w8a8", "experts_int8")


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of one model on all its GPUs together."""

    total_bytes: float
    sure: float
    """0 to 1: the share of it that a refusal may rest on."""
    source: str
    """What it rests on, in words."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes of one GPU, unless said otherwise."""

    budget_bytes: float
    """What the engine may take: memory of the GPU x utilization."""
    weights: Weights
    weights_bytes: float
    drafter_bytes: float
    kv_bytes_per_token: float
    """Of model and drafter together; 0 when it is not known."""
    lookahead_bytes: float
    """KV slots that running requests keep free for drafts."""
    buffers_bytes: float
    """Activations of the largest step and logits of all its positions."""
    longest: int | None
    """Tokens of the longest context; None when it is not known."""

    @property
    def room_bytes(self) -> float:
        """What is left for the KV cache."""
        return (
            self.budget_bytes - self.weights_bytes - self.drafter_bytes - self.buffers_bytes - CONTEXT_AND_GRAPHS_BYTES
        )

    @property
    def room_tokens(self) -> int | None:
        """The same in tokens; None when the size of one is not known."""
        return int(max(0.0, self.room_bytes) / self.kv_bytes_per_token) if self.kv_bytes_per_token else None

    @property
    def longest_bytes(self) -> float:
        """KV cache of one request of the longest context; 0 when it is not known."""
        return self.kv_bytes_per_token * (self.longest or 0)

    def words(self) -> str:
        """All parts with their numbers."""
        parts = [f"weights {gib(self.weights_bytes)} ({self.weights.source})"]
        if self.drafter_bytes:
            parts.append(f"drafter {gib(self.drafter_bytes)}")
        if self.buffers_bytes:
            parts.append(f"buffers {gib(self.buffers_bytes)}")
        parts.append(f"CUDA context and graphs {gib(CONTEXT_AND_GRAPHS_BYTES)}")
        left = "" if self.room_tokens is None else f", about {self.room_tokens} tokens"
        if self.lookahead_bytes:
            left += f", of which slots for drafts take up to {gib(self.lookahead_bytes)}"
        return (
            f"estimate for each GPU: {', '.join(parts)}, leaving {gib(max(0.0, self.room_bytes))} of"
            f" {gib(self.budget_bytes)} for the KV cache{left}"
        )


def gib(value: float) -> str:
    """Bytes in words."""
    return f"{value / GIB:.1f} GiB"


def estimate(config: EngineConfig, facts: PairFacts) -> Estimate | Missing:
    """What one GPU will hold, when its memory and the size of the model are known."""
    if config.gpu_memory_bytes is None:
        return Missing("GpuMemoryUnknown", "the memory of the GPUs is not known")
    weights = weights_of(config.model, config.quantization, facts.target)
    if isinstance(weights, Missing):
        return weights
    shards = config.tensor_parallel_size * config.pipeline_parallel_size
    per_token = _kv_bytes_per_token(config, facts)
    longest = config.max_length
    if longest is None and facts.target is not None and isinstance(facts.target.max_positions, int):
        longest = facts.target.max_positions
    return Estimate(
        budget_bytes=config.gpu_memory_bytes * (config.gpu_memory_utilization or UTILIZATION),
        weights=weights,
        weights_bytes=weights.total_bytes / shards,
        drafter_bytes=_drafter_bytes(config, facts),
        kv_bytes_per_token=per_token,
        lookahead_bytes=per_token * lookahead_tokens(config) * config.max_num_seqs,
        buffers_bytes=_buffers_bytes(config, facts),
        longest=longest,
    )


def weights_of(model: str, quantization: str | None, facts: ModelFacts | None) -> Weights | Missing:
    """Bytes of a model's weights.

    From the size of its files; else from its config.json, by parameters x bytes of each; else from a size in its name,
    such as 8B, which may also tell the bits, as in 70B-AWQ. Weights that are quantised while they are loaded shrink by
    their bits over 16.
    """
    asked, stored = bits_of(quantization), bits_of(facts.quantization) if facts else None
    if facts is not None and facts.quantization is not None and isinstance(facts.quantization_bits, int):
        stored = float(facts.quantization_bits)
    bits = stored or asked or 16.0
    if facts is not None and isinstance(facts.weights_bytes, int):
        shrink = bits / 16 if stored is None else 1.0
        return Weights(facts.weights_bytes * shrink, FROM_FILES, "by the size of its files")
    count = parameters(facts) if facts is not None else None
    if facts is not None and isinstance(count, float):
        embeddings = _embeddings(facts)
        total = embeddings * 2 + (count - embeddings) * _bytes_each(bits)
        return Weights(total, FROM_CONFIG, f"{count / 1e9:.2f} billion parameters by config.json at {bits:g} bits")
    named = parameters_by_name(model)
    if named is None:
        return Missing("SizeUnknown", f"neither a config.json nor its name says how large {model} is")
    told = asked or bits_of(model.rsplit("/", 1)[-1])
    # Weights may be stored in four bits without a word of it in the resource or the name.
    sure = FROM_NAME if told is not None else FROM_NAME * _bytes_each(4) / _bytes_each(16)
    bits = told or 16.0
    return Weights(named * _bytes_each(bits), sure, f"{named / 1e9:g} billion parameters by name at {bits:g} bits")


def parameters(facts: ModelFacts) -> float | None:
    """Parameters of a decoder by its numbers; None when one is missing, or its attention is of a kind of its own.

    Embeddings V·H, twice unless tied; attention of a layer H·d·(2·heads + 2·KV heads); a gated network 3·H·I, for each
    expert where there are any. Norms and biases are left out: below a thousandth.
    """
    if not isinstance(facts.kv_lora_rank, Missing):
        return None
    hidden, heads, kv_heads, dim = facts.hidden_size, facts.attention_heads, facts.kv_heads, facts.head_dim
    layers, inner = facts.layers, facts.intermediate_size
    if (
        isinstance(hidden, Missing)
        or isinstance(heads, Missing)
        or isinstance(kv_heads, Missing)
        or isinstance(dim, Missing)
        or isinstance(layers, Missing)
        or isinstance(facts.vocab_size, Missing)
    ):
        return None
    attention = hidden * dim * (2 * heads + 2 * kv_heads)
    dense = 0 if isinstance(inner, Missing) else 3 * hidden * inner
    experts, expert_inner = facts.experts, facts.expert_intermediate_size
    if isinstance(experts, int) and experts and isinstance(expert_inner, int):
        shared = facts.shared_experts if isinstance(facts.shared_experts, int) else 0
        first = facts.dense_layers if isinstance(facts.dense_layers, int) else 0
        routed = 3 * hidden * expert_inner * (experts + shared) + hidden * experts
        networks = float(first * dense + (layers - first) * routed)
    elif dense:
        networks = float(layers * dense)
    else:
        return None
    return _embeddings(facts) + layers * attention + networks


def parameters_by_name(model: str) -> float | None:
    """Parameters by a size in a name: ``8B``, ``0.5B``, ``8x7B`` (counted in full); None without one."""
    match = re.search(r"(?<![A-Za-z0-9.])(?:(\d+)[xX])?(\d+(?:\.\d+)?)[bB](?![A-Za-z0-9])", model.rsplit("/", 1)[-1])
    return None if match is None else float(match.group(1) or 1) * float(match.group(2)) * 1e9


def lookahead_tokens(config: EngineConfig) -> int:
    """KV slots beyond its tokens that each running request keeps (num_lookahead_tokens of vLLM 0.33.0)."""
    if not config.speculates or config.method in ("ngram", "suffix"):
        return 0
    return config.max_speculative_tokens + (1 if config.method in ("dflash", "dspark") else 0)


def _embeddings(facts: ModelFacts) -> float:
    if isinstance(facts.vocab_size, Missing) or isinstance(facts.hidden_size, Missing):
        return 0.0
    return float(facts.vocab_size * facts.hidden_size * (1 if facts.tied_embeddings else 2))


def bits_of(quantization: str | None) -> float | None:
    """Bits of a weight; None for a method that is not in the table, or none."""
    if quantization is None:
        return None
    name = quantization.lower()
    if any(word in name for word in _FOUR_BITS):
        return 4.0
    return 8.0 if any(word in name for word in _EIGHT_BITS) else None


def _bytes_each(bits: float) -> float:
    """Bytes of a weight with its share of the scales: a 16-bit scale and zero point for each group of 128."""
    return bits / 8 + (4 / 128 if bits < 8 else 0)


def _drafter_bytes(config: EngineConfig, facts: PairFacts) -> float:
    """Of one GPU; a drafter on one GPU is held by each of them."""
    if not config.speculates or config.drafter is None:
        return 0.0
    weights = weights_of(config.drafter.model, config.drafter.quantization, facts.drafter)
    if isinstance(weights, Missing):
        return 0.0
    total = weights.total_bytes
    if config.method != "draft_model":
        if facts.drafter is None:
            return 0.0  # the name of a head tells the size of its model
        if weights.sure == FROM_CONFIG:
            total -= _embeddings(facts.drafter) * 2  # a head uses those of its model
    return total / (config.drafter.tensor_parallel_size or config.tensor_parallel_size)


def _kv_bytes_per_token(config: EngineConfig, facts: PairFacts) -> float:
    """2 x layers x KV heads x head dimension x bytes; the compressed width alone for latent attention."""
    each = _cache_bytes(config.kv_cache_dtype)
    target = 0.0 if facts.target is None else _kv_of(facts.target, config.tensor_parallel_size, each)
    drafter_shards = (config.drafter.tensor_parallel_size if config.drafter else None) or config.tensor_parallel_size
    drafter = facts.drafter if config.speculates and config.drafter is not None else None
    return target / config.pipeline_parallel_size + (0.0 if drafter is None else _kv_of(drafter, drafter_shards, each))


def _cache_bytes(dtype: str | None) -> float:
    """Of one number in the KV cache; types of a few bits count as four, so that nothing is refused for them."""
    if dtype in (None, "auto", "float16", "bfloat16", "half"):
        return 2.0
    return 1.0 if dtype is not None and (dtype.startswith("fp8") or "int8" in dtype) else 0.5


def _kv_of(model: ModelFacts, shards: int, each: float) -> float:
    if isinstance(model.layers, Missing):
        return 0.0
    if isinstance(model.kv_lora_rank, int):
        rope = model.rope_head_dim if isinstance(model.rope_head_dim, int) else 0
        return float(model.layers * (model.kv_lora_rank + rope)) * each
    if isinstance(model.kv_heads, Missing) or isinstance(model.head_dim, Missing):
        return 0.0
    return 2.0 * model.layers * max(1, model.kv_heads // shards) * model.head_dim * each


def _buffers_bytes(config: EngineConfig, facts: PairFacts) -> float:
    """Activations of a step, and 32-bit logits of every position that is verified, or sampled by the drafter.

    Of the right order only: about four hidden states and two of the inner network for each token of the largest step.
    """
    target = facts.target
    if target is None or isinstance(target.hidden_size, Missing):
        return 0.0
    inner = target.intermediate_size if isinstance(target.intermediate_size, int) else 4 * target.hidden_size
    activations = config.max_num_batched_tokens * (4 * target.hidden_size + 2 * inner / config.tensor_parallel_size) * 2
    vocabulary = target.vocab_size if isinstance(target.vocab_size, int) else 0
    k = config.max_speculative_tokens if config.speculates else 0
    sampled = k if config.draft_sampling == "probabilistic" else 0
    return activations + config.max_num_seqs * (k + 1 + sampled) * vocabulary * 4.0
