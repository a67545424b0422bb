"""Requests that ended in a window of time, and how, from vLLM's own counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from outrider.core import engine_metrics as names
from outrider.core.engine_reader import EngineReader, number

_Key = Callable[[Mapping[str, str]], str | None]

SHORTEST = 1.0
"""Tokens: the lowest bound of the histogram of answers."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Requests that ended, all counts; nothing where an engine does not tell, or was not asked."""

    total: float = 0.0
    """In any way but that the client hung up, failures included."""
    failed: float = 0.0
    """By a fault of the engine or of the server before it."""
    cut: float = 0.0
    """By their length limit."""
    repeating: float = 0.0
    """Since they repeated themselves; 0 where the engine does not look."""
    short: float = 0.0
    """With at most `SHORTEST` tokens; 0 where the histogram has no such bound."""
    tokens: float = 0.0
    """Output tokens of all of them."""


def read_ended(readers: Sequence[EngineReader]) -> Ended:
    """Of all engines.

    What failed in the engine is answered with a status of 5xx as well, unless it was streamed; what failed in the
    server is known by its status alone. So the greater of the two failed.
    """
    by_reason = _sums(readers, names.FINISHED, _reason)
    errors = by_reason.get("error", 0.0)
    failed = max(errors, sum(_sums(readers, names.HTTP_REQUESTS, _faulty).values()))
    return Ended(
        total=sum(by_reason.values()) + failed - errors,
        failed=failed,
        cut=by_reason.get("length", 0.0),
        repeating=by_reason.get("repetition", 0.0),
        short=_sums(readers, names.ANSWER_TOKENS, _shortest, "_bucket").get("short", 0.0),
        tokens=sum(reader.increase(names.ANSWER_TOKENS, "_sum") or 0.0 for reader in readers),
    )


def _sums(readers: Sequence[EngineReader], aliases: Sequence[str], key: _Key, suffix: str = "") -> dict[str, float]:
    sums: dict[str, float] = {}
    for reader in readers:
        for label, rise in reader.increases(aliases, key, suffix).items():
            sums[label] = sums.get(label, 0.0) + rise
    return sums


def _reason(labels: Mapping[str, str]) -> str | None:
    return labels.get("finished_reason")


def _faulty(labels: Mapping[str, str]) -> str | None:
    """Inference alone: who scrapes or probes asks with another method. By handler: series of one key count once."""
    faulty = labels.get("method") == "POST" and labels.get("status", "").startswith("5")
    return f"{labels.get('handler')} {labels['status']}" if faulty else None


def _shortest(labels: Mapping[str, str]) -> str | None:
    return "short" if number(labels.get("le", "")) == SHORTEST else None
