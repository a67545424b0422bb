"""One engine's metric families in a window, looked up by the table of names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from outrider.core import engine_metrics as names
from outrider.core.counters import Samples, changes, gauge, increase_once
from outrider.core.series import Missing, Series

EngineKey = tuple[str, str]
"""Pod name and engine (data-parallel rank; empty for versions that do not tell)."""
Key = TypeVar("Key", bound=Hashable)

STALE_SCRAPES = 4
"""Scrapes in which nothing moves before gauges count as left behind: no step of an engine lasts three scrape intervals,
and every window holds four."""
_PROGRESS = (
    (names.GENERATION_TOKENS, ""),
    (names.PROMPT_TOKENS, ""),
    (names.ITERATION_TOKENS, "_count"),
    (names.NUM_DRAFTS, ""),
    (names.STEPS, ""),
)
"""Counters of which at least one moves while an engine works."""


class EngineReader:
    """Reads counters and gauges of one engine between two moments.

    ``starts`` are the process-start series of the engine's pod. Restarts are told apart by the label ``instance``: a
    pod may run other processes beside the engine.
    """

    def __init__(
        self, key: EngineKey, series: Sequence[Series], starts: Sequence[Series], since_s: float, until_s: float
    ) -> None:
        self.key, self._since_s, self._until_s = key, since_s, until_s
        self._by_name: dict[str, list[Series]] = defaultdict(list)
        for one in series:
            self._by_name[one.name].append(one)
        self._restarts: dict[str, set[float]] = defaultdict(set)
        for one in (*starts, *self.family(names.CREATED)):
            self._restarts[_instance(one)].update(changes(one.samples))

    def __str__(self) -> str:
        pod, engine = self.key
        return f"{pod}, engine {engine}" if engine else pod

    @property
    def newest_s(self) -> float:
        """Time of the newest sample."""
        return max(one.last[0] for many in self._by_name.values() for one in many)

    def family(self, aliases: Sequence[str], suffix: str = "") -> list[Series]:
        """The series of the first name that this engine has."""
        return next((self._by_name[name + suffix] for name in aliases if name + suffix in self._by_name), [])

    def increase(self, aliases: Sequence[str], suffix: str = "", since_s: float | None = None) -> float | None:
        """Rise of a counter without labels of its own, from ``since_s`` or the window's begin; None without samples to
        compare."""
        return self._rise(self.family(aliases, suffix), self._since_s if since_s is None else since_s)

    def increases(
        self, aliases: Sequence[str], key: Callable[[Mapping[str, str]], Key | None], suffix: str = ""
    ) -> dict[Key, float]:
        """Rise of a counter by what ``key`` makes of its labels; series for which it makes nothing are left out."""
        groups: dict[Key, list[Series]] = defaultdict(list)
        for one in self.family(aliases, suffix):
            found = key(one.labels)
            if found is not None:
                groups[found].append(one)
        rises = {found: self._rise(group, self._since_s) for found, group in groups.items()}
        return {found: rise for found, rise in rises.items() if rise is not None}

    def mean(self, aliases: Sequence[str]) -> float | None:
        """Mean of a gauge over the moments of the window; None if there is none."""
        values = [value for _, value in gauge(self.family(aliases), self._since_s, self._until_s)]
        return sum(values) / len(values) if values else None

    def last(self, aliases: Sequence[str]) -> float | None:
        """Newest value of a gauge, of the window or before; None without any."""
        samples = self._history(aliases)
        return samples[-1][1] if samples else None

    def label_product(self, aliases: Sequence[str], *labels: str) -> float | None:
        """Product of numbers that an info metric carries as labels; None if one is missing or no number."""
        for one in self.family(aliases):
            factors = [number(one.labels.get(label, "")) for label in labels]
            product = 1.0
            for factor in factors:
                if factor is None:
                    return None
                product *= factor
            return product
        return None

    def standstill(self) -> Missing | None:
        """What the gauges hold if they were left behind: requests run or wait in them, and for `STALE_SCRAPES` neither
        they nor any counter moved.

        vLLM writes gauges at the end of a step. When all requests are aborted at once no further step comes, and the
        last values stay for ever.
        """
        shown = [self._history(aliases)[-STALE_SCRAPES:] for aliases in _IN_FLIGHT]
        running, waiting = (samples[-1][1] if samples else 0.0 for samples in shown)
        if running + waiting <= 0 or not all(_stands(samples) for samples in shown if samples):
            return None
        since_s = min(samples[0][0] for samples in shown if samples)
        rises = [self.increase(aliases, suffix, since_s) for aliases, suffix in _PROGRESS]
        if all(rise is None for rise in rises) or any(rises):
            return None
        return Missing(
            "StaleGauges",
            f"{self}: {running:.0f} running and {waiting:.0f} waiting requests, but nothing moved in the last "
            f"{STALE_SCRAPES} scrapes",
        )

    def _history(self, aliases: Sequence[str]) -> Samples:
        return gauge(self.family(aliases), float("-inf"), self._until_s)

    def _rise(self, series: Sequence[Series], since_s: float) -> float | None:
        tellers = [(one.samples, sorted(self._restarts[_instance(one)])) for one in series]
        return increase_once(tellers, since_s, self._until_s)


_IN_FLIGHT = (names.NUM_REQUESTS_RUNNING, names.NUM_REQUESTS_WAITING)


def number(text: str) -> float | None:
    """A label's value as a number that is not NaN; None if it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value else None


def whole(text: str) -> int | None:
    """A label's value as a whole number, 0 or above; None if it is none."""
    return int(text) if text.isascii() and text.isdigit() else None


def _instance(one: Series) -> str:
    return one.labels.get("instance", "")


def _stands(samples: Samples) -> bool:
    return len(samples) == STALE_SCRAPES and len({value for _, value in samples}) == 1
