"""Engine configurations for tests."""

from __future__ import annotations

from typing import Any

from outrider.core.schedule import Row
from outrider.engine.config import Drafter, EngineConfig
from outrider.engine.model_facts import ModelFacts, PairFacts, read

EAGLE = Drafter(model="org/draft")


def config(**changes: Any) -> EngineConfig:
    """An EAGLE-3 engine with a ceiling of 5, as the minimal example has it."""
    values: dict[str, Any] = {
        "version": "0.33.0",
        "model": "org/target",
        "served_name": "chat",
        "method": "eagle3",
        "drafter": EAGLE,
        "mode": "Adaptive",
        "max_speculative_tokens": 5,
    }
    return EngineConfig(**values | changes)


def rows(*triples: tuple[int, int, int]) -> tuple[Row, ...]:
    """Rows of a schedule."""
    return tuple(Row(*triple) for triple in triples)


LLAMA_8B = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
"""The numbers of a dense model of 8 billion parameters."""


def model(**changes: Any) -> ModelFacts:
    """Facts of a dense model with other numbers; None takes a number away."""
    return read({key: value for key, value in (LLAMA_8B | changes).items() if value is not None})


def pair(target: dict[str, Any] | None = None, drafter: dict[str, Any] | None = None) -> PairFacts:
    """Facts of a model and, when its changes are given, of a drafter like it."""
    return PairFacts(target=model(**(target or {})), drafter=None if drafter is None else model(**drafter))
