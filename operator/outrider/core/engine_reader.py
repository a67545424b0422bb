"""One engine's metric families, looked up by the table of names and read in a window of time."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from outrider.core import engine_metrics as names
from outrider.core.counters import Samples, changes, gauge, increase, increase_once, with_beginnings
from outrider.core.series import Missing, Series

EngineKey = tuple[str, str]
"""Pod name and engine (data-parallel rank; empty for versions that do not tell)."""
Key = TypeVar("Key", bound=Hashable)
Tellers = Sequence[tuple[Samples, Sequence[float]]]
"""Samples of series that tell of one counter, each with the moments of its restarts."""

LABELS = 4096
"""Label values whose numbers are kept: all engines of a fleet have the same few hundred."""
STALE_SCRAPES = 4
"""Scrapes in which nothing moves before gauges count as left behind: no step of an engine lasts three scrape intervals,
and every window holds four."""
DIGITS = 9
"""Of a batch size, a K or a position; Python refuses to read a number of some thousands."""
_PROGRESS = (
    (names.GENERATION_TOKENS, ""),
    (names.PROMPT_TOKENS, ""),
    (names.ITERATION_TOKENS, "_count"),
    (names.NUM_DRAFTS, ""),
    (names.STEPS, ""),
)
"""Counters of which at least one moves while an engine works."""


@dataclass(frozen=True, slots=True)
class EngineSeries:
    """The series of one engine in order: labels are read once, however many windows are."""

    key: EngineKey
    by_name: Mapping[str, Sequence[Series]]
    restarts: Mapping[str, Sequence[float]]
    """Moments, ascending, by the label ``instance``: a pod may run other processes beside the engine."""
    newest_s: float
    """Time of the newest sample."""
    groups: dict[str, Mapping[Any, Tellers]] = field(default_factory=dict)
    """By the name of a family: who tells of it, by what is made of their labels. Filled on the way; a name has one
    reader."""

    def tellers(self, family: Iterable[Series]) -> Tellers:
        """Samples of some series, each with its restarts."""
        return [(one.samples, self.restarts.get(_instance(one), ())) for one in family]

    def grouped(self, family: Sequence[Series], key: Callable[[Mapping[str, str]], Key | None]) -> dict[Key, Tellers]:
        """The same by what ``key`` makes of their labels; series for which it makes nothing are left out."""
        groups: dict[Key, list[Series]] = defaultdict(list)
        for one in with_beginnings(family):
            label = key(one.labels)
            if label is not None:
                groups[label].append(one)
        return {label: self.tellers(same) for label, same in groups.items()}


def in_order(key: EngineKey, series: Sequence[Series], starts: Sequence[Series]) -> EngineSeries:
    """Sort the series of one engine; ``starts`` are the process-start series of its pod."""
    by_name: dict[str, list[Series]] = defaultdict(list)
    for one in series:
        by_name[one.name].append(one)
    moments: dict[str, set[float]] = defaultdict(set)
    for one in (*starts, *_first(by_name, names.CREATED)):
        moments[_instance(one)].update(changes(one.samples))
    restarts = {instance: sorted(found) for instance, found in moments.items() if found}
    return EngineSeries(key, by_name, restarts, max(one.samples[-1][0] for one in series))


class EngineReader:
    """Reads counters and gauges of one engine between two moments."""

    def __init__(self, series: EngineSeries, since_s: float, until_s: float) -> None:
        self.key, self.newest_s = series.key, series.newest_s
        self._series, self._since_s, self._until_s = series, since_s, until_s

    def __str__(self) -> str:
        pod, engine = self.key
        return f"{pod}, engine {engine}" if engine else pod

    def family(self, aliases: Sequence[str], suffix: str = "") -> Sequence[Series]:
        """The series of the first name that this engine has."""
        return _first(self._series.by_name, aliases, suffix)

    def increase(self, aliases: Sequence[str], suffix: str = "", since_s: float | None = None) -> float | None:
        """Rise of a counter without labels of its own, from ``since_s`` or the window's begin; None without samples to
        compare."""
        tellers = self._series.tellers(self.family(aliases, suffix))
        return self._rise(tellers, self._since_s if since_s is None else since_s)

    def increases(
        self,
        aliases: Sequence[str],
        key: Callable[[Mapping[str, str]], Key | None],
        suffix: str = "",
        wanted: Collection[Key] | None = None,
    ) -> dict[Key, float]:
        """Rise of a counter by what ``key`` makes of its labels; series for which it makes nothing are left out, and
        so are those not ``wanted``."""
        groups, name = self._series.groups, aliases[0] + suffix
        if name not in groups:
            groups[name] = self._series.grouped(self.family(aliases, suffix), key)
        rises = {}
        for label, tellers in groups[name].items():
            if wanted is None or label in wanted:
                rise = self._rise(tellers, self._since_s)
                if rise is not None:
                    rises[label] = rise
        return rises

    def mean(self, aliases: Sequence[str]) -> float | None:
        """Mean of a gauge over the moments of the window; None if there is none."""
        values = [value for _, value in gauge(self.family(aliases), self._since_s, self._until_s)]
        return sum(values) / len(values) if values else None

    @property
    def begins_s(self) -> float:
        """Time of the oldest sample that a rise rests on, by the counter that every engine has: the last at or before
        the window's begin, or else the first."""
        found = [one.samples for one in self.family(names.GENERATION_TOKENS)]
        after = (self._since_s, float("inf"))
        return min(samples[max(0, bisect_right(samples, after) - 1)][0] for samples in found)

    def last(self, aliases: Sequence[str], since_s: float = float("-inf")) -> float | None:
        """Newest value of a gauge after ``since_s``; None without any."""
        samples = gauge(self.family(aliases), since_s, self._until_s)
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
        running, waiting = (self.last(aliases) or 0.0 for aliases in _IN_FLIGHT)
        shown = [samples for aliases in _IN_FLIGHT for samples in self._newest(aliases)]
        if running + waiting <= 0 or not all(_stands(samples) for samples in shown):
            return None
        since_s = min(samples[0][0] for samples in shown)
        rises = [self.increase(aliases, suffix, since_s) for aliases, suffix in _PROGRESS]
        if all(rise is None for rise in rises) or any(rises):
            return None
        return Missing(
            "StaleGauges",
            f"{self}: {running:.0f} running and {waiting:.0f} waiting requests, but nothing moved in the last "
            f"{STALE_SCRAPES} scrapes",
        )

    def _newest(self, aliases: Sequence[str]) -> list[Samples]:
        """The last scrapes of each series that still tells; each replica of a store has its own, at its own moments."""
        tails = [gauge((one,), float("-inf"), self._until_s)[-STALE_SCRAPES:] for one in self.family(aliases)]
        latest = max((tail for tail in tails if tail), key=lambda tail: tail[-1][0], default=())
        return [tail for tail in tails if tail and tail[-1][0] >= latest[0][0]]

    def _rise(self, tellers: Tellers, since_s: float) -> float | None:
        if len(tellers) == 1:
            samples, restarts = tellers[0]
            return increase(samples, since_s, self._until_s, restarts)
        return increase_once(tellers, since_s, self._until_s)


_IN_FLIGHT = (names.NUM_REQUESTS_RUNNING, names.NUM_REQUESTS_WAITING)


@lru_cache(maxsize=LABELS)
def number(text: str) -> float | None:
    """A label's value as a number that is not NaN; None if it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value else None


@lru_cache(maxsize=LABELS)
def whole(text: str) -> int | None:
    """A label's value as a whole number, 0 or above; None if it is none, or has more than `DIGITS`."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS else None


def _first(by_name: Mapping[str, Sequence[Series]], aliases: Sequence[str], suffix: str = "") -> Sequence[Series]:
    return next((by_name[name + suffix] for name in aliases if name + suffix in by_name), ())


def _instance(one: Series) -> str:
    return one.labels.get("instance", "")


def _stands(samples: Samples) -> bool:
    return len(samples) == STALE_SCRAPES and len({value for _, value in samples}) == 1
