"""The log format, and the rules for our own metrics."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from typing import Any

import pytest
from prometheus_client import REGISTRY

from outrider import telemetry
from outrider.manifests import queries
from outrider.telemetry import JsonLines

BOUNDED = {
    "namespace", "service", "reason", "le", "type", "status", "objective", "limited_by", "batch", "stage", "track",
    "outcome",
}  # fmt: skip
"""Labels whose values are few: services, words of ours, and the powers of two up to the largest batch size."""


def record(message: str = "hello", level: int = logging.INFO, **extra: Any) -> logging.LogRecord:
    logger = logging.getLogger("outrider.reconcile.control")
    made = logger.makeRecord(logger.name, level, __file__, 1, message, (), None, extra=extra)
    made.created, made.msecs = 1_800_000_000.25, 250.0
    return made


def line(one: logging.LogRecord) -> dict[str, Any]:
    """A record as it is written, read back."""
    formatter = JsonLines()
    formatter.converter = time.gmtime
    text = formatter.format(one)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_record_is_one_line_of_json() -> None:
    assert line(record()) == {
        "time": "2027-01-15T08:00:00.250Z",
        "level": "info",
        "logger": "outrider.reconcile.control",
        "message": "hello",
    }


def test_extra_keys_stand_beside_the_message() -> None:
    found = line(record(namespace="ml", service="chat", reason="Dwell", speculativeTokens=3))
    assert {name: found[name] for name in ("namespace", "service", "reason", "speculativeTokens")} == {
        "namespace": "ml",
        "service": "chat",
        "reason": "Dwell",
        "speculativeTokens": 3,
    }


def test_what_is_no_plain_value_is_left_out() -> None:
    """Kopf hangs whole objects on its records, annotations and all."""
    found = line(record(k8s_ref={"name": "chat"}, settings=object(), service="chat"))
    assert found.keys() == {"time", "level", "logger", "message", "service"}


@pytest.mark.parametrize("text", ["K 3→5", 'a "quoted" word', "two\nlines", "\x00"])
def test_any_text_survives(text: str) -> None:
    assert line(record(text))["message"] == text


def test_arrows_are_written_as_arrows() -> None:
    assert "K 3→5" in JsonLines().format(record("K 3→5"))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_does_not_know_break_no_line(value: float) -> None:
    text = JsonLines().format(record(seconds=value))
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_a_trace_stays_on_the_line() -> None:
    one = record("internal error", logging.ERROR)
    try:
        raise ZeroDivisionError("by zero")
    except ZeroDivisionError:
        one.exc_info = sys.exc_info()
    found = line(one)
    assert found["level"] == "error"
    assert found["exception"].startswith("Traceback")
    assert found["exception"].endswith("ZeroDivisionError: by zero")


def test_our_own_series_do_not_grow_with_pods() -> None:
    for family in REGISTRY.collect():
        if family.name.startswith("outrider_"):
            for sample in family.samples:
                assert sample.labels.keys() <= BOUNDED, sample.name


def test_our_own_names_follow_prometheus_conventions() -> None:
    families = {family.name: family for family in REGISTRY.collect() if family.name.startswith("outrider_")}
    assert families
    for name, family in families.items():
        assert family.documentation.endswith("."), name
        assert not name.endswith(("_milliseconds", "_percent")), name
        if family.type == "counter":
            assert all(sample.name.endswith(("_total", "_created")) for sample in family.samples), name


def test_series_of_services_that_are_gone_go_too() -> None:
    telemetry.keep({("ml", "stays"), ("ml", "goes")})
    for name in ("stays", "goes"):
        telemetry.SPECULATIVE_TOKENS.labels("ml", name).set(3)
    telemetry.keep({("ml", "stays")})
    values = {
        name: REGISTRY.get_sample_value("outrider_speculative_tokens", {"namespace": "ml", "service": name})
        for name in ("stays", "goes")
    }
    assert values == {"stays": 3.0, "goes": None}
    assert REGISTRY.get_sample_value("outrider_services") == 1.0
    telemetry.keep(set())


def test_the_autoscaler_asks_for_the_replicas_under_the_name_that_they_are_exported_by() -> None:
    labels = {"namespace": "ml", "service": "desired"}
    telemetry.desire(("ml", "desired"), 4)
    assert REGISTRY.get_sample_value(queries.DESIRED_REPLICAS, labels) == 4.0
    telemetry.desire(("ml", "desired"), None)
    assert REGISTRY.get_sample_value(queries.DESIRED_REPLICAS, labels) is None
    telemetry.desire(("ml", "desired"), None)  # twice is no fault


def test_requests_that_nobody_has_held_for_minutes_are_above_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {"namespace": "ml", "service": "held"}
    now_s = 1000.0
    monkeypatch.setattr(telemetry.time, "monotonic", lambda: now_s)
    telemetry.hold(("ml", "held"), 65)
    now_s += telemetry.HELD_S - 1.0
    assert REGISTRY.get_sample_value(queries.HELD_REQUESTS, labels) == 65.0
    now_s += 1.0
    assert math.isnan(REGISTRY.get_sample_value(queries.HELD_REQUESTS, labels) or 0.0)
    telemetry.hold(("ml", "held"), 33)
    assert REGISTRY.get_sample_value(queries.HELD_REQUESTS, labels) == 33.0
    telemetry.hold(("ml", "held"), None)
    assert REGISTRY.get_sample_value(queries.HELD_REQUESTS, labels) is None


class TestFindings:
    LOAD = ("ml", "findings")

    def value(self, reason: str) -> float | None:
        return REGISTRY.get_sample_value(
            "outrider_condition",
            {"namespace": "ml", "service": "findings", "type": "Ready", "status": "True", "reason": reason},
        )

    def test_what_is_told_anew_takes_the_place_of_what_was_told(self) -> None:
        telemetry.CONDITIONS.tell(self.LOAD, {("Ready", "True", "One"): 1.0, ("Ready", "True", "Two"): 1.0})
        telemetry.CONDITIONS.tell(self.LOAD, {("Ready", "True", "Two"): 1.0, ("Ready", "True", "Three"): 1.0})
        assert [self.value(reason) for reason in ("One", "Two", "Three")] == [None, 1.0, 1.0]
        telemetry.CONDITIONS.tell(self.LOAD, {})
        telemetry.CONDITIONS.tell(self.LOAD, {})
        assert self.value("Two") is None

    def test_none_is_no_value(self) -> None:
        telemetry.SPEEDUP.tell_one(self.LOAD, 1.4)
        labels = {"namespace": "ml", "service": "findings"}
        assert REGISTRY.get_sample_value("outrider_speculation_speedup_ratio", labels) == 1.4
        telemetry.SPEEDUP.tell_one(self.LOAD, None)
        assert REGISTRY.get_sample_value("outrider_speculation_speedup_ratio", labels) is None

    def test_they_go_with_their_service(self) -> None:
        telemetry.keep({self.LOAD})
        telemetry.CONDITIONS.tell(self.LOAD, {("Ready", "True", "One"): 1.0})
        telemetry.GPUS_PER_REPLICA.tell_one(self.LOAD, 2)
        telemetry.keep(set())
        assert self.value("One") is None
        labels = {"namespace": "ml", "service": "findings"}
        assert REGISTRY.get_sample_value("outrider_gpus_per_replica", labels) is None

    def test_what_nothing_is_decided_for_keeps_what_its_resource_asks(self) -> None:
        labels = {"namespace": "ml", "service": "findings"}
        telemetry.GPUS_PER_REPLICA.tell_one(self.LOAD, 2)
        telemetry.STEP_SECONDS.tell_one(self.LOAD, 0.01)
        telemetry.silence(self.LOAD)
        assert REGISTRY.get_sample_value("outrider_step_seconds", labels) is None
        assert REGISTRY.get_sample_value("outrider_gpus_per_replica", labels) == 2
        telemetry.GPUS_PER_REPLICA.tell_one(self.LOAD, None)
