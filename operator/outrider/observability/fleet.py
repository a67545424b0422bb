"""The dashboard of the fleet: every service beside the others."""

from __future__ import annotations

from outrider.core import engine_metrics as names
from outrider.observability.panels import STACKED, STEPS, Dashboard, Panel, Query, Row, Variable, stat
from outrider.observability.promql import SERVICE_LABEL, STABLE, by_service, own_of_fleet, rate, ratio
from outrider.observability.promql import of_fleet as of

NAME = "{{namespace}}/{{service}}"
TOKENS = by_service("sum", rate(of(names.GENERATION_TOKENS)))
DRAFTED = by_service("sum", rate(of(names.NUM_DRAFT_TOKENS, **STABLE)))
ACCEPTED = by_service("sum", rate(of(names.NUM_ACCEPTED_TOKENS, **STABLE)))
IN_FLIGHT = f"{by_service('sum', of(names.NUM_REQUESTS_RUNNING))} + {by_service('sum', of(names.NUM_REQUESTS_WAITING))}"
REPLICAS = f"count by (namespace, service) ({by_service('count', of(names.NUM_REQUESTS_RUNNING), 'pod')})"
GPUS = f"{REPLICAS} * on (namespace, service) {own_of_fleet('outrider_gpus_per_replica')}"
TPOT, TPOT_OBJECTIVE = (own_of_fleet(f"outrider_{name}_seconds", objective="tpot") for name in ("latency", "objective"))

NOW = Row(
    "Now",
    (
        stat("Services", "Services that the operator has under control.", "none", "sum(outrider_services)"),
        stat(
            "Not ready",
            "Services whose condition Ready is not True.",
            "none",
            f"count({own_of_fleet('outrider_condition', type='Ready', status='!True')}) or vector(0)",
        ),
        stat("Replicas", "Engine pods that are scraped.", "none", f"sum({REPLICAS})"),
        stat("GPUs", "GPUs that they hold.", "none", f"sum({GPUS})"),
        stat("Requests in flight", "Requests that run or wait, all services together.", "none", f"sum({IN_FLIGHT})"),
        stat("Tokens a second", "Generated tokens, all services together.", "short", f"sum({TOKENS})"),
    ),
)

_COLUMNS = (
    ("K", own_of_fleet("outrider_speculative_tokens")),
    ("Tokens a step", own_of_fleet("outrider_acceptance_length")),
    ("Acceptance rate", ratio(ACCEPTED, DRAFTED)),
    ("Speedup", own_of_fleet("outrider_speculation_speedup_ratio")),
    ("Tokens a second", TOKENS),
    ("In flight", IN_FLIGHT),
    ("Replicas", REPLICAS),
    ("Needed", own_of_fleet("outrider_replicas_for_load")),
    ("TPOT", TPOT),
    ("Objective", TPOT_OBJECTIVE),
)
"""Of the table, with the query that fills each."""
_UNITS = {"Acceptance rate": "percentunit", "Tokens a second": "short", "TPOT": "s", "Objective": "s"}

SERVICES = Row(
    "Services",
    (
        Panel(
            "Services",
            "Every service with what it does now: K at its median batch size, tokens a request gains in a step,"
            " accepted over drafted tokens, token goodput over the estimate without a drafter, load, replicas present"
            " and needed, and the time per output token at its percentile beside its objective.",
            "none",
            tuple(Query(expr, instant=True) for _, expr in _COLUMNS),
            kind="table",
            width=24,
            height=9,
            defaults={"decimals": 2},
            overrides=tuple(
                {
                    "matcher": {"id": "byName", "options": column},
                    "properties": [{"id": "unit", "value": unit}],
                }
                for column, unit in _UNITS.items()
            ),
            transformations=(
                {"id": "merge", "options": {}},
                {
                    "id": "organize",
                    "options": {
                        "excludeByName": {"Time": True},
                        "renameByName": {
                            f"Value #{chr(ord('A') + index)}": column for index, (column, _) in enumerate(_COLUMNS)
                        },
                    },
                },
            ),
        ),
        Panel(
            "Conditions that are not True",
            "Conditions of all services that are not True, with the reason. Those that are only there when something is"
            " the matter, and then are True, are in the dashboard of the service.",
            "none",
            (
                Query(
                    own_of_fleet("outrider_condition", "type", "status", "reason", status="!True"),
                    instant=True,
                ),
            ),
            kind="table",
            width=24,
            height=6,
            empty="Every condition is True; if there are no services above either, the operator is not scraped.",
            transformations=({"id": "organize", "options": {"excludeByName": {"Time": True, "Value": True}}},),
        ),
    ),
)

COURSE = Row(
    "Course",
    (
        Panel(
            "Throughput",
            "Generated tokens a second by service.",
            "short",
            (Query(TOKENS, NAME),),
            axis="tokens a second",
            defaults=STACKED,
        ),
        Panel(
            "Acceptance rate",
            "Accepted over drafted tokens by service.",
            "percentunit",
            (Query(ratio(ACCEPTED, DRAFTED), NAME),),
            defaults={"min": 0, "max": 1},
        ),
        Panel(
            "Speculative tokens (K)",
            "K at the median batch size by service.",
            "none",
            (Query(own_of_fleet("outrider_speculative_tokens"), NAME),),
            axis="tokens drafted a step",
            defaults=STEPS,
        ),
        Panel(
            "Speedup by speculation",
            "Measured token goodput over the estimate without a drafter, by service; under 1 speculation costs more"
            " than it gives.",
            "none",
            (Query(own_of_fleet("outrider_speculation_speedup_ratio"), NAME),),
            axis="times the tokens of no drafter",
            defaults={"decimals": 2},
        ),
        Panel(
            "Time over its objective",
            "Time per output token at the percentile of each service over what its objective allows; above 1 the"
            " objective is missed.",
            "percentunit",
            (Query(f"{TPOT} / {TPOT_OBJECTIVE}", NAME),),
            defaults={"min": 0},
        ),
        Panel(
            "GPUs",
            "GPUs that the replicas of each service hold.",
            "none",
            (Query(GPUS, NAME),),
            axis="GPUs",
            defaults=STACKED,
        ),
    ),
)

FLEET = Dashboard(
    "outrider-fleet",
    "Outrider / fleet",
    "All services: what they do, what speculation gives each, and where something is the matter.",
    (
        Variable(
            "namespace",
            "Namespace",
            f'label_values({names.NUM_REQUESTS_RUNNING[0]}{{{SERVICE_LABEL}!=""}}, namespace)',
            many=True,
        ),
    ),
    (NOW, SERVICES, COURSE),
)
