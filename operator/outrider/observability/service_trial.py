"""The row of a service's dashboard about a change on trial: the candidate beside the stable engines."""

from __future__ import annotations

from outrider.core import engine_metrics as names
from outrider.core.revisions.processes import TRACK
from outrider.observability.panels import Panel, Query, Row, dashed
from outrider.observability.promql import of_service as of
from outrider.observability.promql import own_of_service, rate, ratio

NONE_NOW = "no candidate"
BY_TRACK = f"{{{{{TRACK}}}}}"
"""Legend of a query by track."""


def _by_track(vector: str) -> str:
    return f"sum by ({TRACK}) ({vector})"


def _within(objective: str) -> Panel:
    name = objective.upper()
    within = own_of_service("outrider_trial_within_objective_ratio", "track", objective=objective)
    return Panel(
        f"Requests within the {name} objective",
        f"Share of the requests since the trial began that met the {name} objective, as the verdict has it: more than 5"
        " points lost are no promotion.",
        "percentunit",
        (Query(within, "{{track}}"),),
        width=6,
        empty=NONE_NOW,
        defaults={"max": 1},
    )


TRIAL = Row(
    "Candidate on trial",
    (
        Panel(
            "Stage",
            "How far the trial is. It waits for a GPU, starts, runs beside the stable engines and is compared, perhaps"
            " waits for approval, and is promoted; or it ends before.",
            "none",
            (Query(own_of_service("outrider_trial_stage", "stage"), "{{stage}}"),),
            kind="status-history",
            width=6,
            empty=NONE_NOW,
            defaults={"decimals": 0, "min": 0},
            options={"showValue": "never", "rowHeight": 0.9},
        ),
        Panel(
            "Gain in token goodput",
            "Of the candidate over the stable engines at like load, with the bounds that the verdict goes by. A draft"
            " or a K must be surely above 0, an image or a setting surely not below the margin.",
            "percentunit",
            (
                Query(own_of_service("outrider_trial_gain_ratio"), "gain"),
                Query(own_of_service("outrider_trial_gain_low_ratio"), "bound below"),
                Query(own_of_service("outrider_trial_gain_high_ratio"), "bound above"),
            ),
            width=9,
            empty=f"{NONE_NOW}, or nothing found yet",
            overrides=(dashed("bound.*"),),
            defaults={"decimals": 1},
        ),
        Panel(
            "Tokens of a running request",
            "Tokens a second that a request gets while it is decoded, of the requests that ended: 1 over the mean time"
            " of an output token. Only at like batch size does it compare.",
            "none",
            (
                Query(
                    ratio(
                        _by_track(rate(of(names.TPOT, "_count"))),
                        _by_track(rate(of(names.TPOT, "_sum"))),
                    ),
                    BY_TRACK,
                ),
            ),
            width=9,
            axis="tokens a second",
            defaults={"min": 0},
        ),
        _within("tpot"),
        _within("ttft"),
        Panel(
            "Requests that fail",
            "Share of the requests since the trial began that ended by a fault of the engine or of its server. One"
            " point more than on the stable engines, beyond chance, withdraws the candidate.",
            "percentunit",
            (Query(own_of_service("outrider_trial_failed_ratio", "track"), "{{track}}"),),
            width=6,
            empty=NONE_NOW,
            defaults={"min": 0},
        ),
        Panel(
            "Trials that ended",
            "How trials ended, within a day up to each moment.",
            "none",
            (Query(own_of_service("outrider_trials_ended_total", "outcome", function="increase 1d"), "{{outcome}}"),),
            width=6,
            axis="trials in a day",
            empty="no trial yet",
            defaults={"min": 0, "decimals": 0},
        ),
    ),
)
