"""Why a service has the K and the replicas that it has, in sentences.

Pure: a resource as it was read, what the operator remembers, what a metrics store and the HPA say; each of the last
three may be missing. Sentences name the field that would change what they tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from outrider.cli.beliefs import Beliefs, Expectation
from outrider.cli.measured import NOTHING, Now
from outrider.cli.seen import Seen, ago, span
from outrider.cli.status_view import figures, in_words, objectives
from outrider.core.guards import DEAD_BAND, DEAD_BAND_ELSEWHERE
from outrider.core.schedule import InvalidSchedule, parse_text
from outrider.core.words import count

MODES: Mapping[str, str] = {
    "Observe": "Mode Observe: it says what it would do, and changes nothing; set spec.speculation.tuning.mode: Adaptive"
    " to let it act.",
    "Fixed": "Mode Fixed: the schedule is that of spec.speculation.tuning, whatever is measured; set mode: Adaptive to"
    " let it choose.",
    "Off": "Mode Off: the engines run without a drafter; set spec.speculation.tuning.mode: Adaptive to speculate, which"
    " replaces them.",
    "Paused": "Paused: everything stays as it is, by spec.paused or by the operator's setting OUTRIDER_PAUSED.",
}
LIMITS: Mapping[str, str] = {
    "TPOT": "A larger spec.objectives.tpotMilliseconds lets a replica carry more, and so do drafts that are accepted"
    " more often.",
    "TTFT": "A larger spec.objectives.ttftMilliseconds lets a replica carry more.",
    "KVCache": "More memory for the KV cache lets a replica carry more: spec.model.kvCacheDtype: fp8, more GPUs a"
    " replica, or a smaller spec.model.maxLength.",
    "BatchSize": "A larger spec.engine.maxNumSeqs lets a replica carry more.",
}
TROUBLES_OF_HPA: Mapping[str, str] = {"AbleToScale": "False", "ScalingActive": "False", "ScalingLimited": "True"}
"""Conditions of an HPA by the status that tells of a trouble; others, such as ScaledToZero, tell of none."""


@dataclass(frozen=True, slots=True)
class Section:
    """Sentences under a heading; ``rows`` of K may follow."""

    title: str
    sentences: Sequence[str]
    expected: Sequence[Expectation] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that is known of one service; each missing piece left a sentence in ``gaps``."""

    seen: Seen
    now_s: float
    beliefs: Beliefs | None = None
    now: Now = NOTHING
    hpa: Mapping[str, Any] | None = None
    gaps: Sequence[str] = ()

    @property
    def batch(self) -> int | None:
        """The batch size to talk about: that of this moment, else the usual one of late."""
        if self.now.batch is not None:
            return max(1, round(self.now.batch))
        return None if self.beliefs is None else self.beliefs.usual_batch


def explain(evidence: Evidence) -> list[Section]:
    """All there is to say, in the order in which it is asked."""
    batch = evidence.batch
    expected = () if evidence.beliefs is None or batch is None else evidence.beliefs.expect(batch)
    sections = [
        Section("How it is", [*_headline(evidence), *_troubles(evidence.seen)]),
        Section("Why this K", [*_why_k(evidence)], expected),
        Section("What would change K", [*_other_k(evidence, expected)]),
        Section("Why this many replicas", [*_why_replicas(evidence)]),
        Section("Which revision", [*_revisions(evidence)]),
        Section("Last decisions", [*_decisions(evidence)]),
        Section("What could not be looked at", list(evidence.gaps)),
    ]
    return [one for one in sections if one.sentences]


def _headline(evidence: Evidence) -> Iterator[str]:
    seen, now = evidence.seen, evidence.now
    if seen.observed_generation < 0:
        yield "The operator has not seen this service yet: look whether it runs and looks at this namespace."
        return
    if not seen.current:
        yield "The operator has not seen the latest spec yet; what follows is about the one before."
    load = "" if now.in_flight is None else f", {count(now.in_flight, 'request')} in flight"
    yield f"{seen.state[1]}. {seen.replicas.ready} of {count(seen.replicas.desired, 'replica')} ready{load}."
    if seen.tpot_ms is not None:
        tpot_s, met = now.tpot_s(seen.percentile), now.within(seen.tpot_ms / 1e3)
        if tpot_s is not None and met is not None:
            word = "met" if tpot_s * 1e3 <= seen.tpot_ms else "missed"
            yield (
                f"The objective is {word}: {100 * met:.0f} % of the requests of the last minute took {seen.tpot_ms} ms"
                f" a token or less, {seen.percentile} % are asked for (p{seen.percentile} is {tpot_s * 1e3:.1f} ms)."
            )
    elif seen.ttft_ms is None:
        yield "It has no objectives: K is chosen for the most tokens a second alone (spec.objectives)."


def _troubles(seen: Seen) -> Iterator[str]:
    for weight, one in seen.matters:
        if weight != "good":
            yield f"{one.type} is {one.status}, {one.reason}: {one.message or 'see docs/reference/conditions.md'}"


def _why_k(evidence: Evidence) -> Iterator[str]:
    seen, tuning = evidence.seen, evidence.seen.tuning
    if tuning.schedule is not None and tuning.mode != "Off":
        held = f"; {tuning.acknowledged} engines hold it" if tuning.acknowledged else ""
        yield f"The schedule is {in_words(tuning.schedule)} (generation {tuning.generation}{held})."
        if tuning.speculative_tokens is not None:
            drafted = count(tuning.speculative_tokens, "token")
            yield f"At the median batch size of the last window the engines draft {drafted}."
    if tuning.mode is not None and tuning.mode in MODES:
        yield MODES[tuning.mode]
    if tuning.delivery == "Rollout":
        yield (
            "The engines cannot be told a schedule while they run: another K is rolled out when it earns a restart,"
            f" {count(tuning.rollouts or 0, 'time')} in the last 24 hours."
        )
    if tuning.reason:
        yield f"The last pass said: {tuning.reason}."
    if tuning.acceptance_length is not None:
        rate = tuning.acceptance_rate_percent
        kept = "" if rate is None else f"; {rate} % of the drafted tokens were kept in the last window"
        yield f"A step gives a request {tuning.acceptance_length} tokens on average{kept}."
    beliefs = evidence.beliefs
    if beliefs is None:
        return
    if beliefs.survival:
        shares = ", ".join(f"{100 * one.value:.0f} %" for one in beliefs.survival)
        yield f"Drafts are kept up to their first, second, … token with {shares}."
    if beliefs.state.trial is not None:
        since = span(evidence.now_s - beliefs.state.trial.at_s)
        yield f"The last change is on probation since {since}: if it yields less than before it is taken back."
    if beliefs.state.probe is not None:
        yield f"A short look at another K is under way; {beliefs.state.probe.before} comes back unless it is better."
    yield from (f"{one}." for one in beliefs.bars(evidence.now_s))
    if evidence.batch is not None and beliefs.predicted is not None:
        learnt_s = beliefs.state.learned_until_s
        age = "" if learnt_s is None else f", as known {span(evidence.now_s - learnt_s)} ago"
        yield f"What the operator expects of each K at batch {evidence.batch}{age}:"
    elif seen.tuning.mode not in ("Off", "Fixed"):
        yield "No step time has been measured yet, so nothing can be predicted: it needs traffic."


def _other_k(evidence: Evidence, expected: Sequence[Expectation]) -> Iterator[str]:
    seen, batch = evidence.seen, evidence.batch
    yield from _boundaries(seen.tuning.schedule, batch)
    if seen.tuning.mode not in ("Adaptive", "Observe", "Paused") or not expected or batch is None:
        return
    present = _at(seen.tuning.schedule, batch)
    chosen = next((one for one in expected if one.num_speculative_tokens == present), None)
    if chosen is None:
        return
    for other in expected:
        # Behind in time a token; as many tokens a step as it would take to draw level.
        lost = 1.0 - chosen.tpot_s / other.tpot_s
        if other is not chosen and lost > 0:
            needed = other.tokens_per_step * other.tpot_s / chosen.tpot_s
            k = other.num_speculative_tokens
            level = f"to draw level it needs {needed:.2f} tokens a step"
            if needed > k + 1:
                level = f"to draw level it needs {needed:.2f} tokens a step, more than the {k + 1} that it can give"
            yield f"K {k} would yield {100 * lost:.1f} % less: {level}."
        elif other is not chosen:
            doubt = "" if other.measured else ", which was not measured near this batch"
            yield (
                f"K {other.num_speculative_tokens} would yield {-100 * lost:.1f} % more by the prediction{doubt}: too"
                f" little, or too uncertain (±{100 * other.error:.0f} %)."
            )
    yield (
        f"A change needs {100 * DEAD_BAND:g} % more tokens a second where the service runs,"
        f" {100 * DEAD_BAND_ELSEWHERE:g} % at other batch sizes, and more than the prediction's own error."
    )


def _boundaries(schedule: str | None, batch: int | None) -> Iterator[str]:
    """Where the engines go to another K by themselves."""
    if schedule is None or batch is None:
        return
    try:
        rows = parse_text(schedule).rows
    except InvalidSchedule:
        return
    below = [row for row in rows if row.last < batch]
    above = [row for row in rows if row.first > batch]
    if above:
        yield f"From batch {above[0].first} on the engines draft {above[0].num_speculative_tokens} by themselves."
    if below:
        yield f"Up to batch {below[-1].last} they draft {below[-1].num_speculative_tokens}."


def _at(schedule: str | None, batch: int) -> int | None:
    try:
        return None if schedule is None else parse_text(schedule).at(batch)
    except InvalidSchedule:
        return None


def _why_replicas(evidence: Evidence) -> Iterator[str]:
    seen, capacity = evidence.seen, evidence.seen.capacity
    target = capacity.requests_per_replica
    if target is None:
        yield "No capacity is known yet."
    else:
        # Refers to the objectives that it keeps, or the number is just a number.
        within = f" within {objectives(seen)}" if seen.tpot_ms or seen.ttft_ms else ""
        yield f"A replica may carry {count(target, 'request')} in flight{within}."
        if capacity.reason:
            yield f"The last pass said: {capacity.reason}."
        if capacity.limited_by:
            yield f"Limited by {capacity.limited_by}. {LIMITS[capacity.limited_by]}"
    yield from _load(evidence, target)
    yield from _scaler(evidence)


def _load(evidence: Evidence, target: int | None) -> Iterator[str]:
    seen, load = evidence.seen, evidence.now.in_flight
    needed = seen.capacity.replicas_for_load
    if load is not None and target is not None:
        needed = max(1, ceil(load / target))
        yield f"{count(load, 'request')} in flight over {target} a replica need {count(needed, 'replica')}."
    elif needed is not None:
        yield f"The load of the last window needs {count(needed, 'replica')}."
    scaling = seen.body.get("spec", {}).get("autoscaling", {})
    least, most = scaling.get("minReplicas", 1), scaling.get("maxReplicas")
    if needed is None or scaling.get("mode", "KEDA") == "Off":
        return
    if most is not None and needed > most:
        yield f"spec.autoscaling.maxReplicas holds it at {most}: raise it, or requests wait and objectives are missed."
    elif needed < least:
        yield f"spec.autoscaling.minReplicas keeps {least}."
    elif needed < seen.replicas.desired:
        yield "Fewer would do: the HPA gives replicas up when that has been so for its stabilization time."
    elif needed > seen.replicas.desired:
        yield "More are needed: KEDA asks within half a minute, and an engine then takes its time to load."


def _scaler(evidence: Evidence) -> Iterator[str]:
    seen, hpa = evidence.seen, evidence.hpa
    shown = seen.effective.replicas
    if shown == "external":
        yield "The number is left to an autoscaler of your own (spec.autoscaling.mode: External)."
    elif shown is not None and "-" not in shown:
        yield f"The number is fixed at {shown}: spec.autoscaling gives bounds within which KEDA scales."
    if hpa is None:
        return
    status = hpa.get("status", {})
    present, asked = status.get("currentReplicas", 0), status.get("desiredReplicas", 0)
    yield f"The HPA sees {count(present, 'replica')} and asks for {asked}."
    scaling = seen.condition("AutoscalingReady")
    if scaling is not None and scaling.status != "True":
        return  # the HPA would say the same, in words of its own that are longer
    for one in status.get("conditions", []):
        if TROUBLES_OF_HPA.get(one.get("type")) == one.get("status"):
            yield f"Its condition {one.get('type')} is {one.get('status')}: {one.get('message', '')}."


def _decisions(evidence: Evidence) -> Iterator[str]:
    for change in evidence.seen.history:
        moved = f"{change.kind.lower()} {change.from_} → {change.to}"
        yield f"{ago(change.time, evidence.now_s)} ago, {moved}: {change.reason}"
    if not evidence.seen.history and evidence.seen.observed_generation >= 0:
        yield "None was carried out yet."


def _revisions(evidence: Evidence) -> Iterator[str]:
    """Only of a service whose spec asked for another revision, now or before."""
    found = evidence.seen.revisions
    if found is None or (found.candidate is None and not found.history):
        return
    one = found.candidate
    yield f"The engines have revision {found.stable}."
    if one is not None:
        asked = {"Better": "It must be better than the stable one", "NotWorse": "It must not be worse by the margin"}
        question = "" if one.question is None else f" {asked[one.question]} (spec.rollout)."
        yield (
            f"The spec asks for {one.revision}: {one.stage.lower()} for {ago(one.since, evidence.now_s)}"
            f"{figures(one)}.{question}"
        )
        if one.quality:
            yield f"Its answers passed: {one.quality}."
        if one.reason and one.reason != one.quality:
            yield f"Last found: {one.reason}."
        if one.retry_after is not None:
            yield f"It is tried again by itself after {one.retry_after}."
    for past in found.history:
        yield (
            f"{ago(past.time, evidence.now_s)} ago, {past.revision} beside {past.replaces} was"
            f" {past.outcome.lower()}: {past.reason}."
        )
