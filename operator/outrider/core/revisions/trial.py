"""A change on trial: which revision, what is asked of it, how far it has come, and what is remembered of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from outrider.core.revisions.analysis import Plan
from outrider.core.revisions.intervals import Spread

Stage = Literal["Waiting", "Starting", "Checking", "Running", "Approval", "Promoting"]
"""In order. Waiting: it has no GPU yet, or the stable engines are being replaced. Starting: its engine starts, for the
first time or anew. Checking: its engine serves an evaluation of its answers alone. Running: it takes requests and is
compared. Approval: only the user's word is missing. Promoting: the stable engines get its template one by one, and it
serves until they all have it."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate. Revisions are hashes of pod templates; times are Unix seconds."""

    revision: str
    """Of the candidate."""
    replaces: str
    """The stable revision that it is compared with."""
    plan: Plan
    stage: Stage
    since_s: float
    """When it was asked for."""
    stage_since_s: float
    traffic_since_s: float | None = None
    """When it first took requests; None before that."""
    boot: int = 1
    """Which start of its engine this is, as its pod's annotation has it."""
    crashes: int = 0
    """Of the engines of earlier starts."""
    placed: bool = False
    """It has a Deployment."""
    freed: int | None = None
    """Replicas that the stable track may have meanwhile, where the candidate takes the place of one of them."""
    gave_back_s: float | None = None
    """When the load took the place of a replica from it."""
    checked: str = ""
    """The figures with which it passed its evaluation; empty where it has not, or none was asked."""
    reason: str = ""
    """What it waits for, or what was found last, in a sentence."""

    @property
    def judged(self) -> bool:
        """Whether its engine and the stable ones are to be compared now."""
        return self.stage in ("Running", "Approval")


Outcome = Literal["Promoted", "Withdrawn", "Inconclusive", "Replaced", "Reverted", "Rolled"]
"""Of a trial that is over. Replaced: the spec asks for another candidate; Reverted: it asks for the stable revision
again; Rolled: it went to all engines without a verdict."""

HISTORY = 5
"""Ended trials kept for status and memory."""
REMEMBERED = 10
"""Revisions that are remembered as good, and as withdrawn."""
KNOWN_BOOTS = 24.0
"""Degrees of freedom that the spread of earlier boots is worth at most, some six comparisons: other nodes, images and
graphs change it, and what comes must still count."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A revision that is not tried again by itself."""

    revision: str
    reason: str
    at_s: float
    until_s: float | None
    """Until when; None for ever."""
    times: int = 1
    """How often it was withdrawn."""


@dataclass(frozen=True, slots=True)
class Past:
    """A trial that is over."""

    revision: str
    replaces: str
    outcome: Outcome
    at_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Revisions:
    """What is remembered of a service's revisions."""

    stable: str | None = None
    """The revision that the stable engines have, or are getting; None before one is known."""
    spec: Mapping[str, Any] | None = None
    """What it was rendered from: the JSON values of the resource's spec at that time."""
    good: tuple[str, ...] = ()
    """Revisions that all stable engines have served with, the latest first."""
    withdrawn: tuple[Withdrawn, ...] = ()
    """The latest first."""
    trial: Trial | None = None
    history: tuple[Past, ...] = ()
    """The latest first."""
    spread: Spread | None = None
    """How much boots differed in the comparisons so far; None before the first."""

    def learnt(self, here: Spread) -> Revisions:
        """The same with the boots of one more comparison."""
        return replace(self, spread=here.plus(self.spread or Spread()).at_most(KNOWN_BOOTS))

    def ended(self, outcome: Outcome, reason: str, now_s: float) -> Revisions:
        """The same without its trial, which is history."""
        if self.trial is None:
            return self
        past = Past(self.trial.revision, self.trial.replaces, outcome, now_s, reason)
        return replace(self, trial=None, history=(past, *self.history)[:HISTORY])

    def known_good(self, revision: str) -> Revisions:
        """The same with a revision that is known to be good; the last one is never forgotten."""
        if self.good[:1] == (revision,):
            return self
        return replace(self, good=(revision, *(one for one in self.good if one != revision))[:REMEMBERED])

    def withdrawn_for(self, revision: str) -> Withdrawn | None:
        """What is remembered of a revision that was withdrawn."""
        return next((one for one in self.withdrawn if one.revision == revision), None)
