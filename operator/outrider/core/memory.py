"""The controller's state as a document, so that a restart forgets nothing.

Versioned JSON values, bounded in size. Reading never fails: a document of another version, or one that was damaged,
gives the initial state and a sentence, because starting afresh costs a few minutes of learning and refusing to start
costs the service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

from outrider.core import acceptance_document, latency_document
from outrider.core.bursts import Bursts, Peak
from outrider.core.decision import Change
from outrider.core.first_token import FirstToken
from outrider.core.schedule import Schedule, parse_rows
from outrider.core.state import HISTORY, Bar, ControllerConfig, ControllerState, Probe, Trial, initial_state

Part = TypeVar("Part")

VERSION = 1
MAX_NUMBER = 2**53
"""JSON holds no larger one exactly; neither do counts or times come near."""
MAX_TARGET = 10**9
MAX_TEXT = 4096
MAX_TIME_S = 2.5e11
"""In the year 9892; dates end soon after."""
KINDS = ("Schedule", "Target")
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
        _bounded(document)
        return _read(document), None
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, ZeroDivisionError) as fault:
        return fresh, f"the memory document is damaged: {repr(fault)[:200]}"


def _bounded(document: Mapping[str, Any]) -> None:
    """See that it holds numbers and texts that a state could have: others may write it too."""
    waiting: list[Any] = [value for name, value in document.items() if name != "history"]  # alone that has texts
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str):
            raise TypeError("a text where a number belongs")
        elif isinstance(item, int | float) and not -MAX_NUMBER <= item <= MAX_NUMBER:
            raise ValueError("a number that no state has")


def _typed(kind: Callable[..., Part], values: Mapping[str, Any]) -> Part:
    """A part of the state, of fields with the types that it says."""
    types = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    for name, value in values.items():
        fits = {"int": (int,), "float": (int, float), "str": (str,)}.get(str(types.get(name)), (object,))
        if isinstance(value, bool) or not isinstance(value, fits):
            raise TypeError(f"{name} is a {type(value).__name__}")
    return kind(**values)


def _read(document: Mapping[str, Any]) -> ControllerState:
    trial, probe = document["trial"], document.get("probe")
    return ControllerState(
        schedule=_schedule(document["schedule"]),
        generation=_count(document["generation"], MAX_NUMBER),
        acceptance=acceptance_document.from_document(document["acceptance"]),
        latency=latency_document.from_document(document),
        bursts=_read_bursts(document.get("bursts")),
        first_token=_first_token(document.get("firstToken")),
        learned_until_s=_time(document["learnedUntil"]),
        drafts_seen_s=_time(document["draftsSeen"]),
        jumped_s=_time(document["jumped"]),
        schedule_changed_s=_time(document["scheduleChanged"]),
        trial=None if trial is None else _typed(Trial, {**trial, "before": _schedule(trial["before"])}),
        probe=None if probe is None else Probe(_schedule(probe["before"]), float(probe["at_s"])),
        probed_s=_time(document.get("probed")),
        credit_s=float(document.get("credit", 0.0)),
        bars=tuple(_typed(Bar, bar) for bar in document["bars"]),
        target=max(1, _count(document["target"], MAX_TARGET)),
        target_changed_s=_time(document["targetChanged"]),
        target_fell_s=_time(document.get("targetFell")),
        history=tuple(_change(change) for change in document["history"])[:HISTORY],
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
    return Bursts(_time(since_s), *peaks, squares, times)


def _first_token(sums: Any) -> FirstToken:
    if sums is None:
        return FirstToken()
    first, load, time, square, product = (float(value) for value in sums)
    return FirstToken((first, load, time, square, product))


def _schedule(rows: Any) -> Schedule:
    return parse_rows(rows, ceiling=MAX_CEILING)


def _change(values: Mapping[str, Any]) -> Change:
    change = _typed(Change, values)
    if change.kind not in KINDS or max(map(len, (change.before, change.after, change.reason))) > MAX_TEXT:
        raise ValueError("a change of no kind, or of too many words")
    _time(change.at_s)
    return change


def _count(value: Any, most: int) -> int:
    count = int(value)
    if not 0 <= count <= most:
        raise ValueError("a count that no state has")
    return count


def _time(value: Any) -> float | None:
    """Unix time, seconds."""
    time_s = None if value is None else float(value)
    if time_s is not None and not 0 <= time_s <= MAX_TIME_S:
        raise ValueError("a time that nobody lives to see")
    return time_s
