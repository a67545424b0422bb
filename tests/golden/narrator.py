"""What somebody at the service's side would note: what was seen, what was said, what moved."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from outrider.core.controller import Outcome
from outrider.core.observation import Observation
from outrider.core.series import Missing

ALIKE = 0.1
"""Passes that say the same are told once while what they saw differs by less than this share."""

Seen = tuple[float, float, float]


@dataclass
class Narrator:
    """Writes a log, and thins out passes that repeat the last one."""

    brief: bool = False
    """Tell only of passes that move something."""
    lines: list[str] = field(default_factory=list)
    _shape: list[str] = field(default_factory=list)
    _seen: Seen | None = None

    @property
    def text(self) -> str:
        """The log so far."""
        return "\n".join(self.lines) + "\n"

    def event(self, now_s: float, what: str) -> None:
        """Something that happened to the service or its operator."""
        self.lines.append(f"{now_s:5.0f} s  *** {what}")
        self._shape = []

    def tell(self, now_s: float, window: Observation | Missing, outcome: Outcome) -> None:
        """One pass."""
        if self.brief and not outcome.changes:
            return
        first, seen = _describe(window, outcome)
        said, moved = list(outcome.proposal.steps), []
        for change in outcome.changes:
            moved.append(f"{change.kind.upper()} {change.before} => {change.after}")
            if not any(change.reason in sentence for sentence in said):
                moved.append(f"  because {change.reason}")
        if not any(change.kind in ("Schedule", "Probe") for change in outcome.changes):
            moved.append(f"schedule stays {outcome.state.schedule}")
        # Numbers in a sentence may creep; the schedule must not.
        shape = [re.sub(r"[0-9.]+", "#", sentence) for sentence in said] + moved
        if shape == self._shape and _alike(seen, self._seen):
            if self.lines[-1].startswith("         (so"):
                self.lines.pop()
            self.lines.append(f"         (so until {now_s:.0f} s)")
            return
        self._shape, self._seen = shape, seen
        self.lines += [f"{now_s:5.0f} s  {first}", *(f"         {line}" for line in said + moved)]


def _describe(window: Observation | Missing, outcome: Outcome) -> tuple[str, Seen | None]:
    if isinstance(window, Missing):
        return f"no metrics: {window}", None
    steps = sum(cell.steps for cell in window.cells)
    requests = sum(cell.requests for cell in window.cells)
    length = window.generation_tokens / requests if requests else 0.0
    tpot_ms = (window.tpot.mean or 0.0) * 1e3
    k = sum(cell.num_speculative_tokens * cell.steps for cell in window.cells) / steps if steps else 0.0
    queue = f" ({window.waiting:.0f} waiting)" if window.waiting >= 1 else ""
    text = (
        f"{window.in_flight:.0f} in flight{queue}, batch {window.batch:.0f}, K {k:.3g}:"
        f" {length:.2f} tokens a step, {tpot_ms:.1f} ms a token"
    )
    return text, (window.in_flight, length, tpot_ms)


def _alike(seen: Seen | None, before: Seen | None) -> bool:
    if seen is None or before is None:
        return seen is before
    return all(abs(now - then) <= ALIKE * max(now, then, 1e-9) for now, then in zip(seen, before, strict=True))
