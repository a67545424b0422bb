"""What the operator reports on a service. Output only: no decision ever reads it back.

Numbers are whole or decimal strings, and coarse on purpose: each write wakes every watcher of the object.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from outrider.api.conditions import Condition
from outrider.api.fields import Int
from outrider.api.rules import Part
from outrider.api.tuning import Mode, Policy

HISTORY_LENGTH = 5
ModeInForce = Literal["Adaptive", "Observe", "Fixed", "Off", "Paused"]
SourceShown = Literal["Hub", "Volume", "Image", "ObjectStore"]
DecimalText = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?$", max_length=16)]


def _cut(length: int) -> BeforeValidator:
    """Texts of the operator are cut to what the API allows: a long sentence must not cost the whole status."""
    return BeforeValidator(
        lambda text: text[: length - 1] + "…" if isinstance(text, str) and len(text) > length else text
    )


Sentence = Annotated[str, _cut(1024), Field(max_length=1024)]
ShortText = Annotated[str, _cut(512), Field(max_length=512)]
SignedText = Annotated[str, Field(pattern=r"^-?[0-9]+(\.[0-9]+)?$", max_length=16)]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class Output(Part):
    """A piece of the status."""

    takes_null: ClassVar[bool] = True


class ReplicaStatus(Output):
    """Replicas of the stable Deployment."""

    desired: Int = 0
    """How many there should be."""
    ready: Int = 0
    """How many answer requests."""
    updated: Int = 0
    """How many run the present pod template."""


class TuningStatus(Output):
    """What speculation does, and what the last decision about it was."""

    mode: ModeInForce | None = None
    """The mode in force; Paused while everything is left as it is, whatever the spec says."""
    policy: Policy | None = None
    """The policy in force."""
    schedule: ShortText | None = None
    """Speculative tokens by batch size, for example `1-24:5 25-64:3 65-256:1`."""
    generation: Int | None = None
    """Number of the schedule; it rises with each change."""
    speculative_tokens: Int | None = None
    """Speculative tokens at the median batch size of the last window."""
    acceptance_length: DecimalText | None = None
    """Mean tokens of a verified step, 1 to one more than the speculative tokens, for example `2.41`."""
    acceptance_rate_percent: Annotated[Int, Field(ge=0, le=100)] | None = None
    """Share of the drafted tokens that the model kept, in percent."""
    acknowledged: Annotated[str, Field(max_length=16)] | None = None
    """Engines that hold the schedule, of those that are ready, for example `3/3`."""
    delivery: Literal["Rollout"] | None = None
    """Rollout where the engines cannot be told a schedule while they run: each change of their one K is rolled out.
    Missing where they are told live."""
    rollouts: Int | None = None
    """Changes of K by roll-out within the last 24 hours."""
    reason: Sentence | None = None
    """Why the schedule is what it is."""
    last_change: Time | None = None
    """When the schedule last changed."""


class CapacityStatus(Output):
    """How much one replica may carry, and what follows for their number."""

    requests_per_replica: Int | None = None
    """Requests in flight that one replica carries within the objectives; the autoscaler's target."""
    limited_by: Literal["TPOT", "TTFT", "KVCache", "BatchSize"] | None = None
    """What limits it."""
    replicas_for_load: Int | None = None
    """Replicas that the present load needs, whatever the bounds say."""
    reason: Sentence | None = None
    """How the number came about."""
    max_replicas: Int | None = None
    """Most replicas that the service may have now; missing without an autoscaler."""
    max_replicas_by: Literal["maxReplicas", "gpuBudget", "ResourceQuota", "candidate"] | None = None
    """What says so: a field of spec.autoscaling, its share of the namespace's ResourceQuota of GPUs, or a
    candidate that has the place of one."""


class Change(Output):
    """One decision that was carried out."""

    time: Time
    """When."""
    kind: Literal["Schedule", "Target"]
    """What was changed: the speculation schedule, or the autoscaler's target."""
    from_: Annotated[ShortText, Field(alias="from")] = ""
    """The value before."""
    to: ShortText = ""
    """The value after."""
    reason: Sentence = ""
    """Why."""


class CandidateStatus(Output):
    """A change of the spec that the stable engines do not have yet."""

    revision: ShortText
    """Its revision, which spec.rollout.approve takes."""
    stage: Literal["Waiting", "Starting", "Checking", "Running", "Approval", "Promoting", "Withdrawn"]
    """How far it is: Waiting for a GPU, Starting, Checking while its answers are evaluated, Running beside the others
    and compared, waiting for Approval, Promoting while all engines get it, or Withdrawn."""
    question: Literal["Better", "NotWorse"] | None = None
    """What is asked of it."""
    boot: Int | None = None
    """Which start of its engine this is."""
    gain_percent: SignedText | None = None
    """Token goodput at like load beyond that of the stable engines, in percent, for example `3.1`; missing before it
    can be told, as the two bounds are."""
    low_percent: SignedText | None = None
    """Lower bound of it."""
    high_percent: SignedText | None = None
    """Upper bound of it."""
    quality: Sentence | None = None
    """The figures with which it passed its evaluation; missing where none was asked, or it has not passed."""
    since: Time
    """Since when it is in this stage."""
    retry_after: Time | None = None
    """When a withdrawn one is tried again by itself; missing if it is not."""
    reason: Sentence | None = None
    """What was found, or what it waits for."""


class PastRevision(Output):
    """A candidate whose trial is over."""

    revision: ShortText
    """Its revision."""
    replaces: ShortText
    """The stable revision at that time."""
    outcome: Literal["Promoted", "Withdrawn", "Inconclusive", "Replaced", "Reverted", "Rolled"]
    """How it ended; Replaced by another candidate, Reverted in the spec, or Rolled out to all without a verdict."""
    time: Time
    """When."""
    reason: Sentence = ""
    """Why."""


class RevisionsStatus(Output):
    """Revisions of the engines' pod template."""

    stable: ShortText
    """The one that the stable engines have, or are getting."""
    candidate: CandidateStatus | None = None
    """The one that the spec asks for beyond it, if it does."""
    history: Annotated[list[PastRevision], Field(max_length=HISTORY_LENGTH)] = Field(default_factory=list)
    """The last candidates, newest first."""


class EffectiveSettings(Output):
    """Settings in force where the spec leaves them open; of a paused service those that were last applied."""

    served_name: ShortText | None = None
    """Name that clients ask for."""
    engine_version: ShortText | None = None
    """Version of vLLM."""
    engine_image: ShortText | None = None
    """Image of the engine."""
    mode: Mode | None = None
    """Mode of tuning."""
    policy: Policy | None = None
    """Policy of tuning."""
    speculative_tokens: Annotated[list[Int], Field(max_length=17)] | None = None
    """Numbers of speculative tokens that the engines have graphs for; tuning chooses among them."""
    initial_schedule: ShortText | None = None
    """What an engine runs before it hears of a decision."""
    prompt_lookup_min: Int | None = None
    """Fewest tokens that method ngram looks up; missing for other methods."""
    prompt_lookup_max: Int | None = None
    """Most tokens that method ngram looks up; missing for other methods."""
    model_source: SourceShown | None = None
    """Where the model's weights come from."""
    gpus: Int | None = None
    """GPUs of one replica: tensor x pipeline x data."""
    tensor: Int | None = None
    """GPUs that share each layer."""
    pipeline: Int | None = None
    """Stages that the layers are cut into."""
    data: Int | None = None
    """Copies of the engine inside one replica."""
    max_num_seqs: Int | None = None
    """Most requests in one engine step."""
    max_num_batched_tokens: Int | None = None
    """Most tokens in one engine step."""
    percentile: Int | None = None
    """Share of requests, in percent, that must meet the objectives."""
    kv_cache_target_percent: Int | None = None
    """Share of a replica's KV cache, in percent, above which replicas are added; missing without an autoscaler."""
    rollout: ShortText | None = None
    """How replicas are replaced, for example `RollingUpdate, maxSurge 0, maxUnavailable 1`."""
    replicas: Annotated[str, Field(max_length=16)] | None = None
    """Bounds of the replicas, for example `1-6`, or one fixed number."""
    termination_grace_seconds: Int | None = None
    """When a stopping pod is killed, in seconds."""
    startup_budget_seconds: Int | None = None
    """Longest time to load, in seconds."""


class Status(Output):
    """What the operator has done and seen."""

    observed_generation: Int = -1
    """Generation of the spec that this status is about; -1 before the first."""
    conditions: Annotated[
        list[Condition],
        Field(
            max_length=32, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
        ),
    ] = Field(default_factory=list)
    """Ready, and what stands behind it."""
    replicas: ReplicaStatus | None = None
    """Replicas of the service."""
    tuning: TuningStatus | None = None
    """What speculation does."""
    capacity: CapacityStatus | None = None
    """What one replica carries."""
    history: Annotated[list[Change], Field(max_length=HISTORY_LENGTH)] = Field(default_factory=list)
    """The last changes, newest first."""
    revisions: RevisionsStatus | None = None
    """What the engines run, and a change of it on trial."""
    effective: EffectiveSettings | None = None
    """Settings in force where the spec leaves them open."""

    def as_dict(self) -> dict[str, Any]:
        """The form that is written to the API server: what is not known is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
