"""Every alert on made-up series, by promtool: when it fires and with which words, and when it must not."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from outrider.observability import alerts

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "charts" / "outrider" / "files" / "alerts.yaml"
INTERVAL = "15s"
ENGINE = 'namespace="ml",pod="chat-a",serving_outrider_dev_service="chat",serving_outrider_dev_track="stable"'
OWN = 'namespace="ml",service="chat"'
RENAMED = 'namespace="outrider-system",exported_namespace="ml",service="chat"'
"""Of the operator's series, scraped with a namespace of its own and without honouring theirs."""
HOUR = "240"
"""Samples."""


@dataclass(frozen=True, slots=True)
class Case:
    """Series, and what an alert makes of them; without a description it must not fire."""

    alert: str
    name: str
    series: Mapping[str, str]
    description: str | None = None
    at: str = "20m"
    labels: Mapping[str, str] = field(default_factory=lambda: {"namespace": "ml", "service": "chat"})


def counter(name: str, per_s: float, labels: str = ENGINE) -> dict[str, str]:
    """A counter that grows steadily for an hour."""
    return {f"{name}{{{labels}}}": f"0+{per_s * 15:g}x{HOUR}"}


def gauge(name: str, value: float, labels: str = ENGINE) -> dict[str, str]:
    """A gauge that stays as it is for an hour."""
    return {f"{name}{{{labels}}}": f"{value:g}x{HOUR}"}


def drafting(drafted: float, accepted: float) -> dict[str, str]:
    """Draft tokens a second, and those accepted."""
    return counter("vllm:spec_decode_num_draft_tokens_total", drafted) | counter(
        "vllm:spec_decode_num_accepted_tokens_total", accepted
    )


def stands(type_: str, status: str, why: str, labels: str = OWN) -> dict[str, str]:
    """A condition."""
    return gauge("outrider_condition", 1, f'{labels},type="{type_}",status="{status}",reason="{why}"')


def queued(within: float, later: float) -> dict[str, str]:
    """Requests a second that waited less than 300 ms, and those that waited from 0.8 to 1 s."""
    name = "vllm:request_queue_time_seconds"
    rates = {"0.3": within, "0.5": within, "0.8": within, "1.0": within + later, "+Inf": within + later}
    found = counter(f"{name}_count", within + later)
    for bound, rate in rates.items():
        found |= counter(f"{name}_bucket", rate, f'{ENGINE},le="{bound}"')
    return found


def latency(measured_s: float | None, allowed_s: float | None) -> dict[str, str]:
    """TPOT and its objective, as the operator reports them."""
    labels = f'{OWN},objective="tpot"'
    found = {} if measured_s is None else gauge("outrider_latency_seconds", measured_s, labels)
    return found | ({} if allowed_s is None else gauge("outrider_objective_seconds", allowed_s, labels))


def process(restarts_at: int | None, labels: str) -> dict[str, str]:
    """Start times of a process: from this sample on it starts anew with each."""
    name = f"process_start_time_seconds{{{labels}}}"
    return {name: f"1000x{HOUR}" if restarts_at is None else f"1000x{restarts_at} 2000 3000 4000x{HOUR}"}


def stage(limit_s: float | None, why: str, labels: str = OWN) -> dict[str, str]:
    """A trial that has been in one stage since the beginning of all time."""
    found = gauge("outrider_trial_stage_timestamp_seconds", 0, labels) | stands("RevisionCurrent", "False", why, labels)
    return found | ({} if limit_s is None else gauge("outrider_trial_stage_limit_seconds", limit_s, labels))


PASS = "outrider_last_control_pass_timestamp_seconds"
OPERATOR = {"namespace": "outrider-system"}
SELF = 'namespace="outrider-system",job="outrider",instance="10.0.0.9:9090"'
LEADER, OTHER = "outrider_leader", SELF.replace(".9:", ".10:")
NOBODY_ACTS = (
    "No operator reports that it holds its Lease (absent = 1); those that wait for it decide nothing. Engines go on"
    " with the last schedule for the time of its lease, an hour by default, and KEDA with the last target."
)
K_FOLLOWS = " K follows what is accepted; a drafter that fits the traffic would give more."
TOO_LONG = " which is longer than it may take. The stable engines serve as before."
HELD = " K and replicas are held as they are."
NOT_SCALED = " They stay as they are, or KEDA's fallback raises them to the minimum."

CASES = (
    # The drafter.
    Case("OutriderAcceptanceLow", "four of ten", drafting(100, 40),
         "40% of the draft tokens were accepted in the last 2 minutes." + K_FOLLOWS),
    Case("OutriderAcceptanceLow", "six of ten", drafting(100, 60)),
    Case("OutriderAcceptanceLow", "half of them exactly", drafting(100, 50)),
    Case("OutriderAcceptanceLow", "four of ten of a trickle", drafting(5, 2)),
    Case("OutriderAcceptanceLow", "four of ten, and speculation gains a fifth all the same",
         drafting(100, 40) | gauge("outrider_speculation_speedup_ratio", 1.2, OWN)),
    Case("OutriderAcceptanceLow", "four of ten, and the gain is within the error of its estimate",
         drafting(100, 40) | gauge("outrider_speculation_speedup_ratio", 1.05, OWN),
         "40% of the draft tokens were accepted in the last 2 minutes." + K_FOLLOWS),
    Case("OutriderAcceptanceLow", "idle: none of none", drafting(0, 0)),
    Case("OutriderAcceptanceLow", "four of ten for less than five minutes", drafting(100, 40), at="4m"),
    Case("OutriderAcceptanceLow", "one engine of two is enough to pull the service down",
         drafting(100, 60) | {
             name.replace("chat-a", "chat-b"): value for name, value in drafting(300, 60).items()
         },
         "30% of the draft tokens were accepted in the last 2 minutes." + K_FOLLOWS),
    Case("OutriderSpeculationNetNegative", "a tenth slower", gauge("outrider_speculation_speedup_ratio", 0.9, OWN),
         "It yields 90% of the tokens that the same engines are estimated to yield without a drafter.", at="40m"),
    Case("OutriderSpeculationNetNegative", "the same under renamed labels",
         gauge("outrider_speculation_speedup_ratio", 0.9, RENAMED),
         "It yields 90% of the tokens that the same engines are estimated to yield without a drafter.", at="40m"),
    Case("OutriderSpeculationNetNegative", "within the error of the estimate",
         gauge("outrider_speculation_speedup_ratio", 0.97, OWN), at="40m"),
    Case("OutriderSpeculationNetNegative", "for ten minutes", gauge("outrider_speculation_speedup_ratio", 0.9, OWN),
         at="10m"),
    Case("OutriderSpeculationNetNegative", "idle: nothing is told", {}, at="40m"),
    Case("OutriderAllDraftsRejected", "none of a hundred", drafting(100, 0),
         "Every draft token is rejected while engines work: the drafter, its model or its version does not fit. K goes"
         " to the least that is allowed (100 draft tokens a second, or 1 where drafting has ended)."),
    Case("OutriderAllDraftsRejected", "drafting has ended for it",
         drafting(0, 0) | stands("SpeculationHealthy", "False", "AcceptanceCollapsed"),
         "Every draft token is rejected while engines work: the drafter, its model or its version does not fit. K goes"
         " to the least that is allowed (1 draft tokens a second, or 1 where drafting has ended)."),
    Case("OutriderAllDraftsRejected", "one of a hundred", drafting(100, 1)),
    Case("OutriderAllDraftsRejected", "idle: none of none", drafting(0, 0)),
    Case("OutriderAllDraftsRejected", "too little to tell",
         drafting(0, 0) | stands("SpeculationHealthy", "Unknown", "InsufficientData")),
    # Load.
    Case("OutriderKVCacheNearlyFull", "95 %", gauge("vllm:kv_cache_usage_perc", 0.95),
         "95% of the fullest engine's KV cache is in use; from about here on engines preempt requests and compute them"
         " again."),
    Case("OutriderKVCacheNearlyFull", "an old engine's name", gauge("vllm:gpu_cache_usage_perc", 0.95),
         "95% of the fullest engine's KV cache is in use; from about here on engines preempt requests and compute them"
         " again."),
    Case("OutriderKVCacheNearlyFull", "90 % exactly", gauge("vllm:kv_cache_usage_perc", 0.9)),
    Case("OutriderKVCacheNearlyFull", "idle", gauge("vllm:kv_cache_usage_perc", 0)),
    Case("OutriderKVCacheNearlyFull", "a short burst",
         {f"vllm:kv_cache_usage_perc{{{ENGINE}}}": f"0.5x40 0.95x8 0.5x{HOUR}"}, at="12m"),
    Case("OutriderQueueSlow", "two of a hundred wait long", queued(0.98, 0.02),
         "One request in a hundred waited 900ms or longer for its place in a batch."),
    Case("OutriderQueueSlow", "one of two hundred", queued(0.995, 0.005)),
    Case("OutriderQueueSlow", "ten requests in five minutes", queued(0, 10 / 300)),
    Case("OutriderQueueSlow", "idle: none of none", queued(0, 0)),
    Case("OutriderObjectiveMissed", "25 ms of 20", latency(0.025, 0.02),
         "At the percentile of the resource it takes 25ms, which is more than spec.objectives allows.",
         labels={"namespace": "ml", "service": "chat", "objective": "tpot"}),
    Case("OutriderObjectiveMissed", "15 ms of 20", latency(0.015, 0.02)),
    Case("OutriderObjectiveMissed", "no objective", latency(0.025, None)),
    Case("OutriderObjectiveMissed", "idle: nothing is told", latency(None, 0.02)),
    Case("OutriderEngineStalls", "one a minute", counter("outrider_engine_stalls_total", 1 / 60),
         "10 steps of over a second in the last 10 minutes."),
    Case("OutriderEngineStalls", "two in an hour",
         {f"outrider_engine_stalls_total{{{ENGINE}}}": f"0x60 1x60 2x{HOUR}"}),
    # Control.
    Case("OutriderMetricsMissing", "no series", stands("MetricsAvailable", "False", "NoSeries"),
         "Reason NoSeries." + HELD),
    Case("OutriderMetricsMissing", "the same under renamed labels",
         stands("MetricsAvailable", "False", "NoSeries", RENAMED), "Reason NoSeries." + HELD),
    Case("OutriderMetricsMissing", "another service's reason is not told",
         stands("MetricsAvailable", "False", "MetricsStale")
         | stands("MetricsAvailable", "True", "Fresh", 'namespace="ml",service="code"'),
         "Reason MetricsStale." + HELD),
    Case("OutriderMetricsMissing", "nothing runs", stands("MetricsAvailable", "False", "NoReadyEngine")),
    Case("OutriderMetricsMissing", "asleep", stands("MetricsAvailable", "Unknown", "Idle")),
    Case("OutriderMetricsMissing", "fresh", stands("MetricsAvailable", "True", "Fresh")),
    Case("OutriderScheduleNotApplied", "refused", stands("ScheduleApplied", "False", "EngineRefused"),
         "Reason EngineRefused. They go on with the one before, after its lease with the initial one."),
    Case("OutriderScheduleNotApplied", "on its way for a minute",
         stands("ScheduleApplied", "False", "Delivering"), at="1m"),
    Case("OutriderScheduleNotApplied", "acknowledged", stands("ScheduleApplied", "True", "Acknowledged")),
    Case("OutriderEnginesNotControllable", "one of two",
         stands("ScheduleApplied", "False", "EngineRefused") | gauge("outrider_engine_controllable", 0)
         | gauge("outrider_engine_controllable", 1, ENGINE.replace("chat-a", "chat-b")),
         "1 engines report controllable=0: the runtime plugin does not know their vLLM, or could not reach its"
         " scheduler."),
    Case("OutriderEnginesNotControllable", "there is nothing to choose",
         stands("ScheduleApplied", "True", "NothingToChoose") | gauge("outrider_engine_controllable", 0)),
    Case("OutriderEnginesNotControllable", "mode Off has no schedule", gauge("outrider_engine_controllable", 0)),
    Case("OutriderEnginesNotControllable", "all are",
         stands("ScheduleApplied", "True", "Acknowledged") | gauge("outrider_engine_controllable", 1)),
    # Scaling.
    Case("OutriderScalingLimited", "eight of six",
         gauge("outrider_replicas_for_load", 8, OWN) | gauge("outrider_max_replicas", 6, OWN),
         "Its load needs 8 replicas within the objectives, and spec.autoscaling.maxReplicas is less."),
    Case("OutriderScalingLimited", "six of six",
         gauge("outrider_replicas_for_load", 6, OWN) | gauge("outrider_max_replicas", 6, OWN)),
    Case("OutriderScalingLimited", "idle", gauge("outrider_replicas_for_load", 0, OWN)
         | gauge("outrider_max_replicas", 6, OWN)),
    Case("OutriderScalingLimited", "nobody scales", gauge("outrider_replicas_for_load", 8, OWN)),
    Case("OutriderCapacityLimited", "no GPU", stands("CapacityLimited", "True", "NoFreeGPU"),
         "Reason NoFreeGPU. Some engines serve, and the others that are wanted wait for a place."),
    Case("OutriderCapacityLimited", "there is room", stands("Ready", "True", "EnginesServe")),
    Case("OutriderAutoscalingNotReady", "fallback", stands("AutoscalingReady", "False", "Fallback"),
         "Reason Fallback." + NOT_SCALED),
    Case("OutriderAutoscalingNotReady", "waking", stands("AutoscalingReady", "Unknown", "Starting")),
    Case("OutriderAutoscalingNotReady", "asleep", stands("AutoscalingReady", "True", "Idle")),
    # Life.
    Case("OutriderRevisionNotCurrent", "withdrawn", stands("RevisionCurrent", "False", "CandidateWithdrawn"),
         "Reason CandidateWithdrawn. They serve with the revision before.", at="40m"),
    Case("OutriderRevisionNotCurrent", "compared", stands("RevisionCurrent", "False", "CandidateCompared"), at="40m"),
    Case("OutriderRevisionNotCurrent", "for twenty minutes", stands("RevisionCurrent", "False", "CandidateWithdrawn")),
    Case("OutriderRevisionNotCurrent", "no GPU for it", stands("RevisionCurrent", "False", "CandidateWaits"),
         "Reason CandidateWaits. They serve with the revision before.", at="40m"),
    Case("OutriderRevisionNotCurrent", "nobody approves", stands("RevisionCurrent", "False", "ApprovalNeeded"),
         "Reason ApprovalNeeded. They serve with the revision before.", at="40m"),
    Case("OutriderTrialStuck", "a start of ten minutes takes forty", stage(600, "CandidateStarts"),
         "Reason CandidateStarts, for 40m 0s now," + TOO_LONG, at="40m"),
    Case("OutriderTrialStuck", "the same under renamed labels", stage(600, "CandidateStarts", RENAMED),
         "Reason CandidateStarts, for 40m 0s now," + TOO_LONG, at="40m"),
    Case("OutriderTrialStuck", "a comparison within its time", stage(7200, "CandidateCompared"), at="40m"),
    Case("OutriderTrialStuck", "past its time for ten minutes", stage(600, "CandidateCompared")),
    Case("OutriderTrialStuck", "it waits for approval", stage(None, "ApprovalNeeded"), at="40m"),
    Case("OutriderServiceNotReady", "no GPU", stands("Ready", "False", "NoFreeGPU"), "Reason NoFreeGPU."),
    Case("OutriderServiceNotReady", "not known", stands("Ready", "Unknown", "InternalError"), "Reason InternalError."),
    Case("OutriderServiceNotReady", "weights load", stands("Ready", "False", "Starting")),
    Case("OutriderServiceNotReady", "asleep", stands("Ready", "True", "Idle")),
    Case("OutriderEngineRestarts", "three in a few minutes", process(40, ENGINE),
         "At least 3 restarts in the last hour; one that ends before it was ever scraped counts once."),
    Case("OutriderEngineRestarts", "never up long enough for a scrape",
         stands("RolloutProgressing", "False", "EngineCrashLoop"),
         "At least 1 restarts in the last hour; one that ends before it was ever scraped counts once."),
    Case("OutriderEngineRestarts", "none", process(None, ENGINE)),
    Case("OutriderEngineRestarts", "forgotten after an hour", process(4, ENGINE), at="70m"),
    Case("OutriderEngineRestarts", "another program's", process(40, 'namespace="ml",pod="database-0"')),
    Case("OutriderOperatorRestarts", "three", process(40, SELF) | gauge("outrider_services", 1, SELF),
         "3 restarts in the last hour. Engines go on with their last schedule meanwhile.", labels=OPERATOR),
    Case("OutriderOperatorRestarts", "another program's",
         process(40, 'namespace="outrider-system",job="other",instance="10.0.0.8:80"')
         | gauge("outrider_services", 1, SELF)),
    Case("OutriderOperatorDown", "nobody reports", {}, NOBODY_ACTS, labels={}),
    Case("OutriderOperatorDown", "it does", gauge(LEADER, 1, SELF)),
    Case("OutriderOperatorDown", "all wait and nobody acts", gauge(LEADER, 0, SELF) | gauge(LEADER, 0, OTHER),
         NOBODY_ACTS, labels={}),
    Case("OutriderOperatorDown", "one acts and one waits", gauge(LEADER, 1, SELF) | gauge(LEADER, 0, OTHER)),
    Case("OutriderOperatorDown", "one follows on another",
         {f"{LEADER}{{{SELF}}}": f"1x20 _x{HOUR}", f"{LEADER}{{{OTHER}}}": f"0x22 1x{HOUR}"}),
    Case("OutriderNotDeciding", "the last pass is long ago", gauge(PASS, 0, SELF) | gauge(LEADER, 1, SELF),
         "Its last control pass ended 20m 0s ago; one should end every 15 s.", labels=OPERATOR),
    Case("OutriderNotDeciding", "a pass a quarter minute",
         {f"{PASS}{{{SELF}}}": f"0+15x{HOUR}"} | gauge(LEADER, 1, SELF)),
    Case("OutriderNotDeciding", "one waits while another decides",
         {f"{PASS}{{{SELF}}}": f"0+15x{HOUR}"} | gauge(LEADER, 1, SELF) | gauge(PASS, 0, OTHER)
         | gauge(LEADER, 0, OTHER)),
    Case("OutriderNotDeciding", "one that waits is not the one that should decide",
         gauge(PASS, 0, OTHER) | gauge(LEADER, 0, OTHER)),
    Case("OutriderNotDeciding", "the one that acts does not decide, and the one before it has",
         gauge(PASS, 0, SELF) | gauge(LEADER, 1, SELF)
         | {f"{PASS}{{{OTHER}}}": f"0+15x{HOUR}"} | gauge(LEADER, 0, OTHER),
         "Its last control pass ended 20m 0s ago; one should end every 15 s.", labels=OPERATOR),
)  # fmt: skip


def expected(case: Case) -> list[dict[str, Any]]:
    """What promtool should find."""
    if case.description is None:
        return []
    rule = next(alert for alert in alerts.ALERTS if alert.name == case.alert)
    summary = rule.summary
    for label, value in case.labels.items():
        summary = summary.replace(f"{{{{ $labels.{label} }}}}", value)
    annotations = {**rule.rule()["annotations"], "summary": summary, "description": case.description}
    return [{"exp_labels": {**case.labels, "severity": rule.severity}, "exp_annotations": annotations}]


def document(cases: Iterable[Case], rules: Path) -> dict[str, Any]:
    """Cases as promtool reads them."""
    return {
        "rule_files": [str(rules)],
        "evaluation_interval": INTERVAL,
        "tests": [
            {
                "name": case.name,
                "interval": INTERVAL,
                "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
                "alert_rule_test": [{"eval_time": case.at, "alertname": case.alert, "exp_alerts": expected(case)}],
            }
            for case in cases
        ],
    }


def verdict(promtool: Path, cases: Collection[Case], folder: Path) -> subprocess.CompletedProcess[str]:
    """What promtool says to them; it is given the rules that they are about alone, and so is ten times as quick."""
    about = {case.alert for case in cases}
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    own = [rule for rule in group["rules"] if rule["alert"] in about]
    rules, path = folder / "rules.yaml", folder / "cases.yaml"
    rules.write_text(json.dumps({"groups": [{"name": group["name"], "rules": own}]}))
    path.write_text(json.dumps(document(cases, rules)))  # JSON is YAML, without the anchors of what is equal
    return run(promtool, "test", "rules", path)


def run(promtool: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("alert", alerts.ALERTS, ids=lambda alert: alert.name)
def test_an_alert_fires_when_it_should_with_its_words_and_at_no_other_time(
    promtool: Path, alert: alerts.Alert, tmp_path: Path
) -> None:
    done = verdict(promtool, [case for case in CASES if case.alert == alert.name], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_well_formed(promtool: Path) -> None:
    done = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_case_that_expects_the_wrong_thing_fails(promtool: Path, tmp_path: Path) -> None:
    """Or all of the above would prove nothing."""
    fires = next(case for case in CASES if case.description is not None)
    silent = Case(fires.alert, fires.name, fires.series)
    assert verdict(promtool, [silent], tmp_path).returncode != 0
    other = Case(fires.alert, fires.name, fires.series, f"{fires.description} And more.")
    assert verdict(promtool, [other], tmp_path).returncode != 0


def test_every_alert_is_seen_to_fire_and_seen_to_keep_still() -> None:
    every = {alert.name for alert in alerts.ALERTS}
    assert {case.alert for case in CASES if case.description is not None} == every
    assert {case.alert for case in CASES if case.description is None} == every
