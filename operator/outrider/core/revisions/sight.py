"""What the course of a change is decided from, and what it has to announce."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from outrider.core.revisions.analysis import Judgement, Plan
from outrider.core.revisions.quality import Quality

Policy = Literal["Canary", "Rolling", "Manual"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is seen of the candidate's engine, of its present start."""

    serves: bool = False
    crashes: int = 0
    words: str = ""
    """How it ended last."""
    unplaced: str = ""
    """Why no node takes it, or the quota refuses it; empty if that is not so."""


@dataclass(frozen=True, slots=True)
class Room:
    """Replicas that there may be, and that the load needs."""

    replicas: int
    """That the stable track is to have."""
    pods: int
    """That hold GPUs now, those on their way out too."""
    most: int | None = None
    """That may hold GPUs at a time, the candidate included; None where nothing limits them but the cluster."""
    needed: int | None = None
    """For the load as it was lately; None while that is not known."""
    ours: bool = True
    """Their number follows what we say."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What is wanted and what is seen."""

    wanted: str
    """The revision of what the spec asks for."""
    spec: Mapping[str, Any]
    """The spec that it was rendered from."""
    plan: Plan | None
    """The question that the change raises; None if there is nothing to ask."""
    policy: Policy | None
    """None where the user leaves it open."""
    approved: str | None
    """The revision that the user approved."""
    serving: int
    """Stable engines that serve."""
    complete: str | None
    """The revision that all stable engines run and serve with; None while they are being replaced."""
    stuck: bool
    """Replacing them makes no progress."""
    candidate: Candidate
    room: Room
    start_limit_s: float
    """What a start may take, seconds."""
    judgement: Judgement | None
    now_s: float
    check_limit_s: float | None = None
    """What an evaluation may take before the candidate takes requests, seconds; None where none is asked."""
    quality: Quality | None = None
    """What that has said so far."""


@dataclass(frozen=True, slots=True)
class News:
    """Something to announce."""

    reason: str
    message: str
    warning: bool = False
