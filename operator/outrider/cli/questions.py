"""PromQL of what people look at, by service; the autoscaler's own questions are in `outrider.manifests.queries`.

One engine counts once, though two scrape jobs find it or two processes report it, as there. Each answer has a row a
service with the labels ``namespace`` and `SERVICE`; `key` reads them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from outrider.adapters.prometheus_questions import Course
from outrider.core import engine_metrics as names
from outrider.core.histogram import Histogram
from outrider.manifests.meta import STABLE
from outrider.manifests.queries import escape

SERVICE = "serving_outrider_dev_service"
WINDOW = "1m"
"""Of rates: four scrapes at the longest interval that the operator takes."""
_BY = f"namespace, {SERVICE}"
_ENGINE = f"{_BY}, pod, engine"
Key = tuple[str, str]


def selector(namespace: str | None = None, service: str | None = None) -> str:
    """Label matchers of the engines of one service, of a namespace, or of the fleet."""
    found = ['serving_outrider_dev_track="' + STABLE + '"', 'namespace!=""']
    found += [f'namespace="{escape(namespace)}"'] if namespace is not None else []
    return ",".join([*found, f'{SERVICE}!=""' if service is None else f'{SERVICE}="{escape(service)}"'])


def in_flight(of: str) -> str:
    """Requests that run or wait."""
    both = (*names.NUM_REQUESTS_RUNNING, *names.NUM_REQUESTS_WAITING)
    return f"sum by ({_BY}) (max by (__name__, {_ENGINE}) ({_any(both, of)}))"


def batch(of: str) -> str:
    """Requests that run in an engine, mean over those that run any."""
    return f"avg by ({_BY}) (max by ({_ENGINE}) ({_any(names.NUM_REQUESTS_RUNNING, of)}) > 0)"


def engines(of: str) -> str:
    """Engines that are scraped; several data ranks of a pod count as one."""
    return f"count by ({_BY}) (max by ({_BY}, pod) ({_any(names.NUM_REQUESTS_RUNNING, of)}))"


def tokens_per_second(of: str, window: str = WINDOW) -> str:
    """Output tokens."""
    return rate(names.GENERATION_TOKENS, of, window)


def rate(aliases: tuple[str, ...], of: str, window: str = WINDOW) -> str:
    """Increase of a counter a second."""
    return f"sum by ({_BY}) (max by ({_ENGINE}) (rate({_any(aliases, of)}[{window}])))"


def grown(aliases: tuple[str, ...], of: str, window: str) -> str:
    """Increase of a counter over a window, added up over engines, those that are gone included."""
    return f"sum by ({_BY}) (max by ({_ENGINE}) (increase({_any(aliases, of)}[{window}])))"


def buckets(aliases: tuple[str, ...], of: str, window: str = WINDOW) -> str:
    """A histogram's buckets, to be read with `histograms`."""
    with_suffix = tuple(f"{name}_bucket" for name in aliases)
    return f"sum by ({_BY}, le) (max by ({_ENGINE}, le) (rate({_any(with_suffix, of)}[{window}])))"


def steps(aliases: tuple[str, ...], of: str, window: str) -> str:
    """One of the runtime plugin's counters of steps, by batch bucket, K and kind."""
    labels = "batch, speculative_tokens, kind"
    return f"sum by ({_BY}, {labels}) (max by ({_ENGINE}, {labels}) (increase({_any(aliases, of)}[{window}])))"


def key(labels: Mapping[str, str]) -> Key:
    """Namespace and name of an answer's row."""
    return labels.get("namespace", ""), labels.get(SERVICE, "")


def by_service(rows: Iterable[Course]) -> dict[Key, float]:
    """The newest value of each service."""
    return {key(row.labels): row.samples[-1][1] for row in rows if row.samples}


def histograms(rows: Iterable[Course]) -> dict[Key, Histogram]:
    """The histogram of each service, from the answer to `buckets`; counts are a second."""
    found: dict[Key, dict[float, float]] = defaultdict(dict)
    for row in rows:
        if row.samples:
            found[key(row.labels)][float(row.labels["le"])] = row.samples[-1][1]
    read = {}
    for service, bounds in found.items():
        ordered = tuple(sorted(bounds.items()))
        read[service] = Histogram(count=ordered[-1][1], buckets=ordered)
    return read


def _any(aliases: tuple[str, ...], of: str) -> str:
    name = "|".join(aliases)
    return "{" + (f'__name__="{name}"' if len(aliases) == 1 else f'__name__=~"{name}"') + f",{of}}}"
