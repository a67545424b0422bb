"""The parts of the spec about the life of replicas: how they start, are replaced, are evicted, and end."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from outrider.api.defaults import (
    MAX_SURGE,
    MAX_UNAVAILABLE,
    MIN_GRACE_MARGIN_S,
    PRE_STOP_S,
    SHUTDOWN_TIMEOUT_S,
)
from outrider.api.fields import Int
from outrider.api.quality import Quality
from outrider.api.rules import Part, Rule

Strategy = Literal["RollingUpdate", "Recreate"]
RolloutPolicy = Literal["Canary", "Rolling", "Manual"]
MAX_MARGIN_PERCENT = 50  # a loss of half is one that nobody needs a test for
LONGEST_TRIAL_MINUTES = 24 * 60
REVISION_PATTERN = "^[0-9a-f]{10}$"  # as `outrider.manifests.pod_template.revision` gives it


def _rolling_alone(name: str, text: str) -> Rule:
    return Rule(
        f"!has(self.{text}) || !has(self.strategy) || self.strategy != 'Recreate'",
        lambda rollout: getattr(rollout, name) is None or rollout.strategy != "Recreate",
        f"{text} is for strategy RollingUpdate alone: Recreate stops all replicas first, so remove one of them",
        f".{text}",
    )


class Rollout(Part):
    """How replicas are replaced when what they run changes."""

    rules: ClassVar[tuple[Rule, ...]] = (
        _rolling_alone("max_surge", "maxSurge"),
        _rolling_alone("max_unavailable", "maxUnavailable"),
        Rule(
            f"self.?maxSurge.orValue({MAX_SURGE}) + self.?maxUnavailable.orValue({MAX_UNAVAILABLE}) > 0",
            lambda rollout: (
                (MAX_SURGE if rollout.max_surge is None else rollout.max_surge)
                + (MAX_UNAVAILABLE if rollout.max_unavailable is None else rollout.max_unavailable)
                > 0
            ),
            f"maxSurge (default {MAX_SURGE}) and maxUnavailable must not both be 0, or no replica could ever be"
            " replaced: raise one of them",
            ".maxUnavailable",
        ),
        Rule(
            "!has(self.policy) || self.policy == 'Rolling' || !has(self.strategy) || self.strategy != 'Recreate'",
            lambda rollout: rollout.policy in (None, "Rolling") or rollout.strategy != "Recreate",
            "policy Canary and Manual run a candidate beside the other replicas, which strategy Recreate does not"
            " allow: remove one of the two",
            ".policy",
        ),
        Rule(
            "!has(self.quality) || (has(self.policy) && self.policy != 'Rolling')",
            lambda rollout: rollout.quality is None or rollout.policy in ("Canary", "Manual"),
            "quality is asked of a candidate, which policy Canary and Manual have whatever else: set policy to one of"
            " them, or remove quality",
            ".quality",
        ),
    )

    strategy: Strategy | None = None
    """In which order: RollingUpdate replaces a few replicas at a time, Recreate stops all before it starts any.
    RollingUpdate when left out."""
    max_surge: Annotated[Int, Field(ge=0, le=100)] | None = None
    """Replicas that may run beyond the wanted number during a rollout, 0 to 100, for example 1; each needs spare GPUs.
    0 when left out."""
    max_unavailable: Annotated[Int, Field(ge=0, le=100)] | None = None
    """Replicas that may be missing during a rollout, 0 to 100; 1 when left out. 0 needs a maxSurge of 1 or more."""
    policy: RolloutPolicy | None = None
    """How a new draft, image, quantization or engine setting reaches the replicas: Canary tries it on one replica and
    compares, Manual does so and waits for approve, Rolling replaces all without a comparison. When left out Canary
    where two replicas or more serve requests, otherwise Rolling."""
    approve: Annotated[str, Field(pattern=REVISION_PATTERN, max_length=10)] | None = None
    """The revision that all replicas shall get, whatever a comparison says, as status.revisions.candidate shows it, for
    example `3f9c2a71b0`; no other revision is affected. None when left out."""
    margin_percent: Annotated[Int, Field(ge=1, le=MAX_MARGIN_PERCENT)] | None = None
    """Loss of tokens a second at like load that is still not worse, for a new image, quantization or engine setting, in
    percent, 1 to 50, for example 3; 5 when left out. A smaller one needs more time, and ends without a verdict more
    often."""
    max_minutes: Annotated[Int, Field(ge=10, le=LONGEST_TRIAL_MINUTES)] | None = None
    """Longest comparison from the candidate's first answer on, in minutes, 10 to 1440; 120 when left out. Then it ends
    without a verdict, and the replicas keep what they have."""
    quality: Quality | None = None
    """An evaluation of the candidate's answers before it takes requests: a Job that gives its score; none when left
    out."""


class Disruption(Part):
    """How many replicas may be evicted at a time, for example when nodes are drained."""

    max_unavailable: Annotated[Int, Field(ge=0, le=1000)] | None = None
    """Replicas that may be evicted at the same time, 0 to 1000; 1 when left out. 0 keeps nodes from being drained."""


class Drain(Part):
    """How a replica ends: it leaves the endpoints, finishes its requests, then stops."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.terminationGraceSeconds) || self.terminationGraceSeconds >"
            f" (has(self.preStopSeconds) ? self.preStopSeconds : {PRE_STOP_S})"
            f" + (has(self.shutdownTimeoutSeconds) ? self.shutdownTimeoutSeconds : {SHUTDOWN_TIMEOUT_S})"
            f" + {MIN_GRACE_MARGIN_S}",
            lambda drain: (
                drain.termination_grace_seconds is None
                or drain.termination_grace_seconds
                > (PRE_STOP_S if drain.pre_stop_seconds is None else drain.pre_stop_seconds)
                + (SHUTDOWN_TIMEOUT_S if drain.shutdown_timeout_seconds is None else drain.shutdown_timeout_seconds)
                + MIN_GRACE_MARGIN_S
            ),
            f"terminationGraceSeconds must be over preStopSeconds (default {PRE_STOP_S}) + shutdownTimeoutSeconds"
            f" (default {SHUTDOWN_TIMEOUT_S}) + {MIN_GRACE_MARGIN_S}, or answers are cut off: raise it, or leave it"
            " out",
            ".terminationGraceSeconds",
        ),
    )

    pre_stop_seconds: Annotated[Int, Field(ge=0, le=600)] | None = None
    """Pause before the stop signal, so that nobody sends requests any more, in seconds, 0 to 600; 15 when left out."""
    shutdown_timeout_seconds: Annotated[Int, Field(ge=0, le=7200)] | None = None
    """For how long running requests may finish after the stop signal, in seconds, 0 to 7200, for example 300; 60 when
    left out, and 0 cuts them off."""
    termination_grace_seconds: Annotated[Int, Field(ge=1, le=14400)] | None = None
    """When the pod is killed, in seconds after the decision to stop it, 1 to 14400 and over preStopSeconds +
    shutdownTimeoutSeconds + 10; those two and 15 when left out."""


class Startup(Part):
    """How long a replica may take to load."""

    budget_seconds: Annotated[Int, Field(ge=60, le=86_400)] | None = None
    """Longest time from the engine's start to its first healthy answer, with what it downloads from a hub itself, in
    seconds, 60 to 86400, for example 3600; 1800 when left out."""
