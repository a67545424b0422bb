"""The memory document: everything survives a restart, and a damaged document costs learning, never the service."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from outrider.core import latency_document, memory
from outrider.core.acceptance import AcceptanceState
from outrider.core.bursts import Bursts, Peak
from outrider.core.decision import Change
from outrider.core.drift import Drift
from outrider.core.first_token import FirstToken
from outrider.core.interference import Interference, Spread
from outrider.core.latency import LatencyState
from outrider.core.schedule import parse_text
from outrider.core.state import Bar, ControllerState, Probe, Trial, initial_state
from outrider.core.step_cells import Cell
from outrider.core.step_time_shift import Side, Watch
from outrider.core.survival import Counts
from outrider.core.trend import SlowCounts

from .builders import config


def full_state() -> ControllerState:
    """A state with something in every field."""
    return ControllerState(
        schedule=parse_text("1-24:5 25-256:1"),
        generation=17,
        acceptance=AcceptanceState(
            (800.0, 400.0),
            (600.0, 200.0),
            Drift(above=1.5, below=0.25, squares=120.5, windows=30.0),
            rejected_windows=1,
            slow=SlowCounts(Counts((9e4,), (7e4,)), 1800.0, Counts((5e4,), (3e4,)), declining=True),
        ),
        latency=LatencyState(
            {(10, 3): Cell(400.0, 4.4, 12_000.0, 612.0), (11, 1): Cell(20.0, 0.2, 900.0)},
            Interference({(10, 3): Cell(40.0, 1.2, 1_200.0, 640.0)}, 80_000.0, Spread((7.5, 1.5, 0.4, 8.0, 1.6))),
            Watch(Side(2.5, 3, 2.75, 0.21), Side(), 0.034),
        ),
        bursts=Bursts(960.0, Peak(2_400.5, 31.5), Peak(2_000.0, 28.0), 0.04, 12.5),
        first_token=FirstToken((800.0, 9_600.0, 240.0, 120_000.0, 3_000.0)),
        learned_until_s=1_000.5,
        drafts_seen_s=1_000.5,
        jumped_s=850.0,
        schedule_changed_s=900.0,
        trial=Trial(parse_text("1-256:3"), 900.0, 91.5, 0.0109, 31.0, 4_000.0, good=1),
        probe=Probe(parse_text("1-256:2"), 900.0),
        probed_s=900.0,
        credit_s=1.234,
        bars=(Bar(5, 4, 16, 2_000.0, 2),),
        target=42,
        target_changed_s=500.0,
        target_fell_s=400.0,
        history=(Change(900.0, "Schedule", "1-256:3", "1-24:5 25-256:1", "at batch 12 K 3→5"),),
    )


def test_a_state_survives_the_way_through_json() -> None:
    document = json.loads(json.dumps(memory.to_document(full_state())))
    assert memory.from_document(document, config()) == (full_state(), None)


def test_what_an_earlier_version_did_not_write_of_acceptance_starts_afresh() -> None:
    document = memory.to_document(full_state())
    document["acceptance"] = {"drafted": [800.0, 400.0], "accepted": [600.0, 200.0]}
    state, complaint = memory.from_document(document, config())
    assert complaint is None
    assert state.acceptance == AcceptanceState((800.0, 400.0), (600.0, 200.0))


def test_a_probe_under_way_is_returned_from_after_a_restart() -> None:
    """The schedule in force is the probe's: without its way back a restart would turn every look into a change."""
    document = json.loads(json.dumps(memory.to_document(full_state())))
    state, _ = memory.from_document(document, config())
    assert state.probe == Probe(parse_text("1-256:2"), 900.0)
    assert state.schedule != state.probe.before


def test_a_restart_gives_no_fresh_credit() -> None:
    spent = replace(full_state(), credit_s=0.0, probe=None)
    state, _ = memory.from_document(json.loads(json.dumps(memory.to_document(spent))), config())
    assert state.credit_s == 0.0
    assert state.probe is None


def test_a_document_from_before_probes_had_a_budget_starts_without_credit() -> None:
    document = memory.to_document(full_state())
    del document["probe"], document["probed"], document["credit"]
    state, complaint = memory.from_document(document, config())
    assert complaint is None
    assert (state.probe, state.probed_s, state.credit_s) == (None, None, 0.0)


def test_a_new_service_survives_it_too() -> None:
    fresh = initial_state(config())
    assert memory.from_document(memory.to_document(fresh), config()) == (fresh, None)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        pytest.param({"version": 99}, "has version 99, not 1", id="a document of another version"),
        pytest.param({"schedule": [[2, 4, 1]]}, "damaged", id="a schedule that no engine could run"),
        pytest.param({"acceptance": None}, "damaged", id="a field of another type"),
        pytest.param({"bars": [{"unknown": 1}]}, "damaged", id="an unknown field inside"),
        pytest.param({"target": "many"}, "damaged", id="a word for a number"),
        pytest.param({"probe": {"at_s": 1.0}}, "damaged", id="a probe without a way back"),
        pytest.param({"credit": None}, "damaged", id="a credit that is no number"),
    ],
)
def test_a_damaged_document_starts_afresh_and_says_so(change: dict[str, Any], complaint: str) -> None:
    state, fault = memory.from_document({**memory.to_document(full_state()), **change}, config())
    assert state == initial_state(config())
    assert fault is not None
    assert complaint in fault


@pytest.mark.parametrize("document", [None, [], "text", 7])
def test_something_that_is_no_object_starts_afresh(document: Any) -> None:
    state, fault = memory.from_document(document, config())
    assert state == initial_state(config())
    assert fault is not None


def test_a_missing_field_starts_afresh() -> None:
    document = memory.to_document(full_state())
    del document["generation"]
    assert memory.from_document(document, config())[1] is not None


def test_the_document_stays_small_however_much_was_measured() -> None:
    cells = {(1 << bucket, k): Cell(1e6, 1e4, 1e8) for bucket in range(20) for k in range(16)}
    document = memory.to_document(replace(full_state(), latency=LatencyState(cells)))
    assert len(document["stepTimes"]) == latency_document.MAX_CELLS
    assert len(json.dumps(document)) < 8_192
