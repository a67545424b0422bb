"""What passes find of a service, as metrics for dashboards and alerts."""

from __future__ import annotations

from collections.abc import Iterable

from outrider import telemetry
from outrider.api.conditions import Condition
from outrider.api.defaults import Resolved
from outrider.core.capacity import UNKNOWN
from outrider.core.controller import Outcome
from outrider.core.observation import Observation
from outrider.core.schedule import Schedule
from outrider.core.series import Missing
from outrider.core.state import ControllerConfig
from outrider.core.target import replicas_for
from outrider.reconcile.registry import ServiceKey

TPOT, TTFT = ("tpot",), ("ttft",)


def asked(key: ServiceKey, resolved: Resolved, most: int) -> None:
    """What the resource asks for, and the most replicas that it may have now."""
    telemetry.GPUS_PER_REPLICA.tell_one(key, resolved.gpus)
    telemetry.MAX_REPLICAS.tell_one(key, None if resolved.scaler == "Off" else most)
    telemetry.OBJECTIVE_SECONDS.tell(key, {TPOT: resolved.tpot_s, TTFT: resolved.ttft_s})


def conditions(key: ServiceKey, found: Iterable[Condition]) -> None:
    """The conditions of the last objects pass."""
    telemetry.CONDITIONS.tell(key, {(one.type, one.status, one.reason): 1.0 for one in found})


def decided(key: ServiceKey, config: ControllerConfig, window: Observation | Missing, outcome: Outcome) -> None:
    """What a control pass saw and decided; what it could not see is not reported, and not reported as it last was."""
    for changes in (telemetry.SCHEDULE_CHANGES, telemetry.TARGET_CHANGES):
        changes.labels(*key)  # a counter that begins at 1 hides its first change from every rate
    telemetry.SPECULATIVE_TOKENS.labels(*key).set(outcome.num_speculative_tokens)
    telemetry.REQUESTS_PER_REPLICA.labels(*key).set(outcome.state.target)
    if outcome.acceptance_length is not None:
        telemetry.ACCEPTANCE_LENGTH.labels(*key).set(outcome.acceptance_length.value)
    telemetry.SCHEDULE.tell(key, _by_batch(outcome.state.schedule))
    able, account, load = outcome.capacity, outcome.account, outcome.in_flight
    known = able.limited_by != UNKNOWN.limited_by
    telemetry.CAPACITY.tell(key, {(able.limited_by,): able.requests_per_replica} if known else {})
    telemetry.REPLICAS_FOR_LOAD.tell_one(key, None if load is None else replicas_for(load, outcome.state.target))
    telemetry.STEP_SECONDS.tell_one(key, None if account is None else account.step_s)
    telemetry.PREDICTED_STEP_SECONDS.tell_one(key, None if account is None else account.predicted_s)
    telemetry.SPEEDUP.tell_one(key, None if account is None else account.speedup)
    telemetry.LATENCY_SECONDS.tell(key, {} if isinstance(window, Missing) else _latencies(window, config.percentile))


def _latencies(window: Observation, percentile: float) -> dict[tuple[str, ...], float | None]:
    return {TPOT: window.tpot.quantile(percentile), TTFT: window.ttft.quantile(percentile)}


def _by_batch(schedule: Schedule) -> dict[tuple[str, ...], float]:
    """K at 1, 2, 4 and so on, up to the largest batch size of the schedule."""
    largest = schedule.max_batch_size
    sizes = [1 << power for power in range(largest.bit_length()) if 1 << power <= largest]
    return {(str(size),): float(schedule.at(size)) for size in sizes}
