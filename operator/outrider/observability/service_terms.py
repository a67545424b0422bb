"""What several panels of a service ask."""

from __future__ import annotations

from outrider.core import engine_metrics as names
from outrider.observability.panels import Query
from outrider.observability.promql import STABLE, known, own_of_service, rate, ratio
from outrider.observability.promql import of_service as of

TOKENS = f"sum({rate(of(names.GENERATION_TOKENS))})"
DRAFTED = f"sum({rate(of(names.NUM_DRAFT_TOKENS, **STABLE))})"
ACCEPTED = f"sum({rate(of(names.NUM_ACCEPTED_TOKENS, **STABLE))})"
DRAFTS = f"sum({rate(of(names.NUM_DRAFTS, **STABLE))})"
RUNNING = f"sum({of(names.NUM_REQUESTS_RUNNING)})"
WAITING = f"sum({of(names.NUM_REQUESTS_WAITING)})"
REPLICAS = f"count(count by (pod) ({of(names.NUM_REQUESTS_RUNNING)}))"
STEPS_RUN, STEP_SECONDS = rate(of(names.STEPS, **STABLE)), rate(of(names.STEP_SECONDS, **STABLE))
SPEEDUP = own_of_service("outrider_speculation_speedup_ratio")
GPUS = f"{REPLICAS} * {own_of_service('outrider_gpus_per_replica')}"
COST = ratio(f"1e6 * $gpu_hour / 3600 * {GPUS}", TOKENS)


def quantile(share: float, histogram: tuple[str, ...]) -> str:
    """Of all requests of the service together."""
    return known(f"histogram_quantile({share:g}, sum by (le) ({rate(of(histogram, '_bucket'))}))")


def quantiles(histogram: tuple[str, ...]) -> tuple[Query, ...]:
    """The usual three."""
    return tuple(Query(quantile(share, histogram), f"P{100 * share:g}") for share in (0.5, 0.95, 0.99))
