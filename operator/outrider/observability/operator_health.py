"""The dashboard of the operator itself: does it live, does it decide, who does not answer it."""

from __future__ import annotations

from outrider.core import engine_metrics as names
from outrider.observability.panels import STACKED, Dashboard, Panel, Query, Row, Variable, stat
from outrider.observability.promql import known

MINE = 'namespace=~"$operator"'
"""The operators of the namespaces chosen: these series have no service."""
SELF = f"and on (job, instance) outrider_services{{{MINE}}}"
"""Metrics that every process has, of an operator's."""
RATE = "[$__rate_interval]"
NONE_YET = "None since the operator started; if Life is empty too, it is not scraped."
"""Of counters by reason, which have no series before the first time."""


def _quantiles(histogram: str) -> tuple[Query, ...]:
    buckets = f"sum by (le) (rate({histogram}_bucket{{{MINE}}}{RATE}))"
    return tuple(Query(known(f"histogram_quantile({share}, {buckets})"), f"P{100 * share:g}") for share in (0.5, 0.99))


def _by_reason(counter: str) -> tuple[Query, ...]:
    return (Query(f"sum by (reason) (rate({counter}{{{MINE}}}{RATE})) * 60", "{{reason}}"),)


LIFE = Row(
    "Life",
    (
        stat(
            "Since the last control pass",
            "One should end every control period, 15 s unless set otherwise.",
            "s",
            f"time() - max(outrider_last_control_pass_timestamp_seconds{{{MINE}}})",
            width=6,
        ),
        stat("Services", "Services under control.", "none", f"sum(outrider_services{{{MINE}}})", width=6),
        stat(
            "Restarts in an hour",
            "Of the operator's process; engines go on meanwhile.",
            "none",
            f"sum(changes({names.PROCESS_START[0]}[1h]) {SELF})",
            width=6,
        ),
        stat(
            "Memory", "Resident memory of the process.", "bytes", f"sum(process_resident_memory_bytes {SELF})", width=6
        ),
    ),
)

PASSES = Row(
    "Passes",
    (
        Panel(
            "Control pass",
            "From the question to Prometheus to the last decision, over the whole fleet. Must stay well under the"
            " control period.",
            "s",
            _quantiles("outrider_control_pass_seconds"),
            defaults={"min": 0},
        ),
        Panel(
            "Objects pass",
            "Looking at one service and applying what differs.",
            "s",
            _quantiles("outrider_reconcile_seconds"),
            defaults={"min": 0},
        ),
        Panel(
            "Objects passes",
            "How many services were looked at, a second.",
            "none",
            (Query(f"sum(rate(outrider_reconcile_seconds_count{{{MINE}}}{RATE}))", "passes"),),
            axis="passes a second",
            defaults={"min": 0},
        ),
        Panel(
            "Decisions",
            "Changes of schedules and of the autoscaler's targets, within an hour up to each moment.",
            "none",
            tuple(
                Query(f"sum(increase(outrider_{kind}_changes_total{{{MINE}}}[1h]))", kind)
                for kind in ("schedule", "target")
            ),
            axis="changes in an hour",
            defaults={"min": 0, "decimals": 1},
        ),
        Panel(
            "Held, by reason",
            "Control passes of a service in which its schedule was held, a minute. Most hold because nothing is worth a"
            " change.",
            "none",
            _by_reason("outrider_holds_total"),
            axis="passes a minute",
            empty=NONE_YET,
            defaults=STACKED,
        ),
        Panel(
            "Failed objects passes",
            "A minute, by reason. None is the rule; the reasons are those of condition Ready.",
            "none",
            _by_reason("outrider_reconcile_failures_total"),
            axis="passes a minute",
            empty=NONE_YET,
            defaults=STACKED,
        ),
    ),
)

NEIGHBOURS = Row(
    "Engines and process",
    (
        Panel(
            "Delivery",
            "From the call to an engine's acknowledgement of a schedule.",
            "s",
            _quantiles("outrider_delivery_seconds"),
            defaults={"min": 0},
        ),
        Panel(
            "Failed deliveries",
            "Schedules that an engine did not take, a minute, by reason.",
            "none",
            _by_reason("outrider_delivery_failures_total"),
            axis="deliveries a minute",
            empty=NONE_YET,
            defaults=STACKED,
        ),
        Panel(
            "Processor",
            "Processor time of the operator, in cores.",
            "none",
            (Query(f"sum(rate(process_cpu_seconds_total{RATE}) {SELF})", "cores"),),
            axis="cores",
            defaults={"min": 0},
        ),
    ),
)

OPERATOR = Dashboard(
    "outrider-operator",
    "Outrider / operator",
    "The operator: whether it lives and decides, how long its passes take, and who does not answer it.",
    (Variable("operator", "Operator's namespace", "label_values(outrider_services, namespace)", many=True),),
    (LIFE, PASSES, NEIGHBOURS),
)
