"""What a control pass may say: a proposal under discussion, a hold, a change.

The sentences in ``steps`` are the log, the event and the status message alike; nobody should need the code to follow a
decision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from outrider.core.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing moves, and why."""

    reason: str
    """CamelCase, fit for a condition."""
    message: str


@dataclass(frozen=True, slots=True)
class Change:
    """Something moved: a schedule or a target, from one text to another, for a reason in one sentence."""

    at_s: float
    kind: str
    """``Schedule``, ``Target``, or ``Probe`` for a short look at another schedule and the way back."""
    before: str
    after: str
    reason: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """A schedule under discussion and the sentences that led to it; with ``held`` set the discussion is over."""

    schedule: Schedule
    steps: tuple[str, ...] = ()
    held: Hold | None = None
    settled: bool = False
    """Set by a guard whose word is final (a roll-back, a probe): later guards that only damp movement let it pass."""
    probing: bool = False
    """The schedule is a short look, and the present one comes back after it."""

    def say(self, sentence: str) -> Proposal:
        """Add a sentence without changing anything."""
        return replace(self, steps=(*self.steps, sentence))

    def to(self, schedule: Schedule, sentence: str, *, settled: bool = False) -> Proposal:
        """Propose another schedule."""
        return replace(self, schedule=schedule, steps=(*self.steps, sentence), settled=settled or self.settled)

    def probe(self, schedule: Schedule, sentence: str) -> Proposal:
        """Propose a short look at another schedule."""
        return replace(self, schedule=schedule, steps=(*self.steps, sentence), settled=True, probing=True)

    def hold(self, current: Schedule, reason: str, message: str) -> Proposal:
        """End the discussion with the current schedule."""
        return replace(self, schedule=current, steps=(*self.steps, f"hold: {message}"), held=Hold(reason, message))
