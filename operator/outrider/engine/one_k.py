"""An engine that is started with a K of Outrider's choice, because it cannot be told another while it runs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from outrider.engine.admission import examine
from outrider.engine.command_line import initial_schedule
from outrider.engine.config import EngineConfig

ADAPTED = ("Adaptive", "Observe")
"""Modes in which engines have the K that was chosen; Observe leaves what runs as it is."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A K, and what it was chosen for."""

    subject: int
    num_speculative_tokens: int


def subject(config: EngineConfig) -> int:
    """What a K is chosen for, as a number of 48 bits: another model, way to draft or ceiling needs another choice.
    Another drafter is first tried with the K that there is, beside engines that have it too."""
    return _number(config.model, config.method, config.max_speculative_tokens)


def told_of(config: EngineConfig) -> int:
    """What metrics of such engines tell of: the same with the drafter."""
    drafter = config.drafter
    return _number(subject(config), drafter and (drafter.model, drafter.revision, drafter.quantization))


def _number(*facts: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(facts).encode()).digest()[:6])


def given(config: EngineConfig, choice: Choice | None) -> EngineConfig:
    """The engine with the K that was chosen for it; as it is where the choice was for another one, or is out of bounds
    by now."""
    if choice is None or config.mode not in ADAPTED or choice.subject != subject(config):
        return config
    k = choice.num_speculative_tokens
    if not config.min_speculative_tokens <= k <= config.max_speculative_tokens:
        return config
    return with_one_k(config, k)


def with_one_k(config: EngineConfig, num_speculative_tokens: int) -> EngineConfig:
    """The engine with this K alone; 0 starts it without its drafter."""
    k = num_speculative_tokens
    if k == 0:
        return replace(config, mode="Off")
    return replace(
        config,
        one_k=True,
        max_speculative_tokens=k,
        min_speculative_tokens=min(k, config.min_speculative_tokens),
        initial_speculative_tokens=min(k, config.initial_speculative_tokens),
    )


def own(config: EngineConfig) -> int:
    """The K that the resource itself starts engines with."""
    return initial_schedule(config).at(1) if config.speculates else 0


def values(config: EngineConfig) -> tuple[int, ...]:
    """The K within the user's bounds that such an engine may be started with, ascending; its own among them."""
    least, most = config.min_speculative_tokens, config.max_speculative_tokens
    return tuple(k for k in range(least, most + 1) if k == own(config) or _admitted(with_one_k(config, k)))


def _admitted(config: EngineConfig) -> bool:
    return all(finding.severity != "error" for finding in examine(config))
