"""The course of a change: whether it rolls at once, is tried on a candidate beside the stable engines, promoted, or
withdrawn.

    first ─▶ same revision ─▶ rolls at once? ─▶ withdrawn before? ─▶ a trial, one stage further

Level-based and stateless but for `Revisions`: whoever looks again, or after a restart, goes on where it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from outrider.core.revisions.analysis import Judgement
from outrider.core.revisions.health import CRASHES
from outrider.core.revisions.sight import News, Sight
from outrider.core.revisions.stages import anew, forward, moved, unfit
from outrider.core.revisions.trial import REMEMBERED, Revisions, Trial, Withdrawn
from outrider.core.words import count

COMPARABLE = 2
"""Stable engines that serve, from which on a change under load is tried where the user does not say how. Beside a
single one hardly any comparison gets a verdict, since the scatter of boots shows on no side; without requests none
does."""
RETRY_S = 3600.0
"""Until a candidate is tried again that crashed, did not start, or got no verdict: the cause may lie outside it.
Doubled each time; one that was found worse is not tried again by itself."""
RETRY_MOST_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Step:
    """What to remember, and what to do. The candidate's Deployment is there exactly while its trial is ``placed``."""

    revisions: Revisions
    rolls: bool
    """The stable engines get what the spec asks for; otherwise they keep what they have."""
    news: tuple[News, ...] = ()


def step(known: Revisions, sight: Sight) -> Step:
    """One look. What its comparison told of boots outlives a trial."""
    found, figures = _stepped(known, sight), None if sight.judgement is None else sight.judgement.figures
    if figures is None or known.trial is None or not known.trial.judged or not _over(known.trial, found.revisions):
        return found
    return replace(found, revisions=found.revisions.learnt(figures.here))


def _over(trial: Trial, after: Revisions) -> bool:
    now = after.trial
    return now is None or now.revision != trial.revision or now.stage == "Promoting"


def _stepped(known: Revisions, sight: Sight) -> Step:
    if known.stable is None:
        return Step(replace(known, stable=sight.wanted, spec=sight.spec), rolls=True)
    known, news = _arrived(known, sight)
    if sight.wanted == known.stable:
        if known.trial is not None and known.trial.stage != "Promoting":
            known = known.ended("Reverted", "the spec asks for the stable revision again", sight.now_s)
        return Step(known, rolls=True, news=news)
    why = _rolls(known, sight)
    if why:
        return _roll(known, sight, why)
    held = known.withdrawn_for(sight.wanted)
    if held is not None and (held.until_s is None or sight.now_s < held.until_s):
        return Step(_replaced(known, sight), rolls=False, news=news)
    trial = known.trial
    if trial is None or trial.revision != sight.wanted or trial.stage == "Promoting":
        known = _begun(_replaced(known, sight), sight)
    found = _advanced(known, sight)
    return replace(found, news=(*news, *found.news))


def _arrived(known: Revisions, sight: Sight) -> tuple[Revisions, tuple[News, ...]]:
    """Take note of engines that all serve with the stable revision, which ends the promotion of it."""
    assert known.stable is not None
    if sight.complete != known.stable:
        return known, ()
    known = known.known_good(known.stable)
    trial = known.trial
    if trial is None or trial.stage != "Promoting" or trial.revision != known.stable:
        return known, ()
    news = News("CandidatePromoted", f"all engines run revision {trial.revision}: {trial.reason}")
    return known.ended("Promoted", trial.reason, sight.now_s), (news,)


def _rolls(known: Revisions, sight: Sight) -> str:
    """Why the change goes to all engines without a trial; empty if it is to be tried.

    | what                                                        | rolls |
    |-------------------------------------------------------------|-------|
    | a revision that all engines have served with before         | yes   |
    | the revision that the user approved                         | yes   |
    | policy Rolling, or a change that raises no question         | yes   |
    | engines that cannot be compared with: see `_comparable`     | yes, unless its trial has begun |
    | anything else                                               | no    |
    """
    if sight.wanted in known.good:
        return "it has served before"
    if sight.approved == sight.wanted:
        return "it is approved in spec.rollout.approve"
    if sight.policy == "Rolling":
        return "spec.rollout.policy is Rolling"
    if sight.plan is None:
        return "the change raises no question that a comparison answers"
    under_way = known.trial is not None and known.trial.revision == sight.wanted
    if under_way or known.withdrawn_for(sight.wanted) is not None:
        return ""
    return _incomparable(known, sight)


def _incomparable(known: Revisions, sight: Sight) -> str:
    if sight.stuck or known.stable not in known.good:
        return "the stable engines have not all served with their own revision"
    least = COMPARABLE if sight.policy is None else 1
    if sight.serving < least:
        return f"{count(sight.serving, 'stable engine')} to compare with, and a trial needs {least}"
    if sight.policy is None and not sight.room.needed:
        return "no requests were seen in the last minutes to compare engines by"
    return ""


def _roll(known: Revisions, sight: Sight, why: str) -> Step:
    """The wanted revision becomes the stable one; its candidate goes on serving until all engines have it."""
    trial = known.trial
    promoted = replace(known, stable=sight.wanted, spec=sight.spec)
    if trial is not None and trial.revision == sight.wanted and trial.placed:
        return Step(replace(promoted, trial=moved(trial, "Promoting", why, sight)), rolls=True)
    outcome: Literal["Rolled", "Replaced"] = "Rolled"
    if trial is not None and trial.revision != sight.wanted:
        outcome, why = "Replaced", f"the spec asks for revision {sight.wanted} now"
    return Step(promoted.ended(outcome, why, sight.now_s), rolls=True)


def _replaced(known: Revisions, sight: Sight) -> Revisions:
    """Without a trial of another revision than the wanted one."""
    trial = known.trial
    if trial is None or trial.revision == sight.wanted:
        return known
    if trial.stage == "Promoting":  # it was promoted, and only the last engines are still to come
        return known.ended("Promoted", trial.reason, sight.now_s).known_good(trial.revision)
    return known.ended("Replaced", f"the spec asks for revision {sight.wanted} now", sight.now_s)


def _begun(known: Revisions, sight: Sight) -> Revisions:
    assert known.stable is not None
    assert sight.plan is not None
    now_s = sight.now_s
    return replace(known, trial=Trial(sight.wanted, known.stable, sight.plan, "Waiting", now_s, now_s))


def _advanced(known: Revisions, sight: Sight) -> Step:
    """One stage further at most, or out of it."""
    trial = known.trial
    assert trial is not None
    if sight.plan is not None and trial.plan != sight.plan:
        trial = replace(trial, plan=sight.plan)
    crashes = trial.crashes + sight.candidate.crashes
    if crashes >= CRASHES:
        said = f": {sight.candidate.words}" if sight.candidate.words else ""
        return _withdraw(known, sight, f"its engine crashed {count(crashes, 'time')}{said}", retried=True)
    if trial.stage == "Starting" and sight.now_s - trial.stage_since_s > sight.start_limit_s:
        return _withdraw(known, sight, f"its engine did not serve within {sight.start_limit_s:.0f} s", retried=True)
    if trial.stage == "Checking":
        fault = unfit(trial, sight)
        if fault is not None:
            return _withdraw(known, sight, fault, retried=sight.quality is None or sight.quality.verdict != "worse")
    if trial.judged and sight.judgement is not None:
        return _judged(replace(known, trial=trial), trial, sight.judgement, sight)
    after, news = forward(trial, sight)
    return Step(replace(known, trial=after), rolls=False, news=news)


def _judged(known: Revisions, trial: Trial, found: Judgement, sight: Sight) -> Step:
    reason = "; ".join(found.reasons) or trial.reason
    if found.verdict == "withdraw":
        return _withdraw(known, sight, reason, retried=False)
    if found.verdict == "wait":
        restart = found.restart and trial.stage == "Running"
        after = anew(trial, reason, sight) if restart else replace(trial, reason=reason)
        return Step(replace(known, trial=after), rolls=False)
    if sight.policy == "Manual":
        if trial.stage == "Approval":
            return Step(replace(known, trial=replace(trial, reason=reason)), rolls=False)
        message = f"revision {trial.revision} waits for spec.rollout.approve: {reason}"
        after = moved(trial, "Approval", reason, sight)
        return Step(replace(known, trial=after), rolls=False, news=(News("CandidateWaits", message),))
    if found.verdict == "inconclusive":
        return _withdraw(known, sight, reason, retried=True, told=False)
    promoted = replace(known, stable=trial.revision, spec=sight.spec, trial=moved(trial, "Promoting", reason, sight))
    news = News("CandidatePromoting", f"all engines get revision {trial.revision}: {reason}")
    return Step(promoted.known_good(trial.revision), rolls=True, news=(news,))


def _withdraw(known: Revisions, sight: Sight, reason: str, *, retried: bool, told: bool = True) -> Step:
    """End the trial without a promotion; ``retried`` if it is tried again by itself after a while."""
    assert known.trial is not None
    revision, before = known.trial.revision, known.withdrawn_for(known.trial.revision)
    times = 1 if before is None else before.times + 1
    until_s = sight.now_s + min(RETRY_MOST_S, RETRY_S * 2.0 ** min(times - 1, 10)) if retried else None
    rest = (one for one in known.withdrawn if one.revision != revision)
    withdrawn = (Withdrawn(revision, reason, sight.now_s, until_s, times), *rest)[:REMEMBERED]
    ended = known.ended("Withdrawn" if told else "Inconclusive", reason, sight.now_s)
    message = f"revision {revision} is not taken, and the engines keep {known.stable}: {reason}"
    news = News("CandidateWithdrawn", message, warning=True)
    return Step(replace(ended, withdrawn=withdrawn), rolls=False, news=(news,))
