"""The demo's result as one document, and whether it is what the demo promises. No I/O.

Every number comes from the API server, the engines or Prometheus; only the sentences of decisions are the operator's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from demo import scenario
from demo.arms import NOTE, RANKED_BY, Arm, Arms
from demo.changes import POLL_S, ScheduleChange
from demo.facts import ServiceFacts
from demo.scenario import Scenario
from outrider.core.observation import Histogram

CHANGE_WITHIN_S = 60.0
"""Longest time from the drop to engines that draft by another schedule."""
TRACE = (
    "Azure LLM inference trace 2023, conversation (Patel et al., Splitwise, ISCA 2024; CC BY 4.0; copied to"
    " operator/outrider/simulator/data/traces)"
)
ACK_MEASURED = (
    "from the moment the API server showed the decision on record (a watch of ConfigMap <name>-memory) until the last"
    f" ready pod answered GET /schedule with that generation, each asked every {1e3 * POLL_S:.0f} ms"
)


@dataclass(frozen=True, slots=True)
class Live:
    """What was seen of the live part."""

    story: Scenario
    facts: Mapping[str, ServiceFacts]
    changes: Sequence[ScheduleChange]
    """Of all services, in order of time."""
    tokens: float
    tpot_buckets: Sequence[tuple[float, float]]
    """(bound, cumulative count) of the main service."""
    pod_seconds: float
    loads: Mapping[str, Mapping[str, Any]]
    missed_looks: int = 0

    @property
    def arm(self) -> Arm:
        """The live run beside the virtual ones."""
        objective_s = self.facts[scenario.SERVICE].objective_s
        count = self.tpot_buckets[-1][1] if self.tpot_buckets else 0.0
        histogram = Histogram(count=count, buckets=tuple(self.tpot_buckets))
        share = None if objective_s is None else histogram.share_at_most(objective_s)
        return Arm(
            tokens_per_second=round(self.tokens / self.story.seconds, 1),
            tpot_attainment_percent=round(100 * (1.0 if share is None else share), 1),
            replica_seconds=round(self.pod_seconds, 1),
        )


def summarize(live: Live, arms: Arms, times: Mapping[str, float]) -> dict[str, Any]:
    """The whole document; ``times`` are seconds of the demo itself."""
    named, asked = _arms(live, arms), live.facts[scenario.SERVICE].percentile_asked
    document = _headline(live) | {
        "arms": named,
        "percentile_asked": asked,
        "comparison": comparison(named, asked),
        "arms_ranked_by": RANKED_BY,
        "arms_note": NOTE,
        "times": {name: round(seconds, 1) for name, seconds in times.items()},
        "scenario": describe(live.story),
        "load": dict(live.loads),
        "changes": [change.as_dict() for change in live.changes],
        "decisions": decisions(live.facts),
        "virtual_decisions": arms.changes,
        "services": {name: _service(facts) for name, facts in live.facts.items()},
        "looks_without_answer": live.missed_looks,
    }
    missed = missed_demands(document)
    return {"passed": not missed, "missed": missed} | document


def _headline(live: Live) -> dict[str, Any]:
    main = live.facts[scenario.SERVICE]
    changes = [change for change in live.changes if change.service == scenario.SERVICE]
    acks_ms = [1e3 * change.ack_s for change in changes if change.ack_s is not None]
    numbers = [replicas for _, replicas in main.replicas]
    return {
        "service": scenario.SERVICE,
        "engine_pods_replaced_by_tuning": sum(facts.replaced_pods() for facts in live.facts.values()),
        "schedule_changes": len(changes),
        "schedule_changes_acknowledged": len(acks_ms),
        "ack_ms_p50": round(median(acks_ms), 1) if acks_ms else None,
        "ack_ms_max": round(max(acks_ms), 1) if acks_ms else None,
        "ack_measured": ACK_MEASURED,
        "drop_s": round(live.story.drop_s, 1),
        "seconds_from_drop_to_change": seconds_from_drop(changes, live.story.drop_s),
        "target_patches": main.target_patches,
        "scaledobject_uid_constant": all(len(facts.scaled_object_uids) == 1 for facts in live.facts.values()),
        "hpa_uid_constant": all(len(facts.hpa_uids) == 1 for facts in live.facts.values()),
        "replicas_min": min(numbers),
        "replicas_max": max(numbers),
        "replicas_end": numbers[-1],
        "generation_constant": all(len(facts.generations) == 1 for facts in live.facts.values()),
    }


def seconds_from_drop(changes: Sequence[ScheduleChange], drop_s: float) -> float | None:
    """From the drop until every ready pod reported another schedule and its own counters then showed other K.

    None if there was no such change.
    """
    after = [
        change.recorded_s + change.ack_s - drop_s
        for change in changes
        if change.recorded_s >= drop_s and change.ack_s is not None and change.counters_show_k and change.new_k
    ]
    return round(min(after), 1) if after else None


def missed_demands(document: Mapping[str, Any]) -> list[str]:
    """What the demo promises and this run did not show, a sentence each."""
    seconds = document["seconds_from_drop_to_change"]
    arms = document["arms"]
    held = {
        "no engine pod may be replaced by tuning": document["engine_pods_replaced_by_tuning"] == 0,
        "the schedule must change at least twice": document["schedule_changes"] >= 2,
        "every schedule change must be acknowledged by all ready pods": document["schedule_changes"]
        == document["schedule_changes_acknowledged"],
        f"the engines' counters must show another K within {CHANGE_WITHIN_S:.0f} s of the drop in acceptance": seconds
        is not None
        and seconds <= CHANGE_WITHIN_S,
        "the autoscaler's target must be patched at least once": document["target_patches"] >= 1,
        "the ScaledObject must stay the same object": document["scaledobject_uid_constant"],
        "the autoscaler (HPA) must stay the same object": document["hpa_uid_constant"],
        "replicas must move": document["replicas_min"] < document["replicas_max"],
        "replicas must be on their way down at the end": document["replicas_end"] < document["replicas_max"],
        "no spec of a SpeculativeInferenceService may change": document["generation_constant"],
        "all arms must have results": all(arms.get(name) for name in ("outrider", "best_fixed", "worst_fixed")),
    }
    return [sentence for sentence, kept in held.items() if not kept]


def comparison(arms: Mapping[str, Mapping[str, Any]], asked: int) -> list[str]:
    """What the arms say side by side, a sentence each; ``asked`` is the service's percentile.

    The best fixed K is compared with Outrider's replay: like it, it ran in virtual time.
    """
    best, ours, live = arms["best_fixed"], arms["outrider_virtual"], arms["outrider"]
    return [
        f"The best fixed K, {best['speculative_tokens']}, was chosen in hindsight, after every K had been replayed, and"
        f" its target of {best['target']} comes from a load test of this very traffic: nobody has either in advance.",
        f"Beside Outrider in the same replay it served {_beside(best, ours)}.",
        f"The service asks for {asked} % of its requests within the objective:"
        f" {_reached('Outrider, live', live, asked)}; {_reached('Outrider in virtual time', ours, asked)};"
        f" {_reached('best fixed K', best, asked)}.",
    ]


def _beside(arm: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """How an arm differs in cost and in quality from another."""
    cost = 100 * (arm["replica_seconds"] / other["replica_seconds"] - 1)
    met = arm["tpot_attainment_percent"] - other["tpot_attainment_percent"]
    price = "at the same price" if abs(cost) < 0.5 else f"{abs(cost):.0f} % {'cheaper' if cost < 0 else 'dearer'}"
    kept = "as many" if abs(met) < 0.05 else f"{abs(met):.1f} percentage points {'more' if met > 0 else 'fewer'}"
    return f"{price} (replica-seconds) and with {kept} of the requests within the objective"


def _reached(who: str, arm: Mapping[str, Any], asked: int) -> str:
    share = arm["tpot_attainment_percent"]
    return f"{who} {share:.1f} %, {'reached' if share >= asked else 'missed'}"


def decisions(facts: Mapping[str, ServiceFacts]) -> list[dict[str, Any]]:
    """All decisions with their reasons, oldest first."""
    every = sorted((one for each in facts.values() for one in each.decisions), key=lambda one: one.time_s)
    return [
        {
            "time_s": round(one.time_s),
            "service": one.service,
            "kind": one.kind,
            "from": one.before,
            "to": one.after,
            "reason": one.reason,
        }
        for one in every
    ]


def describe(story: Scenario) -> dict[str, Any]:
    """What was played, and what of it is simulated."""
    return {
        "seconds": story.seconds,
        "seed": story.seed,
        "trace": TRACE,
        "requests_per_second_by_time": [[round(time_s, 1), rate] for time_s, rate in story.points()],
        "acceptance_per_token": {"before": scenario.ACCEPTANCE_BEFORE, "after_drop": scenario.ACCEPTANCE_AFTER},
        "engines": (
            "simulated from step times measured on one H100 with vLLM 0.33 and an EAGLE drafter,"
            f" {scenario.DILATION:g} times slower than measured: 40 ms a token here are {40 / scenario.DILATION:g} ms"
            " on that card"
        ),
        "dilation": scenario.DILATION,
        "control_period_s": scenario.CONTROL_PERIOD_S,
        "scrape_interval_s": scenario.SCRAPE_INTERVAL_S,
        "scale_down_stabilization_s": scenario.SCALE_DOWN_STABILIZATION_S,
    }


def _arms(live: Live, arms: Arms) -> dict[str, Any]:
    seconds = live.story.seconds
    ranked = arms.ranked(seconds)
    found = {
        "outrider": live.arm,
        "outrider_virtual": arms.outrider,
        "best_fixed": ranked[0],
        "worst_fixed": ranked[-1],
    }
    named = {name: arm.as_dict(seconds) for name, arm in found.items()}
    return named | {f"fixed_{k}": arm.as_dict(seconds) for k, arm in arms.fixed.items()}


def _service(facts: ServiceFacts) -> dict[str, Any]:
    return {
        "generation_constant": len(facts.generations) == 1,
        "replicas": [[round(time_s, 1), number] for time_s, number in facts.replicas],
        "targets": [[round(time_s, 1), target] for time_s, target in facts.targets],
        "pods": len(facts.all_pods),
        "pods_replaced_by_tuning": facts.replaced_pods(),
        "restarts": sum(pod.restarts for pod in facts.all_pods.values()),
    }
