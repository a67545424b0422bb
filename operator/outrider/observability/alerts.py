"""The alerts: what each asks, for how long it must hold, and what it tells the one it wakes.

An expression without traffic must have no answer, for an idle service is none that is ill: rates are compared with a
least traffic, and a quotient of two zeros compares as false. What the operator knows better than any query, it says in
`outrider_condition`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from outrider.core import engine_metrics as names
from outrider.observability.promql import by_service, of_all, own_everywhere, rate

RUNBOOKS = "docs/runbooks/"
"""What stands before an alert's name in its ``runbook_url``; the chart may put the address of a copy in its place."""
GROUP = "outrider"

MIN_DRAFT_TOKENS_TPS = 10.0
"""Drafted tokens a second that make real traffic: 1200 in two minutes give a rate to 1.4 points."""
MIN_REQUESTS = 20
"""Finished requests in five minutes under which a 99th percentile is the slowest one."""
MIN_ACCEPTANCE_RATE = 0.5
CLEAR_SPEEDUP = 1.1
"""A gain that is clear of the estimate's error. Deep drafts that pay are accepted at under half by their nature: with
0.75 at each position K 5 has 46 %."""
MAX_KV_CACHE_USAGE = 0.9  # engines preempt and recompute requests soon above it
MAX_QUEUE_P99_S = 0.5  # a bound of vLLM's buckets, so that the comparison is exact
MIN_SPEEDUP = 0.95
"""Under it a service is called slower than without a drafter: the estimate is good to about a twentieth."""
MAX_PASS_AGE_S = 120.0  # eight control periods
MIN_RESTARTS = 3
MIN_STALLS = 3


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert; its page of the runbook bears its name."""

    name: str
    expression: str
    held: str
    """For how long it must hold, as Prometheus writes it."""
    severity: str
    """``critical``: users are, or may soon be, without answers. ``warning``: time or money is lost; look today."""
    summary: str
    """One line, with ``$labels``."""
    description: str
    """What is so, with the value."""

    def rule(self) -> dict[str, Any]:
        """As a rule of Prometheus."""
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": self.held,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{RUNBOOKS}{self.name}.md",
            },
        }


SERVICE = "{{ $labels.namespace }}/{{ $labels.service }}"


def condition(type_: str, more: str = 'status="False"') -> str:
    """Services whose condition stands so; 1."""
    return own_everywhere("outrider_condition", f'type="{type_}",{more}')


def reason(type_: str) -> str:
    """A template that looks up why a condition stands as it does."""
    asked = " or ".join(
        f'outrider_condition{{type="{type_}",{label}="%[1]s",service="%[2]s"}}'
        for label in ("exported_namespace", "namespace")
    )
    found = '{{ . | first | label "reason" }}'
    return f"{{{{ with printf `{asked}` $labels.namespace $labels.service | query }}}}{found}{{{{ end }}}}"


def _drafter() -> Iterator[Alert]:
    drafted = by_service("sum", rate(of_all(names.NUM_DRAFT_TOKENS), "2m"))
    accepted = by_service("sum", rate(of_all(names.NUM_ACCEPTED_TOKENS), "2m"))
    traffic = f"{drafted} > {MIN_DRAFT_TOKENS_TPS:g}"
    speedup = own_everywhere("outrider_speculation_speedup_ratio", over="avg_over_time 5m")
    yield Alert(
        "OutriderAcceptanceLow",
        f"{accepted} / {drafted} < {MIN_ACCEPTANCE_RATE:g} and {traffic} unless {speedup} > {CLEAR_SPEEDUP:g}",
        "5m",
        "warning",
        f"Fewer than half of the draft tokens of {SERVICE} are accepted.",
        "{{ $value | humanizePercentage }} of the draft tokens were accepted in the last 2 minutes. K follows what is"
        " accepted; a drafter that fits the traffic would give more.",
    )
    yield Alert(
        "OutriderSpeculationNetNegative",
        f"{speedup} < {MIN_SPEEDUP:g}",
        "15m",
        "warning",
        f"Speculation costs {SERVICE} more than it gives.",
        "It yields {{ $value | humanizePercentage }} of the tokens that the same engines are estimated to yield"
        " without a drafter.",
    )
    yield Alert(
        "OutriderAllDraftsRejected",
        f"{traffic} and {accepted} == 0 or {condition('SpeculationHealthy')}",
        "2m",
        "warning",
        f"No draft token of {SERVICE} is accepted.",
        "Every draft token is rejected while engines work: the drafter, its model or its version does not fit. K goes"
        " to the least that is allowed ({{ $value | humanize }} draft tokens a second, or 1 where drafting has ended).",
    )


def _load() -> Iterator[Alert]:
    yield Alert(
        "OutriderKVCacheNearlyFull",
        by_service("max", of_all(names.KV_CACHE_USAGE)) + f" > {MAX_KV_CACHE_USAGE:g}",
        "5m",
        "warning",
        f"The KV cache of an engine of {SERVICE} is nearly full.",
        "{{ $value | humanizePercentage }} of the fullest engine's KV cache is in use; from about here on engines"
        " preempt requests and compute them again.",
    )
    buckets = by_service("sum", rate(of_all(names.QUEUE_TIME, "_bucket"), "5m"), "le")
    finished = by_service("sum", f"increase({of_all(names.QUEUE_TIME, '_count')}[5m])")
    yield Alert(
        "OutriderQueueSlow",
        f"histogram_quantile(0.99, {buckets}) > {MAX_QUEUE_P99_S:g} and {finished} > {MIN_REQUESTS}",
        "5m",
        "warning",
        f"Requests wait in the queues of {SERVICE}.",
        "One request in a hundred waited {{ $value | humanizeDuration }} or longer for its place in a batch.",
    )
    measured = own_everywhere("outrider_latency_seconds", "", "objective")
    allowed = own_everywhere("outrider_objective_seconds", "", "objective")
    yield Alert(
        "OutriderObjectiveMissed",
        f"{measured} > {allowed}",
        "10m",
        "warning",
        f"{SERVICE} misses its objective for {{{{ $labels.objective }}}}.",
        "At the percentile of the resource it takes {{ $value | humanizeDuration }}, which is more than"
        " spec.objectives allows.",
    )
    yield Alert(
        "OutriderEngineStalls",
        by_service("sum", f"increase({of_all(names.STALLS)}[10m])") + f" >= {MIN_STALLS}",
        "0m",
        "warning",
        f"Engines of {SERVICE} stand still for more than a second at a time.",
        "{{ $value | humanize }} steps of over a second in the last 10 minutes.",
    )


def _control() -> Iterator[Alert]:
    yield Alert(
        "OutriderMetricsMissing",
        condition("MetricsAvailable", 'status="False",reason!="NoReadyEngine"'),
        "5m",
        "warning",
        f"Nothing is decided for {SERVICE}: its metrics are missing.",
        f"Reason {reason('MetricsAvailable')}. K and replicas are held as they are.",
    )
    yield Alert(
        "OutriderScheduleNotApplied",
        condition("ScheduleApplied"),
        "5m",
        "warning",
        f"Engines of {SERVICE} do not run the schedule that was decided.",
        f"Reason {reason('ScheduleApplied')}. They go on with the one before, after its lease with the initial one.",
    )
    stuck = by_service("count", of_all(names.CONTROLLABLE) + " == 0")
    wanted = own_everywhere("outrider_condition", 'type="ScheduleApplied",reason!="NothingToChoose"')
    yield Alert(
        "OutriderEnginesNotControllable",
        f"{stuck} and {wanted}",
        "10m",
        "warning",
        f"Engines of {SERVICE} take no schedule while they run.",
        "{{ $value | humanize }} engines report controllable=0: the runtime plugin does not know their vLLM, or could"
        " not reach its scheduler.",
    )


def _scaling() -> Iterator[Alert]:
    yield Alert(
        "OutriderScalingLimited",
        f"{own_everywhere('outrider_replicas_for_load')} > {own_everywhere('outrider_max_replicas')}",
        "10m",
        "warning",
        f"{SERVICE} needs more replicas than it may have.",
        "Its load needs {{ $value | humanize }} replicas within the objectives, and spec.autoscaling.maxReplicas is"
        " less.",
    )
    yield Alert(
        "OutriderCapacityLimited",
        condition("CapacityLimited", 'status="True"'),
        "10m",
        "warning",
        f"The cluster has no place for another replica of {SERVICE}.",
        f"Reason {reason('CapacityLimited')}. Some engines serve, and the others that are wanted wait for a place.",
    )
    yield Alert(
        "OutriderAutoscalingNotReady",
        condition("AutoscalingReady"),
        "5m",
        "warning",
        f"The replicas of {SERVICE} do not follow its load.",
        f"Reason {reason('AutoscalingReady')}. They stay as they are, or KEDA's fallback raises them to the minimum.",
    )


def _life() -> Iterator[Alert]:
    stays = "CandidateWithdrawn|CandidateWaits|ApprovalNeeded"
    yield Alert(
        "OutriderRevisionNotCurrent",
        condition("RevisionCurrent", f'status="False",reason=~"{stays}"'),
        "30m",
        "warning",
        f"The engines of {SERVICE} do not get what its spec asks for.",
        f"Reason {reason('RevisionCurrent')}. They serve with the revision before.",
    )
    since, limit = "outrider_trial_stage_timestamp_seconds", "outrider_trial_stage_limit_seconds"
    yield Alert(
        "OutriderTrialStuck",
        f"time() - {own_everywhere(since)} > {own_everywhere(limit)}",
        "15m",
        "warning",
        f"The trial of a candidate of {SERVICE} does not end.",
        f"Reason {reason('RevisionCurrent')}, for {{{{ $value | humanizeDuration }}}} now, which is longer than it may"
        " take. The stable engines serve as before.",
    )
    yield Alert(
        "OutriderServiceNotReady",
        condition("Ready", 'status!="True",reason!="Starting"'),
        "10m",
        "critical",
        f"{SERVICE} does not serve as its resource asks.",
        f"Reason {reason('Ready')}.",
    )
    yield Alert(
        "OutriderEngineRestarts",
        by_service("sum", f"changes({of_all(names.PROCESS_START)}[1h])")
        + f" >= {MIN_RESTARTS} or "
        + own_everywhere("outrider_condition", 'reason="EngineCrashLoop"'),
        "0m",
        "warning",
        f"Engines of {SERVICE} end and start again.",
        "At least {{ $value | humanize }} restarts in the last hour; one that ends before it was ever scraped counts"
        " once.",
    )
    yield Alert(
        "OutriderOperatorRestarts",
        f"sum by (namespace) (changes({names.PROCESS_START[0]}[1h]) and on (job, instance) outrider_services)"
        f" >= {MIN_RESTARTS}",
        "0m",
        "warning",
        "The operator in {{ $labels.namespace }} ends and starts again.",
        "{{ $value | humanize }} restarts in the last hour. Engines go on with their last schedule meanwhile.",
    )
    yield Alert(
        "OutriderOperatorDown",
        "absent(outrider_leader == 1)",
        "5m",
        "critical",
        "No operator is active, or its metrics are missing.",
        "No operator reports that it holds its Lease (absent = {{ $value }}); those that wait for it decide nothing."
        " Engines go on with the last schedule for the time of its lease, an hour by default, and KEDA with the last"
        " target.",
    )
    passes = "outrider_last_control_pass_timestamp_seconds and on (job, instance) outrider_leader == 1"
    yield Alert(
        "OutriderNotDeciding",
        f"time() - max by (namespace) ({passes}) > {MAX_PASS_AGE_S:g}",
        "2m",
        "critical",
        "The active operator in {{ $labels.namespace }} runs and decides nothing.",
        "Its last control pass ended {{ $value | humanizeDuration }} ago; one should end every 15 s.",
    )


ALERTS = (*_drafter(), *_load(), *_control(), *_scaling(), *_life())
"""Every alert, by what it is about."""


def rules() -> dict[str, Any]:
    """The rules file."""
    return {"groups": [{"name": GROUP, "rules": [alert.rule() for alert in ALERTS]}]}
