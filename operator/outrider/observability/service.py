"""The dashboard of one service: what speculation yields, what it costs, and what was decided."""

from __future__ import annotations

from outrider.core import engine_metrics as names
from outrider.observability.panels import STACKED, STEPS, Dashboard, Panel, Query, Row, Variable, dashed, stat
from outrider.observability.promql import SERVICE_LABEL, own_of_service, rate, ratio
from outrider.observability.promql import of_service as of
from outrider.observability.service_speculation import EFFICIENCY, SCHEDULE, STEP_TIME
from outrider.observability.service_terms import (
    ACCEPTED,
    COST,
    DRAFTED,
    GPUS,
    REPLICAS,
    RUNNING,
    SPEEDUP,
    TOKENS,
    WAITING,
    quantile,
    quantiles,
)
from outrider.observability.service_trial import TRIAL

GPU_HOUR = "2.50"
"""What a GPU costs an hour until somebody types what it does cost."""

NOW = Row(
    "Now",
    (
        stat(
            "Speculative tokens (K)",
            "K of the schedule in force at the median batch size of the last window.",
            "none",
            own_of_service("outrider_speculative_tokens"),
        ),
        stat(
            "Tokens a step",
            "Acceptance length that the operator estimates at this K: the tokens that one request gains in a step,"
            " the bonus token included.",
            "none",
            own_of_service("outrider_acceptance_length"),
            decimals=2,
        ),
        stat(
            "Acceptance rate",
            "Accepted over drafted tokens, all positions and all K together.",
            "percentunit",
            ratio(ACCEPTED, DRAFTED),
        ),
        stat(
            "Speedup by speculation",
            "Measured token goodput over the estimate for the same engines without a drafter, at the same batch sizes."
            " Under 1 speculation costs more than it gives.",
            "none",
            SPEEDUP,
            decimals=2,
        ),
        stat("Replicas", "Engine pods that are scraped.", "none", REPLICAS),
        stat(
            "Cost of a million tokens",
            "GPU hours of all replicas at the price at the top, for a million generated tokens.",
            "currencyUSD",
            COST,
        ),
    ),
)

TRAFFIC = Row(
    "Throughput and latency",
    (
        Panel(
            "Throughput",
            "Generated and prompt tokens a second, all engines together.",
            "short",
            (
                Query(TOKENS, "generated"),
                Query(f"sum({rate(of(names.PROMPT_TOKENS))})", "prompt"),
            ),
            axis="tokens a second",
        ),
        Panel(
            "Time per output token (TPOT)",
            "A request's decode time over its tokens, of requests that finished; with the objective of the resource.",
            "s",
            (
                *quantiles(names.TPOT),
                Query(own_of_service("outrider_objective_seconds", objective="tpot"), "objective"),
            ),
            overrides=(dashed("objective"),),
            defaults={"min": 0},
        ),
        Panel(
            "Time to first token (TTFT)",
            "From arrival to the first token; with the objective of the resource, where it has one.",
            "s",
            (
                *quantiles(names.TTFT),
                Query(own_of_service("outrider_objective_seconds", objective="ttft"), "objective"),
            ),
            overrides=(dashed("objective"),),
            defaults={"min": 0},
        ),
        Panel(
            "Throughput against latency",
            "Each point is one moment: generated tokens a second across, P95 of TPOT up. Points that move right without"
            " moving up are what a better K gives.",
            "s",
            (Query(TOKENS, "tokens per second"), Query(quantile(0.95, names.TPOT), "TPOT P95")),
            kind="xychart",
            defaults={"custom": {"show": "points", "pointSize": {"fixed": 5}}},
            options={"mapping": "manual", "series": [
                {"x": {"matcher": {"id": "byName", "options": "tokens per second"}},
                 "y": {"matcher": {"id": "byName", "options": "TPOT P95"}}}
            ]},
            transformations=({"id": "joinByField", "options": {"byField": "Time", "mode": "inner"}},),
        ),
        Panel(
            "Requests",
            "Requests that run in a batch, and that wait for a place in one.",
            "short",
            (Query(RUNNING, "running"), Query(WAITING, "waiting")),
            axis="requests",
            defaults=STACKED,
        ),
        Panel(
            "Time in the queue",
            "What requests waited for a place in a batch; vLLM's first bound is 300 ms, and lower values are guessed"
            " within it.",
            "s",
            quantiles(names.QUEUE_TIME),
            defaults={"min": 0},
        ),
    ),
)  # fmt: skip

CAPACITY = Row(
    "Capacity and replicas",
    (
        Panel(
            "Requests in flight a replica",
            "What one replica carries now, what it can carry within the objectives with the limit that it meets first,"
            " and the target of the autoscaler on its way there.",
            "none",
            (
                Query(f"({RUNNING} + {WAITING}) / {REPLICAS}", "in flight"),
                Query(
                    own_of_service("outrider_capacity_requests", "limited_by"), "capacity, limited by {{limited_by}}"
                ),
                Query(own_of_service("outrider_requests_per_replica"), "target"),
            ),
            axis="requests",
            overrides=(dashed("capacity.*"),),
            defaults={"min": 0},
        ),
        Panel(
            "Replicas",
            "Engine pods that are scraped, those that the load needs, those asked of the autoscaler, and the most that"
            " it may have.",
            "none",
            (
                Query(REPLICAS, "present"),
                Query(own_of_service("outrider_replicas_for_load"), "needed"),
                Query(own_of_service("outrider_desired_replicas"), "desired"),
                Query(own_of_service("outrider_max_replicas"), "most"),
            ),
            axis="replicas",
            overrides=(dashed("most"),),
            defaults={**STEPS, "min": 0},
        ),
        Panel(
            "KV cache",
            "Share of each engine's KV cache in use; above 90 % requests are preempted and computed again.",
            "percentunit",
            (Query(f"max by (pod) ({of(names.KV_CACHE_USAGE)})", "{{pod}}"),),
            defaults={"min": 0, "max": 1},
        ),
        Panel(
            "Preemptions",
            "Requests that lost their place in the KV cache, a second.",
            "reqps",
            (Query(f"sum({rate(of(names.NUM_PREEMPTIONS))})", "preempted"),),
            defaults={"min": 0},
        ),
    ),
)

COSTS = Row(
    "Cost",
    (
        Panel(
            "GPU cost of a million tokens",
            "GPU hours of the present replicas at the price at the top, for a million generated tokens; and the same"
            " for engines without a drafter, whose token goodput is estimated (see Speedup). At equal batch sizes: what"
            " fewer replicas would save comes on top.",
            "currencyUSD",
            (Query(COST, "measured"), Query(f"{COST} * {SPEEDUP}", "without a drafter, estimated")),
            overrides=(dashed("without.*"),),
            width=12,
            defaults={"min": 0},
        ),
        Panel(
            "GPUs",
            "GPUs that the present replicas hold.",
            "none",
            (Query(GPUS, "GPUs"),),
            width=6,
            axis="GPUs",
            defaults={**STEPS, "min": 0},
        ),
        Panel(
            "Conditions",
            "Conditions of the resource as they stand now, with the reason.",
            "none",
            (
                Query(
                    own_of_service("outrider_condition", "type", "status", "reason"),
                    instant=True,
                ),
            ),
            kind="table",
            width=6,
            transformations=(
                {"id": "organize", "options": {"excludeByName": {"Time": True, "Value": True}}},
                {"id": "sortBy", "options": {"sort": [{"field": "type"}]}},
            ),
        ),
    ),
)

SERVICE = Dashboard(
    "outrider-service",
    "Outrider / one service",
    "One service: what speculation yields and costs, what was decided, and what limits it.",
    (
        Variable(
            "namespace", "Namespace", f'label_values({names.NUM_REQUESTS_RUNNING[0]}{{{SERVICE_LABEL}!=""}}, namespace)'
        ),
        Variable(
            "service",
            "Service",
            f'label_values({names.NUM_REQUESTS_RUNNING[0]}{{namespace="$namespace"}}, {SERVICE_LABEL})',
        ),
        Variable("gpu_hour", "Price of a GPU hour", text=GPU_HOUR),
    ),
    (NOW, EFFICIENCY, TRAFFIC, SCHEDULE, STEP_TIME, CAPACITY, TRIAL, COSTS),
)
