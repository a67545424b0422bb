"""The parts of the spec that say what users should see, and how many replicas there may be: objectives, autoscaling."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from outrider.api.fields import Int, LabelName
from outrider.api.rules import Part, Rule, Values, judged, named, refusing

Percentile = Literal[50, 75, 90, 95, 99]
Scaler = Literal["KEDA", "External", "Off"]
ScaleBy = Literal["Requests", "DesiredReplicas"]
OWN_TRIGGERS = ("in-flight", "desired-replicas", "waiting", "kv-cache", "wake")

TriggerName = Annotated[
    LabelName,
    *judged(
        refusing(
            f"^({'|'.join(OWN_TRIGGERS)})$",
            "in-flight, desired-replicas, waiting, kv-cache and wake are the operator's own triggers: give yours"
            " another name",
        ),
    ),
]


class Objectives(Part):
    """What users of the service should see; tuning and scaling keep within it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.tpotMilliseconds) || self.tpotMilliseconds >= 1",
            lambda objectives: objectives.tpot_milliseconds is None or objectives.tpot_milliseconds >= 1,
            "tpotMilliseconds must be 1 or more; to have no objective for it leave the field out",
            ".tpotMilliseconds",
        ),
        Rule(
            "!has(self.ttftMilliseconds) || self.ttftMilliseconds >= 1",
            lambda objectives: objectives.ttft_milliseconds is None or objectives.ttft_milliseconds >= 1,
            "ttftMilliseconds must be 1 or more; to have no objective for it leave the field out",
            ".ttftMilliseconds",
        ),
    )

    tpot_milliseconds: Annotated[Int, Field(le=60_000)] | None = None
    """Time per output token of one request after its first, in milliseconds, 1 to 60000, for example 40; no objective
    when left out."""
    ttft_milliseconds: Annotated[Int, Field(le=3_600_000)] | None = None
    """Time from a request's arrival to its first token, in milliseconds, 1 to 3600000, for example 2000; no objective
    when left out."""
    percentile: Percentile | None = None
    """Share of requests that must meet the objectives, in percent, one of 50, 75, 90, 95 and 99; 95 when left out."""


class Trigger(Part):
    """A further load by which KEDA scales, asked of Prometheus."""

    name: TriggerName
    """Name of the trigger, up to 63 small letters, digits and dashes, for example `queue-of-gateway`; not one of the
    operator's own: in-flight, desired-replicas, waiting, kv-cache and wake."""
    query: Annotated[str, Field(min_length=1, max_length=2048)]
    """PromQL that gives one number, up to 2048 characters, for example `sum(gateway_queue_length{service="chat"})`."""
    metric_type: Literal["AverageValue", "Value"]
    """How KEDA compares it with target: AverageValue divides the number by the replicas first, so the query must be a
    sum and no average; Value takes it as it is. For example AverageValue."""
    target: Annotated[Int, Field(ge=1, le=1_000_000_000)]
    """What the number should be, in the query's own unit, 1 to 1000000000, for example 20; above it replicas are
    added."""


class Idle(Part):
    """When the last replica goes, and what brings the first one back."""

    after_seconds: Annotated[Int, Field(ge=0, le=86_400)] | None = None
    """For how long nothing may have asked for the service before its last replica goes, in seconds, 0 to 86400, for
    example 900; 300 when left out."""
    wake_query: Annotated[str, Field(min_length=1, max_length=2048)]
    """PromQL that gives one number, up to 2048 characters: above 0 it wakes a replica, and keeps the last one. It must
    have an answer while none runs, when engines export nothing: ask the gateway or router in front, for example
    `sum(gateway_requests_in_flight{service="chat"})`."""


class Autoscaling(Part):
    """Who sets the number of replicas, and between which bounds. Leave the block out for one fixed replica, or for
    as many as run when it is removed."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            lambda scaling: (
                scaling.min_replicas is None
                or scaling.max_replicas is None
                or scaling.min_replicas <= scaling.max_replicas
            ),
            "minReplicas must not be above maxReplicas: lower one or raise the other",
            ".minReplicas",
            Values(
                "minReplicas %d is above maxReplicas %d: lower one or raise the other",
                ("self.minReplicas", "self.maxReplicas"),
                lambda scaling: (scaling.min_replicas, scaling.max_replicas),
            ),
        ),
        Rule(
            "has(self.maxReplicas) || (has(self.mode) && self.mode in ['External', 'Off'])",
            lambda scaling: scaling.max_replicas is not None or scaling.mode in ("External", "Off"),
            'autoscaling needs an upper bound: set maxReplicas, or mode: "Off" (quoted) for a fixed number,'
            " minReplicas, or mode: External where another autoscaler has bounds of its own",
            ".maxReplicas",
        ),
        Rule(
            "!has(self.minReplicas) || self.minReplicas > 0"
            " || has(self.idle) && (!has(self.mode) || self.mode == 'KEDA')",
            lambda scaling: (
                scaling.min_replicas is None
                or scaling.min_replicas > 0
                or (scaling.idle is not None and scaling.mode in (None, "KEDA"))
            ),
            "minReplicas 0 needs mode KEDA and idle.wakeQuery, a query of your gateway that wakes the service: engines"
            " that do not run export nothing; set both, or minReplicas to 1 or more",
            ".minReplicas",
        ),
        Rule(
            "!has(self.idle) || has(self.minReplicas) && self.minReplicas == 0",
            lambda scaling: scaling.idle is None or scaling.min_replicas == 0,
            "idle is for services of which none may run: set minReplicas to 0, or remove idle",
            ".idle",
        ),
    )

    mode: Scaler | None = None
    """Who scales: KEDA by load; with External an autoscaler of your own, to which the replicas are left; with Off
    nobody, and minReplicas is kept. KEDA when left out. In YAML write `"Off"` with its quotes: the bare word is a
    boolean there."""
    scale_by: ScaleBy | None = None
    """What KEDA compares with a target: Requests, the requests in flight of a replica, whose target the operator moves
    with what a replica carries; or DesiredReplicas, the number of replicas that the operator works out and exports,
    whose target never moves, so that Prometheus must scrape the operator too. Requests when left out."""
    min_replicas: Annotated[Int, Field(ge=0, le=1000)] | None = None
    """Fewest replicas, 0 to 1000 and not above maxReplicas, for example 2; 1 when left out. With mode Off: the number
    that is kept. With External: the least that is recommended. 0 is for mode KEDA with `idle`."""
    max_replicas: Annotated[Int, Field(ge=1, le=1000)] | None = None
    """Most replicas, 1 to 1000, for example 6; needed with mode KEDA. With External: the most that is recommended, no
    bound when left out."""
    gpu_budget: Annotated[Int, Field(ge=1, le=16_000)] | None = None
    """Most GPUs that the replicas may have together, 1 to 16000, for example 8; it bounds the replicas as maxReplicas
    does, which also counts. No such bound when left out. What several services share belongs into the ResourceQuota
    of their namespace."""
    scale_down_stabilization_seconds: Annotated[Int, Field(ge=0, le=3600)] | None = None
    """For how long load must stay low before a replica is given up, in seconds, 0 to 3600, for example 600; the
    operator's own setting, 300 unless it was changed, when left out, or as long as its pods take to start if that is
    longer."""
    kv_cache_target_percent: Annotated[Int, Field(ge=1, le=100)] | None = None
    """Share of a replica's KV cache that may be in use, in percent, 1 to 100, for example 70; above it replicas are
    added. 80 when left out."""
    idle: Idle | None = None
    """When the last replica goes and what wakes one, for example `{afterSeconds: 900, wakeQuery:
    'sum(gateway_requests_in_flight{service="chat"})'}`; needed with minReplicas 0, and only there. Never when left
    out."""
    triggers: Annotated[list[Trigger], Field(max_length=8), *named()] = Field(default_factory=list)
    """Up to 8 further loads to scale by, after the operator's own and in this order; the one that asks for most
    replicas wins. None when left out. Append new ones: the order is part of the metrics' names."""
