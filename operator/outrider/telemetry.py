"""The operator's own metrics and log format. No pod names in labels: a fleet must not grow the operator's series."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

SERVICE = ("namespace", "service")
HELD_S = 180.0
"""A number of held requests is good for so long: longer than the longest control period, and soon over where passes
have stopped, since what it holds are GPUs."""


class Findings(Collector):
    """A gauge of each service whose series come and go: what is told anew takes the place of all that was told of the
    service before, so that nothing which no longer holds is reported.

    A number is no more than that until somebody asks: the library's own gauges hold a lock and some 800 bytes for each
    of the forty series of a service.
    """

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self._name, self._text, self._labelnames = name, text, (*SERVICE, *labels)
        self._told: dict[tuple[str, str], dict[tuple[str, ...], float]] = {}
        REGISTRY.register(self)

    def tell(self, service: tuple[str, str], values: Mapping[tuple[str, ...], float | None]) -> None:
        """Report values by their labels in the order of the gauge's; None is no value."""
        now = {labels: value for labels, value in values.items() if value is not None}
        if now:
            self._told[service] = now
        else:
            self._told.pop(service, None)

    def tell_one(self, service: tuple[str, str], value: float | None) -> None:
        """Report the only value of a gauge without further labels."""
        self.tell(service, {(): value})

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The gauge without its series."""
        yield GaugeMetricFamily(self._name, self._text, labels=self._labelnames)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All of it; called in the thread that answers Prometheus."""
        (family,) = self.describe()
        for service, values in list(self._told.items()):  # a service's own are never changed, only replaced
            for labels, value in values.items():
                family.add_metric((*service, *labels), value)
        yield family


class Tallies:
    """A counter of each service by a further label, whose series go with their service."""

    def __init__(self, name: str, text: str, label: str) -> None:
        self.metric = self._counter = Counter(name, text, (*SERVICE, label))
        self._told: dict[tuple[str, str], set[str]] = {}

    def begin(self, service: tuple[str, str], values: Iterable[str]) -> None:
        """Report 0 for each value of the label that was not counted yet: a counter that begins at 1 hides its first
        change from every rate."""
        for value in values:
            self._counter.labels(*service, value)
            self._told.setdefault(service, set()).add(value)

    def add(self, service: tuple[str, str], value: str) -> None:
        """One more."""
        self.begin(service, (value,))
        self._counter.labels(*service, value).inc()

    def forget(self, service: tuple[str, str]) -> None:
        """End its series."""
        for value in self._told.pop(service, ()):
            self._counter.remove(*service, value)


SCHEDULE_CHANGES = Counter("outrider_schedule_changes", "Schedules changed by a decision.", SERVICE)
TARGET_CHANGES = Counter("outrider_target_changes", "In-flight targets of KEDA changed by a decision.", SERVICE)
HOLDS = Counter("outrider_holds", "Control passes in which the schedule was held, by reason.", ("reason",))
SPECULATIVE_TOKENS = Gauge("outrider_speculative_tokens", "K at the median batch size of the last window.", SERVICE)
ACCEPTANCE_LENGTH = Gauge("outrider_acceptance_length", "Estimated tokens a request and step at that K.", SERVICE)
REQUESTS_PER_REPLICA = Gauge("outrider_requests_per_replica", "Requests in flight that one replica may carry.", SERVICE)
DESIRED_REPLICAS = Gauge(
    "outrider_desired_replicas", "Replicas wanted for the present load, within the bounds of the resource.", SERVICE
)
HELD_REQUESTS = Gauge(
    "outrider_held_requests",
    "Requests in flight that KEDA is to see at the least, so that no replica goes that would have to come back.",
    SERVICE,
)
REPLICAS_FOR_LOAD = Findings(
    "outrider_replicas_for_load", "Replicas that the present load needs, without the bounds of the resource."
)
MAX_REPLICAS = Findings("outrider_max_replicas", "Most replicas that the resource allows an autoscaler.")
GPUS_PER_REPLICA = Findings("outrider_gpus_per_replica", "GPUs that one replica holds.")
CAPACITY = Findings(
    "outrider_capacity_requests",
    "Requests in flight that one replica can carry within its objectives, by what limits it.",
    "limited_by",
)
SCHEDULE = Findings(
    "outrider_schedule_speculative_tokens", "K of the schedule in force at batch sizes of powers of two.", "batch"
)
STEP_SECONDS = Findings("outrider_step_seconds", "Mean time of a decode-only step since the last control pass.")
PREDICTED_STEP_SECONDS = Findings(
    "outrider_predicted_step_seconds", "The same as predicted for these batch sizes and K before they were run."
)
SPEEDUP = Findings(
    "outrider_speculation_speedup_ratio",
    "Token goodput over the estimate for the same engine without its drafter at the same batch sizes.",
)
OBJECTIVE_SECONDS = Findings("outrider_objective_seconds", "What the resource allows its percentile.", "objective")
LATENCY_SECONDS = Findings(
    "outrider_latency_seconds", "The last window's time at the percentile of the resource.", "objective"
)
TRIAL_STAGE = Findings("outrider_trial_stage", "1 for the stage that the trial of a candidate is in.", "stage")
TRIAL_STAGE_SINCE = Findings(
    "outrider_trial_stage_timestamp_seconds", "Since when the trial has been in that stage, Unix time."
)
TRIAL_STAGE_LIMIT = Findings(
    "outrider_trial_stage_limit_seconds", "What that stage may take; none where it waits for a GPU or for approval."
)
TRIAL_GAIN = Findings(
    "outrider_trial_gain_ratio",
    "Token goodput of the candidate at like load over that of the stable engines, less 1.",
)
TRIAL_GAIN_LOW = Findings("outrider_trial_gain_low_ratio", "Lower bound of that gain.")
TRIAL_GAIN_HIGH = Findings("outrider_trial_gain_high_ratio", "Upper bound of that gain.")
TRIAL_WITHIN = Findings(
    "outrider_trial_within_objective_ratio",
    "Share of the requests within an objective since the trial began, by track.",
    "track",
    "objective",
)
TRIAL_FAILED = Findings(
    "outrider_trial_failed_ratio", "Share of the requests that failed since the trial began, by track.", "track"
)
TRIALS_ENDED = Tallies("outrider_trials_ended", "Trials of candidates that are over, by how they ended.", "outcome")
CONDITIONS = Findings("outrider_condition", "1 for each condition as it stands.", "type", "status", "reason")
LEADER = Gauge("outrider_leader", "1 for the operator that is active, 0 for one that waits for it to end.")
SERVICES = Gauge("outrider_services", "Services under control.")
CONTROL_PASS_SECONDS = Histogram("outrider_control_pass_seconds", "Duration of a control pass over the whole fleet.")
LAST_CONTROL_PASS = Gauge(
    "outrider_last_control_pass_timestamp_seconds", "When the last control pass ended, Unix time."
)
DELIVERY_SECONDS = Histogram(
    "outrider_delivery_seconds",
    "From the call to an engine's acknowledgement of a schedule.",
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0),
)
DELIVERY_FAILURES = Counter(
    "outrider_delivery_failures", "Schedules that an engine did not take, by reason.", ("reason",)
)
RECONCILE_SECONDS = Histogram("outrider_reconcile_seconds", "Duration of one service's objects pass.")
RECONCILE_FAILURES = Counter("outrider_reconcile_failures", "Objects passes that failed, by reason.", ("reason",))

_PER_SERVICE = (
    SCHEDULE_CHANGES,
    TARGET_CHANGES,
    SPECULATIVE_TOKENS,
    ACCEPTANCE_LENGTH,
    REQUESTS_PER_REPLICA,
    DESIRED_REPLICAS,
    HELD_REQUESTS,
)
_OF_PASSES = (
    REPLICAS_FOR_LOAD,
    CAPACITY,
    SCHEDULE,
    STEP_SECONDS,
    PREDICTED_STEP_SECONDS,
    SPEEDUP,
    LATENCY_SECONDS,
)
"""What control passes find."""
OF_COMPARISONS = (TRIAL_GAIN, TRIAL_GAIN_LOW, TRIAL_GAIN_HIGH, TRIAL_WITHIN, TRIAL_FAILED)
"""What is found of a candidate beside the stable engines."""
_OF_TRIALS = (TRIAL_STAGE, TRIAL_STAGE_SINCE, TRIAL_STAGE_LIMIT, *OF_COMPARISONS)
_FINDINGS = (*_OF_PASSES, *_OF_TRIALS, MAX_REPLICAS, GPUS_PER_REPLICA, OBJECTIVE_SECONDS, CONDITIONS)
_known: set[tuple[str, str]] = set()
_held: dict[tuple[str, str], int] = {}
"""What was told last as `HELD_REQUESTS`."""


def keep(services: set[tuple[str, str]]) -> None:
    """Drop the series of services (namespace, name) that are gone, or they would be reported for ever."""
    SERVICES.set(len(services))
    for gone in _known - services:
        for metric in _PER_SERVICE:
            with contextlib.suppress(KeyError):  # this one was never set for it
                metric.remove(*gone)
        TRIALS_ENDED.forget(gone)
        for findings in _FINDINGS:
            findings.tell(gone, {})
        _held.pop(gone, None)
    _known.clear()
    _known.update(services)


def silence(service: tuple[str, str]) -> None:
    """End what control passes found of a service that nothing is decided for any more."""
    desire(service, None)
    hold(service, None)
    for findings in _OF_PASSES:
        findings.tell(service, {})


def desire(service: tuple[str, str], replicas: int | None) -> None:
    """Report the replicas that a service should have; None ends the series.

    Autoscalers read it: a number of a minute ago would be taken for the present one, and no number makes them hold.
    """
    if replicas is not None:
        DESIRED_REPLICAS.labels(*service).set(replicas)
        return
    with contextlib.suppress(KeyError):  # it was never set
        DESIRED_REPLICAS.remove(*service)


def hold(service: tuple[str, str], requests: int | None) -> None:
    """Report the requests that a service is to be seen with at the least; None ends the series.

    It turns into NaN, which is above no number, when nobody has told it anew for `HELD_S`.
    """
    if requests is not None:
        _held[service] = requests
        HELD_REQUESTS.labels(*service).set_function(partial(_while_fresh, requests, time.monotonic()))
        return
    _held.pop(service, None)
    with contextlib.suppress(KeyError):  # it was never set
        HELD_REQUESTS.remove(*service)


def tell_again(service: tuple[str, str]) -> None:
    """The number of held requests that was told last holds from now on."""
    if service in _held:
        hold(service, _held[service])


def _while_fresh(value: float, told_s: float) -> float:
    return value if time.monotonic() - told_s < HELD_S else math.nan


_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """One JSON object a line; the keys of ``extra`` stand beside time, level and message."""

    def format(self, record: logging.LogRecord) -> str:
        """Render a record."""
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD and _plain(value)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _plain(value: object) -> bool:
    return isinstance(value, str | int | bool) or (
        isinstance(value, float) and math.isfinite(value)
    )  # JSON knows no NaN


def configure_logging(level: str) -> None:
    """Send everything to standard error as JSON lines in UTC; libraries from warnings upwards."""
    formatter = JsonLines()
    formatter.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("outrider").setLevel(level)
    logging.getLogger("kopf").setLevel("WARNING")
