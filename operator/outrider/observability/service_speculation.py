"""Rows of a service's dashboard about speculation: what it yields, the schedule, the time of steps."""

from __future__ import annotations

from outrider.core import engine_metrics as names
from outrider.observability.panels import STACKED, STEPS, Panel, Query, Row, dashed
from outrider.observability.promql import STABLE, own_of_service, rate, ratio
from outrider.observability.promql import of_service as of
from outrider.observability.service_terms import ACCEPTED, DRAFTED, DRAFTS, SPEEDUP, STEP_SECONDS, STEPS_RUN

EFFICIENCY = Row(
    "Speculation efficiency",
    (
        Panel(
            "Acceptance rate",
            "Accepted over drafted tokens. It falls when K rises, so that it is no measure of a drafter by itself.",
            "percentunit",
            (Query(ratio(ACCEPTED, DRAFTED), "accepted / drafted"),),
            defaults={"min": 0, "max": 1},
        ),
        Panel(
            "Acceptance by position",
            "Accepted at a position over the drafts that proposed it, from the engines' own counters: the share of"
            " drafts of which at least so many tokens were accepted.",
            "percentunit",
            (
                Query(
                    ratio(
                        f"sum by (position) ({rate(of(names.NUM_ACCEPTED_TOKENS_PER_POS, **STABLE))})",
                        f"sum by (position) ({rate(of(names.DRAFT_TOKENS_PER_POS, **STABLE))})",
                    ),
                    "position {{position}}",
                ),
            ),
            defaults={"min": 0, "max": 1},
        ),
        Panel(
            "Acceptance length",
            "Tokens that a request gains in a step in which it drafts: 1 and what was accepted. Measured over all K of"
            " the moment, and estimated by the operator for the present K.",
            "none",
            (
                Query(f"1 + {ratio(ACCEPTED, DRAFTS)}", "measured"),
                Query(own_of_service("outrider_acceptance_length"), "estimated"),
            ),
            axis="tokens a step",
            defaults={"min": 1, "decimals": 2},
        ),
        Panel(
            "Draft tokens",
            "What became of draft tokens. Rejected ones were computed in vain: cheap while the batch is small, and"
            " paid for with throughput once it is large.",
            "short",
            (Query(ACCEPTED, "accepted"), Query(f"{DRAFTED} - {ACCEPTED}", "rejected")),
            axis="tokens a second",
            defaults=STACKED,
        ),
        Panel(
            "Speedup by speculation",
            "Measured token goodput over the estimate for the same engines without a drafter at the same batch sizes;"
            " from decode-only steps. The estimate is a fitted law, good to about 5 %.",
            "none",
            (Query(SPEEDUP, "speedup"), Query("vector(1)", "no drafter")),
            axis="times the tokens of no drafter",
            overrides=(dashed("no drafter"),),
            defaults={"decimals": 2},
        ),
    ),
)

SCHEDULE = Row(
    "Schedule and K",
    (
        Panel(
            "K at the median batch size",
            "K of the schedule in force, at the batch size that half of the steps stay at or under.",
            "none",
            (Query(own_of_service("outrider_speculative_tokens"), "K"),),
            axis="tokens drafted a step",
            defaults=STEPS,
        ),
        Panel(
            "Schedule",
            "K by batch size: what engines look up before each step. A change of the schedule shows as a change of"
            " colour.",
            "none",
            (Query(own_of_service("outrider_schedule_speculative_tokens", "batch"), "batch {{batch}}"),),
            kind="status-history",
            defaults={"color": {"mode": "continuous-BlPu"}, "decimals": 0, "min": 0},
            options={"showValue": "auto", "rowHeight": 0.9},
        ),
        Panel(
            "Steps by K",
            "Share of all steps that ran each K.",
            "percentunit",
            (
                Query(
                    f"sum by (speculative_tokens) ({STEPS_RUN}) / ignoring (speculative_tokens) group_left ()"
                    f" (sum({STEPS_RUN}) > 0)",
                    "K {{speculative_tokens}}",
                ),
            ),
            defaults={**STACKED, "min": 0, "max": 1},
        ),
        Panel(
            "Changes",
            "How often the operator changed the schedule and the target of the autoscaler, within an hour up to each"
            " moment.",
            "none",
            (
                Query(own_of_service("outrider_schedule_changes_total", function="increase 1h"), "schedule"),
                Query(own_of_service("outrider_target_changes_total", function="increase 1h"), "target"),
            ),
            axis="changes in an hour",
            defaults={"min": 0, "decimals": 1},
        ),
        Panel(
            "Generation of the schedule",
            "By engine: those that are behind the others have not taken the last one. 0 is the initial schedule.",
            "none",
            (Query(f"max by (pod) ({of(names.SCHEDULE_GENERATION)})", "{{pod}}"),),
            axis="generation",
            defaults=STEPS,
        ),
        Panel(
            "Lease of the schedule",
            "Seconds until an engine returns to its initial schedule, unless the operator renews it.",
            "s",
            (Query(f"min by (pod) ({of(names.SCHEDULE_LEASE_SECONDS)})", "{{pod}}"),),
            defaults={"min": 0},
        ),
    ),
)

STEP_TIME = Row(
    "Step time",
    (
        Panel(
            "Predicted and measured step time",
            "Mean time of decode-only steps, and what the model of the moment before predicted for these batch sizes"
            " and K. Lasting distance between the two makes for wrong decisions.",
            "s",
            (
                Query(own_of_service("outrider_step_seconds"), "measured"),
                Query(own_of_service("outrider_predicted_step_seconds"), "predicted"),
            ),
            overrides=(dashed("predicted"),),
            defaults={"min": 0},
        ),
        Panel(
            "Step time by K",
            "Mean time of decode-only steps that ran each K, at whatever batch sizes they ran.",
            "s",
            (
                Query(
                    ratio(
                        f"sum by (speculative_tokens) ({rate(of(names.STEP_SECONDS, kind='decode', **STABLE))})",
                        f"sum by (speculative_tokens) ({rate(of(names.STEPS, kind='decode', **STABLE))})",
                    ),
                    "K {{speculative_tokens}}",
                ),
            ),
            defaults={"min": 0},
        ),
        Panel(
            "Batch size",
            "Requests in a step, averaged over the steps of each engine.",
            "none",
            (
                Query(
                    ratio(f"sum by (pod) ({rate(of(names.STEP_REQUESTS, **STABLE))})", f"sum by (pod) ({STEPS_RUN})"),
                    "{{pod}}",
                ),
            ),
            axis="requests in a step",
            defaults={"min": 0, "decimals": 1},
        ),
        Panel(
            "Longest step",
            "The longest step since the scrape before, by engine. Steps of over a second count as stalls.",
            "s",
            (Query(f"max by (pod) ({of(names.LONGEST_STEP_SECONDS)})", "{{pod}}"),),
            defaults={"min": 0},
        ),
        Panel(
            "Stalls",
            "Steps of over a second, within an hour up to each moment.",
            "none",
            (Query(f"sum by (pod) (increase({of(names.STALLS)}[1h]))", "{{pod}}"),),
            axis="stalls in an hour",
            defaults={"min": 0},
        ),
        Panel(
            "Share of time in steps with prefill",
            "Seconds of steps that also ran prompts over seconds of all steps: what slows decoding beside K.",
            "percentunit",
            (
                Query(
                    ratio(f"sum({rate(of(names.STEP_SECONDS, kind='mixed', **STABLE))})", f"sum({STEP_SECONDS})"),
                    "with prefill",
                ),
            ),
            defaults={"min": 0, "max": 1},
        ),
    ),
)
