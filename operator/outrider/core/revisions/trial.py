"""A change on trial: which revision, what is asked of it, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outrider.core.revisions.analysis import Plan

Stage = Literal["Waiting", "Starting", "Running", "Approval", "Promoting"]
"""In order. Waiting: it has no GPU yet, or the stable engines are being replaced. Starting: its engine starts, for the
first time or anew. Running: its engine serves and is compared. Approval: only the user's word is missing. Promoting:
the stable engines get its template one by one, and it serves until they all have it."""


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
    """When it first served; None before that."""
    boot: int = 1
    """Which start of its engine this is, as its pod's annotation has it."""
    crashes: int = 0
    """Of the engines of earlier starts."""
    placed: bool = False
    """It has a Deployment."""
    freed: int | None = None
    """Replicas that the stable track may have meanwhile, where the candidate takes the place of one of them."""
    reason: str = ""
    """What it waits for, or what was found last, in a sentence."""

    @property
    def judged(self) -> bool:
        """Whether its engine and the stable ones are to be compared now."""
        return self.stage in ("Running", "Approval")
