"""What a model's own ``config.json`` tells of it, as far as admission and the memory estimate need it.

Read leniently: families name the same thing differently, and multi-modal ones keep the language model in a part of its
own. What is not there, or is no number, is `Missing`: a rule that needs it is then not checked, and never guesses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.core.series import Missing

Count = int | Missing

# Names of one thing, in the order in which they are tried (vllm/transformers_utils/config.py of vLLM 0.33.0).
_KV_HEADS = ("num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num", "num_attention_groups")
_EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
_HEADS = ("num_attention_heads", "n_head")
_LAYERS = ("num_hidden_layers", "n_layer")
_HIDDEN = ("hidden_size", "n_embd")
_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length")
_MODULES = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "n_predict")
_LANGUAGE_MODEL = ("text_config", "llm_config", "language_config", "thinker_config")

# Families whose layers keep a Mamba-1 or Mamba-2 state, wholly or in part (vllm/model_executor/models of vLLM 0.33.0).
_MAMBA_FAMILIES = (
    "mamba",
    "mamba2",
    "falcon_mamba",
    "jamba",
    "bamba",
    "falcon_h1",
    "granitemoehybrid",
    "nemotron_h",
    "nemotron_h_puzzle",
    "zamba2",
    "plamo2",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """One model. Sizes are counts, lengths are tokens."""

    model_type: str | Missing
    architectures: tuple[str, ...] = ()
    vocab_size: Count
    hidden_size: Count
    intermediate_size: Count
    layers: Count
    attention_heads: Count
    kv_heads: Count
    """Of the attention heads where nothing else is said."""
    head_dim: Count
    max_positions: Count
    n_predict: Count
    """Layers that predict further tokens (MTP)."""
    experts: Count
    """0 for a dense model."""
    expert_intermediate_size: Count
    shared_experts: Count
    dense_layers: Count
    """Layers without experts at the start of a model that has them elsewhere."""
    sliding_window: Count
    kv_lora_rank: Count
    """Width of the compressed cache of multi-head latent attention."""
    rope_head_dim: Count
    """The part of it that carries positions."""
    quantization: str | None = None
    """How the weights of the repository are quantised, such as ``fp8`` or ``awq``."""
    quantization_bits: Count
    tied_embeddings: bool = False
    mrope: bool = False
    """Positions of several dimensions, as multi-modal models have them."""
    mamba: bool = False
    """Layers with a Mamba-1 or Mamba-2 state."""
    remote_code: bool = False
    """Whether the repository brings code of its own."""
    speculators: bool = False
    """Whether it is a drafter in the speculators format, which names its target itself."""
    weights_bytes: Count
    """Size of the files that hold the weights, when it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFacts:
    """The model that is served and its drafter, each as far as it is known."""

    target: ModelFacts | None = None
    drafter: ModelFacts | None = None


NO_FACTS = PairFacts()


def read(document: Mapping[str, Any], weights_bytes: int | None = None) -> ModelFacts:
    """The facts of a parsed ``config.json``; ``weights_bytes`` is the size of the weights where it was found."""
    text = _language_model(document)
    heads, hidden = _count(text, _HEADS), _count(text, _HIDDEN)
    kv_heads = _count(text, _KV_HEADS)
    quantization = _mapping(document.get("quantization_config") or text.get("quantization_config"))
    model_type = document.get("model_type") or text.get("model_type")
    return ModelFacts(
        model_type=str(model_type) if model_type else _missing("model_type"),
        architectures=tuple(str(name) for name in _list(document.get("architectures"))),
        vocab_size=_count(text, ("vocab_size",)),
        hidden_size=hidden,
        intermediate_size=_count(text, ("intermediate_size", "ffn_hidden_size", "n_inner")),
        layers=_count(text, _LAYERS),
        attention_heads=heads,
        kv_heads=heads if isinstance(kv_heads, Missing) else kv_heads,
        head_dim=_head_dim(text, heads, hidden),
        max_positions=_count(text, _POSITIONS),
        n_predict=_first_count((text, document), _MODULES),
        experts=_count(text, _EXPERTS, none=0),
        expert_intermediate_size=_count(text, ("moe_intermediate_size", "intermediate_size")),
        shared_experts=_count(text, ("n_shared_experts", "moe_num_shared_experts"), none=0),
        dense_layers=_count(text, ("first_k_dense_replace",), none=0),
        sliding_window=_count(text, ("sliding_window",)),
        kv_lora_rank=_count(text, ("kv_lora_rank",)),
        rope_head_dim=_count(text, ("qk_rope_head_dim",)),
        quantization=_text(quantization.get("quant_method") or quantization.get("quant_algo")),
        quantization_bits=_quantization_bits(quantization),
        tied_embeddings=bool(text.get("tie_word_embeddings", document.get("tie_word_embeddings", False))),
        mrope=_mrope(text),
        mamba=_text(model_type) in _MAMBA_FAMILIES or _text(text.get("model_type")) in _MAMBA_FAMILIES,
        remote_code="auto_map" in document,
        speculators="speculators_config" in document,
        weights_bytes=_missing("the size of the weights") if weights_bytes is None else weights_bytes,
    )


def _language_model(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part that speaks of the language model; it may lie two levels down."""
    for name in _LANGUAGE_MODEL:
        inner = document.get(name)
        if isinstance(inner, Mapping):
            return _language_model(inner)
    # A drafter in the speculators format describes its one layer in a part of its own.
    inner = document.get("transformer_layer_config")
    return {**document, **inner} if isinstance(inner, Mapping) else document


def _head_dim(text: Mapping[str, Any], heads: Count, hidden: Count) -> Count:
    given = _count(text, ("head_dim", "hidden_size_per_head"))
    if isinstance(given, Missing) and isinstance(heads, int) and isinstance(hidden, int):
        return hidden // heads
    return given


def _quantization_bits(quantization: Mapping[str, Any]) -> Count:
    """Of a weight; compressed-tensors says it for each group of layers, of which the first stands for all."""
    for group in _mapping(quantization.get("config_groups")).values():
        found = _count(_mapping(_mapping(group).get("weights")), ("num_bits",))
        if isinstance(found, int):
            return found
    return _count(quantization, ("bits", "w_bit", "weight_bits"))


def _mrope(text: Mapping[str, Any]) -> bool:
    scaling = _mapping(text.get("rope_parameters") or text.get("rope_scaling"))
    return "mrope_section" in scaling or scaling.get("type") == "mrope" or scaling.get("rope_type") == "mrope"


def _count(part: Mapping[str, Any], names: tuple[str, ...], none: int | None = None) -> Count:
    """The first name that holds a positive whole number; ``none`` for what is simply not there."""
    for name in names:
        value = part.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return _missing(names[0]) if none is None else none


def _first_count(parts: tuple[Mapping[str, Any], ...], names: tuple[str, ...]) -> Count:
    found = (_count(part, names) for part in parts)
    return next((count for count in found if isinstance(count, int)), _missing(names[0]))


def _missing(name: str) -> Missing:
    return Missing("NotInModelConfig", f"{name} is not known: the model's config.json does not say")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value.lower() if isinstance(value, str) else None
