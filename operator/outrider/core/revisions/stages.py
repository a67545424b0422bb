"""The stages of a trial, one step at a time: a place, a start, an evaluation, requests.

Waiting ─▶ Starting ─▶ (Checking) ─▶ Running ─▶ Starting: the next boot
"""

from __future__ import annotations

from dataclasses import replace

from outrider.core.revisions.sight import News, Room, Sight
from outrider.core.revisions.trial import Stage, Trial
from outrider.core.words import count

GAVE_BACK_S = 600.0
"""After the load took a replica's place from the candidate, until one is freed again."""


def forward(trial: Trial, sight: Sight) -> tuple[Trial, tuple[News, ...]]:
    """On the way to serving: a place, a node, a start, an evaluation."""
    if not trial.placed:
        placed = _placed(trial, sight)
        if not placed.placed:
            return placed, ()
        message = f"revision {trial.revision} is tried beside {trial.replaces}" + _where(placed)
        return placed, (News("CandidateStarted", message),)
    idle = trial.stage == "Checking" or not sight.candidate.serves
    if trial.freed is not None and idle and _outgrown(trial.freed, sight.room):
        reason = f"the load needs {sight.room.needed} replicas, so the candidate gives its place back"
        back = replace(trial, placed=False, freed=None, gave_back_s=sight.now_s)
        return moved(back, "Waiting", reason, sight), ()
    if trial.stage == "Checking":
        return _checked(trial, sight)
    if sight.candidate.serves:
        if trial.stage in ("Waiting", "Starting"):
            unchecked = sight.check_limit_s is not None and trial.traffic_since_s is None
            trial = moved(trial, "Checking", "its answers are evaluated", sight) if unchecked else _taken(trial, sight)
        return trial, ()
    if trial.stage not in ("Waiting", "Starting"):
        return trial, ()
    if sight.candidate.unplaced:
        waiting = trial if trial.stage == "Waiting" else moved(trial, "Waiting", "", sight)
        return _freed(waiting, f"no GPU is free ({sight.candidate.unplaced})", sight), ()
    return (moved(trial, "Starting", "its engine starts", sight) if trial.stage == "Waiting" else trial), ()


def _checked(trial: Trial, sight: Sight) -> tuple[Trial, tuple[News, ...]]:
    """With requests, if its evaluation allows it or is not asked any more."""
    found = sight.quality
    if sight.check_limit_s is None:
        return _taken(trial, sight), ()
    if found is None or found.verdict != "passed":
        return (trial if found is None else replace(trial, reason=found.reason)), ()
    message = f"revision {trial.revision} takes requests: {found.reason}"
    passed = replace(_taken(trial, sight), checked=found.reason, reason=found.reason)
    return passed, (News("CandidateChecked", message),)


def _taken(trial: Trial, sight: Sight) -> Trial:
    since_s = sight.now_s if trial.traffic_since_s is None else trial.traffic_since_s
    return replace(moved(trial, "Running", "", sight), traffic_since_s=since_s)


def _placed(trial: Trial, sight: Sight) -> Trial:
    """With a place, if there is one: a spare one within the budget, or that of a replica which the load does not
    need."""
    if sight.complete != trial.replaces:
        return replace(trial, reason="not all stable engines serve with their own revision yet")
    room = sight.room
    if room.most is None or room.pods + 1 <= room.most:
        return moved(replace(trial, placed=True), "Starting", "its engine starts", sight)
    if trial.freed is not None:
        return trial
    return _freed(trial, f"the service may have no more than {count(room.most, 'replica')}", sight)


def _freed(trial: Trial, lack: str, sight: Sight) -> Trial:
    """With the place of a stable replica, if the rest carries the load."""
    if trial.freed is not None:
        return trial
    room, rest = sight.room, sight.room.replicas - 1
    if not room.ours:
        why = "another sets the number of replicas: give it a GPU, or lower that number by one"
    elif rest < 1:
        why = "the only replica cannot give its place up: give it a GPU, or set spec.rollout.policy to Rolling"
    elif room.needed is None:
        why = "what the load needs is not known yet"
    elif room.needed > rest:
        why = f"the load needs {count(room.needed, 'replica')} of {room.replicas}"
    elif trial.gave_back_s is not None and sight.now_s < trial.gave_back_s + GAVE_BACK_S:
        why = "the load took its place back a moment ago"
    else:
        return replace(trial, freed=rest, reason=f"{lack}, so it takes the place of a replica")
    return replace(trial, reason=f"{lack}, and {why}")


def _outgrown(freed: int, room: Room) -> bool:
    return room.needed is not None and room.needed > freed


def _where(trial: Trial) -> str:
    return "" if trial.freed is None else f", in the place of a replica: {count(trial.freed, 'stable one')} stay"


def anew(trial: Trial, reason: str, sight: Sight) -> Trial:
    """Its engine starts once more; the crashes of this start stay counted."""
    again = replace(trial, boot=trial.boot + 1, crashes=trial.crashes + sight.candidate.crashes)
    return moved(again, "Starting", reason, sight)


def moved(trial: Trial, stage: Stage, reason: str, sight: Sight) -> Trial:
    """In another stage from now on; an empty reason leaves the former one."""
    return replace(trial, stage=stage, stage_since_s=sight.now_s, reason=reason or trial.reason)


def unfit(trial: Trial, sight: Sight) -> str | None:
    """Why a candidate must not take requests after its evaluation, or for want of one; None while it may yet."""
    found, limit_s = sight.quality, sight.check_limit_s
    if limit_s is None or (found is not None and found.verdict == "passed"):
        return None
    if found is not None and found.verdict != "pending":
        return found.reason
    if sight.now_s - trial.stage_since_s <= limit_s:
        return None
    last = "" if found is None else f"; last seen: {found.reason}"
    remedy = "look at its Job, or raise spec.rollout.quality.maxMinutes"
    return f"its evaluation gave no result within {limit_s / 60.0:.0f} minutes{last}; {remedy}"
