"""What passes find of a service, as metrics for dashboards and alerts."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import get_args

from outrider import telemetry
from outrider.api.conditions import Condition
from outrider.api.defaults import Resolved
from outrider.core.capacity import UNKNOWN
from outrider.core.controller import Outcome
from outrider.core.observation import Observation
from outrider.core.revisions.analysis import Judgement
from outrider.core.revisions.evidence import Answers, Boot, Evidence, answers, total
from outrider.core.revisions.trial import Outcome as Ending
from outrider.core.revisions.trial import Past, Trial
from outrider.core.schedule import Schedule
from outrider.core.series import Missing
from outrider.core.state import ControllerConfig
from outrider.core.target import replicas_for
from outrider.manifests.meta import CANDIDATE, STABLE
from outrider.reconcile.registry import Service, ServiceKey

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


def tried(service: Service, start_limit_s: float) -> None:
    """How far the trial of a candidate is; no trial, no series. ``start_limit_s`` is what a start may take, seconds."""
    key, trial = service.key, service.trial
    telemetry.TRIAL_STAGE.tell(key, {} if trial is None else {(trial.stage,): 1.0})
    telemetry.TRIAL_STAGE_SINCE.tell_one(key, None if trial is None else trial.stage_since_s)
    going_on, replicas = None if service.frozen else trial, max(1, len(service.stable_pods))
    check_limit_s = None if service.resolved is None else service.resolved.evaluation_max_s
    limit_s = None if going_on is None else _limit_s(going_on, start_limit_s, check_limit_s, replicas)
    telemetry.TRIAL_STAGE_LIMIT.tell_one(key, limit_s)
    if trial is not None:
        telemetry.TRIALS_ENDED.begin(key, get_args(Ending))
    if trial is None or (service.record is not None and service.record.revision != trial.revision):
        for findings in telemetry.OF_COMPARISONS:  # they are another candidate's
            findings.tell(key, {})


def _limit_s(trial: Trial, start_limit_s: float, check_limit_s: float | None, replicas: int) -> float | None:
    """After which a stage is over if all goes as it should; None where it waits for somebody."""
    match trial.stage:
        case "Starting":
            return start_limit_s
        case "Checking":
            return check_limit_s
        case "Running":
            return trial.plan.max_time_s
        case "Promoting":
            return start_limit_s * replicas
    return None


def ended(key: ServiceKey, before: Iterable[Past], now: Iterable[Past]) -> None:
    """Count trials that are history since the last look."""
    known = tuple(before)
    for past in now:
        if past not in known:
            telemetry.TRIALS_ENDED.add(key, past.outcome)


def compared(key: ServiceKey, evidence: Evidence, found: Judgement) -> None:
    """What a control pass found of a candidate beside the stable engines."""
    figures = found.figures
    bounded = figures if figures is not None and isfinite(figures.high) else None  # or nothing bounds either side
    telemetry.TRIAL_GAIN.tell_one(key, None if figures is None else figures.gain)
    telemetry.TRIAL_GAIN_LOW.tell_one(key, None if bounded is None else bounded.low)
    telemetry.TRIAL_GAIN_HIGH.tell_one(key, None if bounded is None else bounded.high)
    within, failed = dict[tuple[str, ...], float | None](), dict[tuple[str, ...], float | None]()
    for track, all_ in ((STABLE, _answers(evidence.stable)), (CANDIDATE, _answers(evidence.candidate))):
        within[track, *TPOT] = _share(all_.tpot_within, all_.tpot_of)
        within[track, *TTFT] = _share(all_.ttft_within, all_.ttft_of)
        failed[track,] = _share(all_.errors, all_.ended)
    telemetry.TRIAL_WITHIN.tell(key, within)
    telemetry.TRIAL_FAILED.tell(key, failed)


def _answers(boots: Iterable[Boot]) -> Answers:
    return total(answers(boots))


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0.0 else None


def _latencies(window: Observation, percentile: float) -> dict[tuple[str, ...], float | None]:
    return {TPOT: window.tpot.quantile(percentile), TTFT: window.ttft.quantile(percentile)}


def _by_batch(schedule: Schedule) -> dict[tuple[str, ...], float]:
    """K at 1, 2, 4 and so on, up to the largest batch size of the schedule."""
    largest = schedule.max_batch_size
    sizes = [1 << power for power in range(largest.bit_length()) if 1 << power <= largest]
    return {(str(size),): float(schedule.at(size)) for size in sizes}
