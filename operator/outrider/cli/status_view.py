"""What ``outrider status`` says: as a document and for people.

The document has the shape

    {"version": 1, "ready": …, "services": [{"namespace", "name", "ready", "state", "current", "conditions", "tuning",
        "capacity", "replicas", "objectives": {"tpotMilliseconds", "ttftMilliseconds", "percentile"}, "revisions",
        "history"}]}

where conditions, tuning, capacity, replicas, revisions and history have the form of the resource's status. Fields may
be added; none changes its meaning within a version.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console, JustifyMethod
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from outrider.api.status import CandidateStatus, RevisionsStatus
from outrider.cli.seen import Seen, Weight, ago
from outrider.core.schedule import InvalidSchedule, parse_text
from outrider.core.words import count

VERSION = 1
STYLES: dict[Weight, str] = {"good": "green", "notice": "yellow", "bad": "bold red"}
MARKS: dict[Weight, str] = {"good": "ok", "notice": "note", "bad": "bad"}
LIMITS: dict[str, str] = {
    "TPOT": "the TPOT objective",
    "TTFT": "the TTFT objective",
    "KVCache": "the room in the KV cache",
    "BatchSize": "the largest batch of an engine (spec.engine.maxNumSeqs)",
}
"""What limits the capacity, in words; the number in force may be on its way there."""
DASH = "–"
WIDE = 200
"""Columns where another program reads: nothing is cut there."""


def document(found: Sequence[Seen]) -> dict[str, Any]:
    """The stable form, as the module describes it."""
    return {"version": VERSION, "ready": all(one.ready for one in found), "services": [_service(one) for one in found]}


def _service(one: Seen) -> dict[str, Any]:
    return {
        "namespace": one.namespace,
        "name": one.name,
        "ready": one.ready,
        "state": one.state[1],
        "current": one.current,
        "conditions": [condition.model_dump(mode="json", by_alias=True) for condition in one.conditions],
        **{
            part: getattr(one, part).model_dump(mode="json", by_alias=True, exclude_none=True)
            for part in ("tuning", "capacity", "replicas")
        },
        "objectives": {
            "tpotMilliseconds": one.tpot_ms,
            "ttftMilliseconds": one.ttft_ms,
            "percentile": one.percentile,
        },
        "revisions": one.revisions_document,
        "history": [change.model_dump(mode="json", by_alias=True) for change in one.history],
    }


def show(found: Sequence[Seen], now_s: float, *, whole: bool, everywhere: bool) -> None:
    """Print a line a service, or everything about each."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)
    if not found:
        console.print("no SpeculativeInferenceService" + ("" if everywhere else " here; -A looks in all namespaces"))
    elif whole:
        for one in found:
            _show_whole(console, one, now_s)
    else:
        _show_lines(console, found, now_s)


def _show_lines(console: Console, found: Sequence[Seen], now_s: float) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns: tuple[tuple[str, JustifyMethod], ...] = (
        ("SERVICE", "left"), ("STATE", "left"), ("MODE", "left"), ("K", "right"), ("TOKENS/STEP", "right"),
        ("READY", "right"), ("TARGET", "right"), ("LIMIT", "left"), ("OBJECTIVES", "left"), ("CHANGED", "right"),
        ("SCHEDULE", "left"),
    )  # fmt: skip
    for title, align in columns:
        # A service is known by its name: everything else may be cut where a terminal is narrow.
        table.add_column(title, justify=align, no_wrap=True, overflow="ellipsis")
    for one in found:
        weight, state = one.state
        table.add_row(
            one.title, Text(state, STYLES[weight]), one.tuning.mode or DASH, number(one.tuning.speculative_tokens),
            one.tuning.acceptance_length or DASH, ready_of(one), number(one.capacity.requests_per_replica),
            one.capacity.limited_by or DASH, objectives(one), ago(last_change(one), now_s),
            one.tuning.schedule or DASH,
        )  # fmt: skip
    console.print(table)


def _show_whole(console: Console, one: Seen, now_s: float) -> None:
    weight, state = one.state
    console.print(Text.assemble((one.title, "bold"), "  ", (state, STYLES[weight])))
    facts = Table.grid(padding=(0, 2))
    facts.add_column(no_wrap=True, style="dim")
    facts.add_column(overflow="fold")
    for name, text in _facts(one, now_s):
        facts.add_row(f"  {name}", text)
    console.print(facts)
    told: list[str] = []
    for weight, condition in one.matters:
        console.print(Text.assemble("  ", (MARKS[weight], STYLES[weight]), f" {condition.type}: {condition.reason}"))
        message = _news(condition.message, told)
        told.append(condition.message)
        if message:
            console.print(Padding(Text(message), (0, 0, 0, 4), expand=False))


def _facts(one: Seen, now_s: float) -> Iterator[tuple[str, str]]:
    tuning, capacity, replicas = one.tuning, one.capacity, one.replicas
    if not one.current:
        yield "spec", "the operator has not seen the latest spec yet: what follows is about the one before"
    yield "mode", f"{tuning.mode or 'unknown'}, policy {tuning.policy or 'unknown'}"
    if tuning.schedule is not None:
        held = f", held by {tuning.acknowledged} engines" if tuning.acknowledged else ""
        yield "K", f"{number(tuning.speculative_tokens)} at the present batch size"
        yield "schedule", f"{in_words(tuning.schedule)} (generation {number(tuning.generation)}{held})"
    if tuning.acceptance_length is not None:
        rate = tuning.acceptance_rate_percent
        kept = "" if rate is None else f"; {rate} % of the drafted tokens are kept"
        yield "acceptance", f"{tuning.acceptance_length} tokens a step{kept}"
    if tuning.reason:
        yield "why", clauses(tuning.reason)
    if capacity.requests_per_replica is not None:
        limit = f"; the limit comes from {LIMITS[capacity.limited_by]}" if capacity.limited_by else ""
        yield "capacity", f"{count(capacity.requests_per_replica, 'request')} in flight a replica{limit}"
    bounds = one.effective.replicas
    needs = capacity.replicas_for_load
    yield (
        "replicas",
        (
            f"{replicas.ready} ready of {replicas.desired} wanted"
            + (f" (bounds {bounds})" if bounds else "")
            + ("" if needs is None else f"; the load needs {needs}")
        ),
    )
    yield (
        "objectives",
        f"{objectives(one)} for {one.percentile} % of the requests" if objectives(one) != DASH else "none",
    )
    if one.revisions is not None:
        yield from _revisions(one.revisions, now_s)
    if one.history:
        change = one.history[0]
        yield "last change", f"{ago(change.time, now_s)} ago, {change.kind.lower()} {change.from_} → {change.to}"
        yield "", clauses(change.reason)


def _revisions(found: RevisionsStatus, now_s: float) -> Iterator[tuple[str, str]]:
    """The stable revision, the candidate with its figures, and how the one before it ended."""
    yield "revision", found.stable
    one = found.candidate
    if one is not None:
        yield "candidate", f"{one.revision}, {one.stage.lower()} for {ago(one.since, now_s)}{figures(one)}"
        if one.reason:
            yield "", clauses(one.reason)
    elif found.history:
        past = found.history[0]
        yield "", f"candidate {past.revision} was {past.outcome.lower()} {ago(past.time, now_s)} ago"


def figures(one: CandidateStatus) -> str:
    """What was found of a candidate's token goodput; empty before anything was."""
    if one.gain_percent is None:
        return ""
    bounds = "" if one.low_percent is None else f" ({one.low_percent} to {one.high_percent} %)"
    return f"; token goodput {one.gain_percent} % beyond the stable engines'{bounds}"


def _news(message: str, told: Sequence[str]) -> str:
    """A message without what another condition has told: Ready says what the one that keeps it back says."""
    if message in told:
        return ""
    known = next((one for one in told if one and message.endswith(one)), "")
    return f"{message.removesuffix(known)}as above" if known else message


def clauses(sentence: str) -> str:
    """A sentence of several parts, a line each: what was found, what follows from it, what is done for now."""
    return sentence.replace("; ", "\n")


def in_words(schedule: str) -> str:
    """A schedule for people; as it stands where it is none that we know."""
    try:
        return parse_text(schedule).in_words
    except InvalidSchedule:
        return schedule


def number(value: int | None) -> str:
    """A number, or a dash."""
    return DASH if value is None else str(value)


def ready_of(one: Seen) -> str:
    """Ready replicas of the wanted ones."""
    return f"{one.replicas.ready}/{one.replicas.desired}"


def objectives(one: Seen) -> str:
    """Objectives in milliseconds, or a dash."""
    known = (("TPOT", one.tpot_ms), ("TTFT", one.ttft_ms))
    return ", ".join(f"{name} {value} ms" for name, value in known if value is not None) or DASH


def last_change(one: Seen) -> str | None:
    """When anything last changed."""
    return one.history[0].time if one.history else one.tuning.last_change
