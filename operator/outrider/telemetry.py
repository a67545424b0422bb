"""The operator's own metrics and log format. No pod names in labels: a fleet must not grow the operator's series."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import time
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

SERVICE = ("namespace", "service")

SCHEDULE_CHANGES = Counter("outrider_schedule_changes", "Schedules changed by a decision.", SERVICE)
TARGET_CHANGES = Counter("outrider_target_changes", "In-flight targets of KEDA changed by a decision.", SERVICE)
HOLDS = Counter("outrider_holds", "Control passes in which the schedule was held, by reason.", ("reason",))
SPECULATIVE_TOKENS = Gauge("outrider_speculative_tokens", "K at the median batch size of the last window.", SERVICE)
ACCEPTANCE_LENGTH = Gauge("outrider_acceptance_length", "Estimated tokens a request and step at that K.", SERVICE)
REQUESTS_PER_REPLICA = Gauge("outrider_requests_per_replica", "Requests in flight that one replica may carry.", SERVICE)
DESIRED_REPLICAS = Gauge(
    "outrider_desired_replicas", "Replicas wanted for the present load, within the bounds of the resource.", SERVICE
)
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
)
_known: set[tuple[str, str]] = set()


def keep(services: set[tuple[str, str]]) -> None:
    """Drop the series of services (namespace, name) that are gone, or they would be reported for ever."""
    SERVICES.set(len(services))
    for gone in _known - services:
        for metric in _PER_SERVICE:
            with contextlib.suppress(KeyError):  # this one was never set for it
                metric.remove(*gone)
    _known.clear()
    _known.update(services)


def desire(service: tuple[str, str], replicas: int | None) -> None:
    """Report the replicas that a service should have; None ends the series.

    Autoscalers read it: a number of a minute ago would be taken for the present one, and no number makes them hold.
    """
    if replicas is not None:
        DESIRED_REPLICAS.labels(*service).set(replicas)
        return
    with contextlib.suppress(KeyError):  # it was never set
        DESIRED_REPLICAS.remove(*service)


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
