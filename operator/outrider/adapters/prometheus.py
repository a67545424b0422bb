"""Prometheus: raw samples of all engines of the fleet in a constant number of queries.

The range vector of an instant query returns the samples as they were scraped, with their own timestamps, so that resets
and gaps can be told from one another; `rate` and its kin would hide both. NaN, infinity, numbers beyond counting and
series without our labels stop here.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from email.utils import parsedate_to_datetime
from operator import lt
from sys import intern
from typing import Any

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util import Retry

from outrider.adapters.prometheus_access import Access
from outrider.core import engine_metrics as names
from outrider.core.glance import GLANCED
from outrider.core.revisions import processes
from outrider.core.series import MAX_SKEW_S, Series
from outrider.errors import AccessDenied, Malformed, MetricsError

ServiceKey = tuple[str, str]
"""Namespace and name."""
Row = tuple[dict[str, str], tuple[tuple[float, float], ...]]
"""Labels and samples of a series."""

NOBODY = Access()
TIMEOUT_S = 10
"""Shorter than a control period: a slow answer costs one period, not two."""
SERVICE_LABEL = "serving_outrider_dev_service"
TRACK_LABEL = processes.TRACK

_COUNTERS_AND_GAUGES = (
    *names.NUM_DRAFTS,
    *names.NUM_DRAFT_TOKENS,
    *names.NUM_ACCEPTED_TOKENS,
    *names.NUM_ACCEPTED_TOKENS_PER_POS,
    *names.DRAFT_TOKENS_PER_POS,
    *names.GENERATION_TOKENS,
    *(name + "_count" for name in names.ITERATION_TOKENS),
    *names.PROMPT_TOKENS,
    *names.NUM_PREEMPTIONS,
    *names.NUM_REQUESTS_RUNNING,
    *names.NUM_REQUESTS_WAITING,
    *names.KV_CACHE_USAGE,
    *names.CACHE_CONFIG,
    *names.PROCESS_START,
    *names.CREATED,
    *names.SCHEDULE_GENERATION,
)
_STEPS = names.STEPS + names.STEP_SECONDS + names.STEP_REQUESTS
_HISTOGRAMS = tuple(name + suffix for name in names.TPOT + names.TTFT for suffix in ("_bucket", "_sum", "_count"))
GROUPS = (_COUNTERS_AND_GAUGES, _STEPS, _HISTOGRAMS)
"""One query each, whatever the number of services."""
_ANSWERS = (
    *names.FINISHED,
    *names.HTTP_REQUESTS,
    *(name + suffix for name in names.ANSWER_TOKENS for suffix in ("_bucket", "_sum")),
)
COMPARED = (*GROUPS, _ANSWERS)
"""The same for comparisons of candidates: asked only while there is one."""
GLANCES = tuple(GLANCED[first::3] for first in range(3))
"""One query each for a glance: all in one would take longer than an answer is waited for, with thousands of services
on few cores, and most memory of all."""
MAX_NUMBER = 2.0**53
"""Counters and times are whole up to here, as a float has them; ten thousand tokens a second get there in 28,000
years."""
WRONG_FORM = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading JSON of another form ends with: objects where texts belong, numbers too large, nesting without end."""


class Prometheus:
    """A metrics store that speaks Prometheus' query API."""

    def __init__(self, url: str, access: Access = NOBODY, *, timeout_s: float = TIMEOUT_S) -> None:
        session = access.session()
        session.hooks["response"].append(self._same_time)
        self._client = PrometheusConnect(url, session=session, retry=Retry(total=0), timeout=timeout_s, method="POST")
        self.url, self._access, self._timeout_s = url, access, timeout_s

    async def engine_series(
        self, window_s: float, at_s: float, services: Collection[ServiceKey] | None = None
    ) -> dict[ServiceKey, list[Series]]:
        """Samples of the stable track's engines between ``at_s - window_s`` and ``at_s``, by service; of all services,
        or of some, and then perhaps of namesakes.

        Raises:
            Unreachable: no answer in time.
            AccessDenied: it refuses us, or we do not trust it.
            Malformed: an answer that is no range vector.
            MetricsError: its clock and ours tell different times.
        """
        return await self._ask(queries(window_s, services), at_s)

    async def compared_series(
        self, services: Collection[ServiceKey], window_s: float, at_s: float
    ) -> dict[ServiceKey, list[Series]]:
        """The same of both tracks of these services, and how their requests ended; raises the same."""
        found = await self._ask(comparison_queries(services, window_s), at_s)
        return {key: found[key] for key in services if key in found}

    async def _ask(self, asked: Iterable[str], at_s: float) -> dict[ServiceKey, list[Series]]:
        # One after another: while it is read an answer takes several times the memory that it takes afterwards.
        answers = [await self._query(query, at_s) for query in asked]
        return await asyncio.to_thread(by_service, answers)

    async def glance(self, window_s: float, at_s: float) -> dict[ServiceKey, list[Series]]:
        """The same for the few families of `outrider.core.glance`, of all services; raises the same."""
        return await self._ask([_query_of(part, window_s) for part in GLANCES], at_s)

    async def _query(self, query: str, at_s: float) -> list[Row]:
        # The library is synchronous; a thread keeps it off the event loop, and the session ends it when time is up.
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await asyncio.to_thread(self._client.custom_query, query, params={"time": f"{at_s:.3f}"})
            return await asyncio.to_thread(rows, answer)  # seconds for a large fleet, in which events must not wait
        except WRONG_FORM as error:
            raise Malformed(
                "PrometheusMalformed",
                f"Prometheus at {self.url} did not answer '{query}' with a range vector; if it is none: look at"
                f" {self._access.address}",
            ) from error
        except (AccessDenied, OSError, PrometheusApiClientException) as error:  # a time-out is an OSError too
            raise self._access.explained(error, f"Prometheus at {self.url}") from error

    def _same_time(self, response: requests.Response, *_: Any, **__: Any) -> None:
        """Refuse an answer of a store whose clock is ahead of ours: what it calls now is still to come for us, and what
        we ask for as the last minute is long past. One that is behind has no samples yet of what we call now."""
        ahead_s = _date_s(response) - time.time()
        if abs(ahead_s) > MAX_SKEW_S:
            how = "ahead of" if ahead_s > 0 else "behind"
            raise MetricsError(
                "PrometheusClock",
                f"the clock of Prometheus at {self.url} is {abs(ahead_s):.0f} s {how} the operator's: set both by the"
                " time server of their nodes",
            )


def _date_s(response: requests.Response) -> float:
    """When the store says that it answered; now, if it says nothing of it."""
    try:
        return parsedate_to_datetime(response.headers["Date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return time.time()


def queries(window_s: float, services: Collection[ServiceKey] | None = None) -> list[str]:
    """The queries for all services, or for some."""
    return [_query_of(group, window_s, services) for group in GROUPS]


def comparison_queries(services: Collection[ServiceKey], window_s: float) -> list[str]:
    """The queries of the comparisons of some services, as many whatever their number."""
    return [_query_of(group, window_s, services, track='!=""') for group in COMPARED]


def _query_of(
    group: Sequence[str], window_s: float, services: Collection[ServiceKey] | None = None, track: str = '="stable"'
) -> str:
    """Names and namespaces are asked for apart, so that services of others may be among the answers."""
    namespace, service = 'namespace!=""', f'{SERVICE_LABEL}!=""'
    if services is not None:
        namespace = f'namespace=~"{_any_of(namespace for namespace, _ in services)}"'
        service = f'{SERVICE_LABEL}=~"{_any_of(name for _, name in services)}"'
    matchers = f'__name__=~"{"|".join(group)}",{service},{namespace},{TRACK_LABEL}{track}'
    return f"{{{matchers}}}[{math.ceil(window_s)}s]"


def _any_of(texts: Iterable[str]) -> str:
    """A pattern, as a string in PromQL has it; names may have dots."""
    return "|".join(sorted({text.replace(".", "[.]") for text in texts}))


def rows(result: Any) -> list[Row]:
    """The rows of a range vector; the list is emptied on the way, since a fleet's would not fit beside them.

    Raises:
        One of `WRONG_FORM`: it is none.
    """
    found: list[Row] = []
    result.reverse()
    while result:
        found.append(_row(result.pop()))
    return found


def by_service(answers: Iterable[Sequence[Row]]) -> dict[ServiceKey, list[Series]]:
    """Series that have samples, by the service of their engine."""
    found: dict[ServiceKey, list[Series]] = defaultdict(list)
    for labels, samples in (row for answer in answers for row in answer):
        if samples:
            found[labels["namespace"], labels[SERVICE_LABEL]].append(Series(labels["__name__"], labels, samples))
    return found


def _row(row: dict[str, Any]) -> Row:
    # Interned, for every series of a fleet has some ten labels with the same few texts; what is no text is refused.
    labels = {name: intern(text) for name, text in row["metric"].items()}
    if not {"__name__", "namespace", SERVICE_LABEL} <= labels.keys():
        raise KeyError("labels")
    return labels, finite(row["values"])


def finite(values: Sequence[Sequence[Any]]) -> tuple[tuple[float, float], ...]:
    """Samples without NaN, infinity and what is above `MAX_NUMBER`: no engine counts that far, and squares of such
    numbers are none.

    Raises:
        ValueError, TypeError, OverflowError: they are no samples, or their times do not ascend.
    """
    # By columns: a fleet has millions of samples, and this is all that a pass does with each of them but adding up.
    times_s = [float(time_s) for time_s, _ in values]
    numbers = [float(text) for _, text in values]
    if not _sane(times_s) or not all(map(lt, times_s, times_s[1:])):
        raise ValueError("times")
    samples = tuple(zip(times_s, numbers, strict=True))
    return samples if _sane(numbers) else tuple(one for one in samples if _sane(one[1:]))


def _sane(numbers: Sequence[float]) -> bool:
    return all(map(math.isfinite, numbers)) and max(map(abs, numbers), default=0.0) <= MAX_NUMBER
