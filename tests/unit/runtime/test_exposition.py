"""What Prometheus reads of an engine, under the names that the operator looks for."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from outrider.core import engine_metrics as names
from outrider_runtime.exposition import Exposition
from outrider_runtime.progress import Progress
from tests.unit.runtime.builders import Clock, Scheduler, document, half

NOW_S = 1000.0
SNAPSHOT: dict[str, Any] = {
    "controllable": True,
    "generation": 7,
    "initial": False,
    "schedule": "1-24:5 25-256:3",
    "lease_s": 40.0,
    "cells": [[4, 5, False, 10, 0.2, 0.005, 37], [4, 5, True, 2, 0.5, 0.13, 7]],
    "longest_step_s": 0.3,
    "stalls": 2,
    "stall_s": 5.5,
    "since_token_s": 0.5,
}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scraped:
    """An API server's metrics."""

    def __init__(self, snapshot: dict[str, Any] | None) -> None:
        self.progress = Progress(max_num_seqs=4, max_waiting=0, no_progress_s=10.0, heard_s=NOW_S)
        self.clock = Clock(NOW_S)
        self.exposition = Exposition(self.progress, self.clock)
        self.exposition.snapshot = snapshot
        self._registry = CollectorRegistry()
        self._registry.register(self.exposition)

    def samples(self) -> Samples:
        """All, as Prometheus would read them."""
        text = generate_latest(self._registry).decode()
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def value(self, name: tuple[str, ...], **labels: str) -> float:
        return self.samples()[name[0], frozenset({"engine": "0", **labels}.items())]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (names.SCHEDULE_GENERATION, 7),
        (names.SCHEDULE_INITIAL, 0),
        (names.SCHEDULE_LEASE_SECONDS, 40),
        (names.CONTROLLABLE, 1),
        (names.LONGEST_STEP_SECONDS, 0.3),
        (names.STALLS, 2),
        (names.STALL_SECONDS, 5.5),
        (names.SECONDS_SINCE_TOKEN, 0.5),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_a_snapshot_is_told_under_the_names_that_the_operator_reads(name: tuple[str, ...], value: float) -> None:
    assert Scraped(SNAPSHOT).value(name) == value


@pytest.mark.parametrize(
    ("name", "decode", "mixed"),
    [
        (names.STEPS, 10, 2),
        (names.STEP_SECONDS, 0.2, 0.5),
        (names.STEP_SECONDS_SQUARED, 0.005, 0.13),
        (names.STEP_REQUESTS, 37, 7),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_each_cell_has_its_batch_its_k_and_its_kind(name: tuple[str, ...], decode: float, mixed: float) -> None:
    scraped = Scraped(SNAPSHOT)
    assert scraped.value(name, batch="4", speculative_tokens="5", kind="decode") == decode
    assert scraped.value(name, batch="4", speculative_tokens="5", kind="mixed") == mixed


def test_the_schedule_in_force_is_told_in_words() -> None:
    labels = frozenset({("engine", "0"), ("schedule", "1-24:5 25-256:3")})
    assert Scraped(SNAPSHOT).samples()["outrider_engine_schedule_info", labels] == 1


def test_without_a_snapshot_refusals_are_known_and_nothing_can_be_told() -> None:
    scraped = Scraped(None)
    scraped.progress.rejected["queue"] = 3
    assert scraped.samples() == {
        ("outrider_engine_controllable", frozenset({("engine", "0")})): 0,
        ("outrider_engine_rejected_total", frozenset({("engine", "0"), ("reason", "no_progress")})): 0,
        ("outrider_engine_rejected_total", frozenset({("engine", "0"), ("reason", "queue")})): 3,
    }


def test_a_hanging_engine_is_seen_though_its_step_has_not_ended() -> None:
    """Its last snapshot is old, and it answers no question."""
    scraped = Scraped(SNAPSHOT)
    scraped.progress.enter(NOW_S)
    scraped.clock.now_s += 4.0
    assert scraped.value(names.SECONDS_SINCE_TOKEN) == 4.0
    assert scraped.value(names.STALLS) == 3
    assert scraped.value(names.STALL_SECONDS) == 9.5


def test_an_engine_that_has_been_silent_for_a_moment_does_not_hang() -> None:
    scraped = Scraped(SNAPSHOT)
    scraped.progress.enter(NOW_S)
    scraped.clock.now_s += 1.0
    assert (scraped.value(names.STALLS), scraped.value(names.STALL_SECONDS)) == (2, 5.5)


def test_an_idle_engine_does_not_hang() -> None:
    scraped = Scraped(SNAPSHOT)
    scraped.clock.now_s += 3600.0
    assert scraped.value(names.STALLS) == 2


def test_what_an_engine_core_says_of_itself_is_what_is_told() -> None:
    clock = Clock()
    engine = half(Scheduler(), clock)
    engine.put(document(3, k=1, lease_s=60))
    for name in ("a", "b"):
        engine.meter.scheduled(name, clock.now_s, requests=3, k=1, mixed=False)
        clock.now_s += 0.02
        engine.meter.ended(name, clock.now_s, tokens=True, work_left=True)
    scraped = Scraped(engine.snapshot())
    assert scraped.value(names.SCHEDULE_GENERATION) == 3
    assert scraped.value(names.STEPS, batch="4", speculative_tokens="1", kind="decode") == 1


def test_the_counter_of_stalls_never_goes_back() -> None:
    """Prometheus takes a smaller value for a restart and adds all of it once more. A prompt that takes the front end
    over a second to prepare is such a silence: the engine has no step to count when it is over."""
    scraped = Scraped(SNAPSHOT)
    scraped.progress.enter(NOW_S)
    scraped.clock.now_s += 1.5
    during = [scraped.value(name) for name in (names.STALLS, names.STALL_SECONDS)]
    assert during == [3, 7.0]
    scraped.progress.heard(scraped.clock.now_s)
    assert [scraped.value(name) for name in (names.STALLS, names.STALL_SECONDS)] == during
