"""What a metrics store says of services at this moment, or why it says nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outrider.adapters.prometheus_questions import Questions
from outrider.cli import questions
from outrider.cli.connection import Manifest, Reach, store
from outrider.cli.exits import Unusable
from outrider.cli.questions import Key
from outrider.core import engine_metrics
from outrider.core.histogram import Histogram
from outrider.errors import MetricsError


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """One service; None where the store does not know."""

    in_flight: float | None = None
    batch: float | None = None
    """Requests in an engine that runs any."""
    tokens_per_second: float | None = None
    tpot: Histogram | None = None

    def tpot_s(self, percentile: int) -> float | None:
        """TPOT that this share of the requests, in percent, stayed within."""
        return None if self.tpot is None else self.tpot.quantile(percentile / 100)

    def within(self, objective_s: float) -> float | None:
        """Share of the requests within an objective, 0 to 1."""
        return None if self.tpot is None else self.tpot.share_at_most(objective_s)


NOTHING = Now()


@dataclass(frozen=True, slots=True)
class Measured:
    """Every service of an answer, and why there is none."""

    services: dict[Key, Now]
    where: str = ""
    fault: str = ""
    """Why nothing was measured; empty when all went well."""

    def of(self, key: Key) -> Now:
        """What is known of one service."""
        return self.services.get(key, NOTHING)


async def measure(kube: Any, reach: Reach, found: Sequence[Manifest], of: str) -> Measured:
    """Ask the store that is known about all services that ``of`` selects; never raises for the store."""
    try:
        return await ask(await store(kube, reach, found), of)
    except Unusable as error:
        return Measured({}, fault=error.sentence)


async def ask(source: Questions, of: str) -> Measured:
    """Ask a store, in as many queries as there are columns."""
    wanted = (questions.in_flight(of), questions.batch(of), questions.tokens_per_second(of))
    try:
        answers = await asyncio.gather(
            *(source.now(query) for query in (*wanted, questions.buckets(engine_metrics.TPOT, of)))
        )
    except MetricsError as error:
        return Measured({}, source.where, error.message)
    in_flight, batch, tokens = (questions.by_service(rows) for rows in answers[:3])
    tpot = questions.histograms(answers[3])
    services = {
        key: Now(
            in_flight=in_flight.get(key),
            batch=batch.get(key),
            tokens_per_second=tokens.get(key),
            tpot=tpot.get(key),
        )
        for key in in_flight.keys() | batch.keys() | tokens.keys() | tpot.keys()
    }
    return Measured(services, source.where)
