"""The controller's state as a document, so that a restart forgets nothing.

Versioned JSON values, bounded in size. Reading never fails: a document of another version, or one that was damaged,
gives the initial state and a sentence, because starting afresh costs a few minutes of learning and refusing to start
costs the service.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from outrider.core import acceptance_document, latency_document
from outrider.core.bursts import Bursts, Peak
from outrider.core.decision import Change
from outrider.core.first_token import FirstToken
from outrider.core.schedule import Schedule, parse_rows
from outrider.core.state import HISTORY, Bar, ControllerConfig, ControllerState, Probe, Trial, initial_state

VERSION = 1
MAX_CEILING = 64
"""Reading checks form and order; whether the K still fit the resource is the controller's question."""


def to_document(state: ControllerState) -> dict[str, Any]:
    """The state as JSON values, numbers rounded to what they are worth."""
    trial = state.trial
    return {
        "version": VERSION,
        "schedule": state.schedule.as_lists(),
        "generation": state.generation,
        "acceptance": acceptance_document.to_document(state.acceptance),
        **latency_document.to_document(state.latency),
        "bursts": _bursts(state.bursts),
        "firstToken": [round(value, 5) for value in state.first_token.sums],
        "learnedUntil": state.learned_until_s,
        "draftsSeen": state.drafts_seen_s,
        "jumped": state.jumped_s,
        "scheduleChanged": state.schedule_changed_s,
        "trial": None if trial is None else {**asdict(trial), "before": trial.before.as_lists()},
        "probe": None if state.probe is None else {"before": state.probe.before.as_lists(), "at_s": state.probe.at_s},
        "probed": state.probed_s,
        "credit": round(state.credit_s, 3),
        "bars": [asdict(bar) for bar in state.bars],
        "target": state.target,
        "targetChanged": state.target_changed_s,
        "targetFell": state.target_fell_s,
        "history": [asdict(change) for change in state.history],
    }


def from_document(document: Any, config: ControllerConfig) -> tuple[ControllerState, str | None]:
    """The remembered state, or the initial one and why nothing could be remembered."""
    fresh = initial_state(config)
    if not isinstance(document, Mapping):
        return fresh, "the memory document is not a JSON object"
    if document.get("version") != VERSION:
        return fresh, f"the memory document has version {document.get('version')!r}, not {VERSION}"
    try:
        return _read(document), None
    except (KeyError, TypeError, ValueError, OverflowError) as fault:
        return fresh, f"the memory document is damaged: {fault!r}"


def _read(document: Mapping[str, Any]) -> ControllerState:
    trial, probe = document["trial"], document.get("probe")
    return ControllerState(
        schedule=_schedule(document["schedule"]),
        generation=int(document["generation"]),
        acceptance=acceptance_document.from_document(document["acceptance"]),
        latency=latency_document.from_document(document),
        bursts=_read_bursts(document.get("bursts")),
        first_token=_first_token(document.get("firstToken")),
        learned_until_s=_optional(document["learnedUntil"]),
        drafts_seen_s=_optional(document["draftsSeen"]),
        jumped_s=_optional(document["jumped"]),
        schedule_changed_s=_optional(document["scheduleChanged"]),
        trial=None if trial is None else Trial(**{**trial, "before": _schedule(trial["before"])}),
        probe=None if probe is None else Probe(_schedule(probe["before"]), float(probe["at_s"])),
        probed_s=_optional(document.get("probed")),
        credit_s=float(document.get("credit", 0.0)),
        bars=tuple(Bar(**bar) for bar in document["bars"]),
        target=max(1, int(document["target"])),
        target_changed_s=_optional(document["targetChanged"]),
        target_fell_s=_optional(document.get("targetFell")),
        history=tuple(Change(**change) for change in document["history"])[:HISTORY],
    )


def _bursts(state: Bursts) -> list[float | None]:
    peaks = (one for peak in (state.highest, state.before) for one in (peak.load_tps, peak.in_flight))
    return [state.since_s, *(round(one, 3) for one in peaks), round(state.squares, 6), round(state.times, 4)]


def _read_bursts(values: Any) -> Bursts:
    if values is None:
        return Bursts()
    since_s, *numbers = values
    tps, in_flight, tps_before, in_flight_before, squares, times = (float(one) for one in numbers)
    peaks = (Peak(tps, in_flight), Peak(tps_before, in_flight_before))
    return Bursts(_optional(since_s), *peaks, squares, times)


def _first_token(sums: Any) -> FirstToken:
    if sums is None:
        return FirstToken()
    first, load, time, square, product = (float(value) for value in sums)
    return FirstToken((first, load, time, square, product))


def _schedule(rows: Any) -> Schedule:
    return parse_rows(rows, ceiling=MAX_CEILING)


def _optional(value: Any) -> float | None:
    return None if value is None else float(value)
