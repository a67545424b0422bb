"""Engine configurations for tests."""

from __future__ import annotations

from typing import Any

from outrider.core.schedule import Row
from outrider.engine.config import Drafter, EngineConfig

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
