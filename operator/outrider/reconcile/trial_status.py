"""What status tells of revisions: the candidate, its figures, and those before it."""

from __future__ import annotations

from math import isfinite
from typing import Any

from outrider.api.conditions import REVISION_CURRENT, Condition, condition
from outrider.api.status import CandidateStatus, PastRevision, RevisionsStatus
from outrider.core.revisions.analysis import Judgement
from outrider.core.revisions.trial import Trial, Withdrawn
from outrider.reconcile.events import rfc3339
from outrider.reconcile.registry import Service


def revisions(service: Service) -> RevisionsStatus | None:
    """The part of the status; None before a revision is known."""
    known = service.revisions
    if known.stable is None:
        return None
    candidate: CandidateStatus | None = None
    if known.trial is not None:
        candidate = _on_trial(known.trial, service.judgement)
    elif service.withheld is not None:
        candidate = _withdrawn(service.withheld)
    history = [
        PastRevision(
            revision=past.revision,
            replaces=past.replaces,
            outcome=past.outcome,
            time=rfc3339(past.at_s),
            reason=past.reason,
        )
        for past in known.history
    ]
    return RevisionsStatus(stable=known.stable, candidate=candidate, history=history)


def revision_current(service: Service, generation: int) -> Condition | None:
    """Present and False while the stable engines do not have what the spec asks for: it is on trial, or withdrawn."""
    known, trial, withheld = service.revisions, service.trial, service.withheld
    if trial is not None:
        return _under_way(trial, generation)
    if withheld is not None:
        remedy = "change the spec back or otherwise, or set spec.rollout.approve to it"
        again = "" if withheld.until_s is None else f"; it is tried again after {rfc3339(withheld.until_s)}"
        message = (
            f"the engines keep revision {known.stable}, and {withheld.revision} was withdrawn: {withheld.reason}"
            f"{again}; {remedy}"
        )
        return condition(REVISION_CURRENT, False, "CandidateWithdrawn", message, generation)
    return None


def _under_way(trial: Trial, generation: int) -> Condition:
    beside = f" beside {trial.replaces}"
    match trial.stage:
        case "Waiting":
            reason, words = "CandidateWaits", "waits for its trial"
        case "Starting":
            reason, words = "CandidateStarts", "starts"
        case "Checking":
            reason, words = "CandidateChecked", "is evaluated before it takes requests"
        case "Running":
            reason, words = "CandidateCompared", "is compared"
        case "Approval":
            reason, words = "ApprovalNeeded", "waits for spec.rollout.approve"
        case "Promoting":
            reason, words, beside = "CandidatePromoted", "goes to all engines, one at a time", ""
    message = f"revision {trial.revision}{beside} {words}" + (f": {trial.reason}" if trial.reason else "")
    return condition(REVISION_CURRENT, False, reason, message, generation)


def _on_trial(trial: Trial, found: Judgement | None) -> CandidateStatus:
    return CandidateStatus(
        revision=trial.revision,
        stage=trial.stage,
        question=trial.plan.question,
        boot=trial.boot,
        quality=trial.checked or None,
        since=rfc3339(trial.stage_since_s),
        reason=trial.reason or None,
        **_figures(found),
    )


def _withdrawn(one: Withdrawn) -> CandidateStatus:
    return CandidateStatus(
        revision=one.revision,
        stage="Withdrawn",
        since=rfc3339(one.at_s),
        retry_after=None if one.until_s is None else rfc3339(one.until_s),
        reason=one.reason,
    )


def _figures(found: Judgement | None) -> dict[str, Any]:
    """Gain and bounds in percent, as far as they are known."""
    if found is None or found.figures is None:
        return {}
    figures = found.figures
    shown = {"gain_percent": figures.gain}
    if isfinite(figures.high):  # without it nothing bounds the gain on the other side either
        shown |= {"low_percent": figures.low, "high_percent": figures.high}
    return {name: f"{100.0 * value:.1f}" for name, value in shown.items()}
