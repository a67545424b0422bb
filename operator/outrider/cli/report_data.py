"""What ``outrider report`` tells of a service and a period, as one document.

The form is stable within a `SCHEMA`: fields may be added, none changes its meaning. Times are seconds, ``begins_at_s``
Unix time, shares 0 to 1; each list of ``timeline`` is as long as ``edges_s`` less one, with null where nothing was
measured. ``policies`` holds the lines of the plots, in the form of the document of `outrider simulate`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from outrider import __version__
from outrider.adapters.prometheus_questions import Course, Questions
from outrider.cli import questions
from outrider.cli.beliefs import Beliefs
from outrider.cli.connection import Manifest
from outrider.cli.savings import by_k, saving
from outrider.cli.seen import Seen, moment_s
from outrider.core import engine_metrics as names
from outrider.core.steps import StepCell
from outrider.manifests import queries

SCHEMA = "outrider.report/v1"
MOST_POINTS, LEAST_STEP_S = 240, 5.0
LEAST_WINDOW_S = 60.0
"""Of rates, as in `outrider top`."""
MEASURED, WANTED = "measured", "wanted"


@dataclass(frozen=True, slots=True)
class Period:
    """From when to when, Unix time, and how finely."""

    start_s: float
    end_s: float

    @property
    def step_s(self) -> float:
        """Between two points of a plot: whole seconds, at most `MOST_POINTS` of them."""
        return max(LEAST_STEP_S, float(ceil((self.end_s - self.start_s) / MOST_POINTS)))

    @property
    def points(self) -> int:
        """Intervals of a plot."""
        return max(1, int((self.end_s - self.start_s) // self.step_s))

    @property
    def whole(self) -> str:
        """The period as a range of PromQL."""
        return f"{ceil(self.end_s - self.start_s)}s"

    @property
    def window(self) -> str:
        """Of a rate at a point."""
        return f"{ceil(max(LEAST_WINDOW_S, 2 * self.step_s))}s"


async def gather(
    source: Questions, seen: Seen, period: Period, beliefs: Beliefs | None, events: Sequence[Manifest]
) -> dict[str, Any]:
    """Ask for everything and put it together; raises `outrider.errors.MetricsError`."""
    of = questions.selector(seen.namespace, seen.name)
    courses, totals = await asyncio.gather(_courses(source, seen, of, period), _totals(source, seen, of, period))
    rows = totals.pop("rows")
    replicas = courses["replicas", MEASURED]
    gpus = seen.effective.gpus or 1
    counted = [value for value in replicas if value is not None]
    totals["gpu_hours"] = sum(counted) * gpus * period.step_s / 3600 if counted else None
    model = None if beliefs is None else beliefs.model
    length = totals["acceptance_length"]
    saved = None
    if length is not None:
        plain = None if model is None else (lambda batch: float(model.no_drafter_step_time_s(batch)))
        saved = saving(rows, length, gpus / (seen.effective.data or 1), plain)
    return {
        "schema": SCHEMA,
        "outrider": __version__,
        "service": {"namespace": seen.namespace, "name": seen.name},
        "model": seen.body.get("spec", {}).get("model", {}).get("id", ""),
        "state": seen.state[1],
        "store": source.where,
        "objectives": {
            "tpot_s": None if seen.tpot_ms is None else seen.tpot_ms / 1e3,
            "ttft_s": None if seen.ttft_ms is None else seen.ttft_ms / 1e3,
            "percentile": seen.percentile / 100,
        },
        "schedule": seen.tuning.schedule,
        "begins_at_s": period.start_s,
        "edges_s": [period.step_s * number for number in range(period.points + 1)],
        "policies": [
            {"name": line, "timeline": {key: values for (key, one), values in courses.items() if one == line}}
            for line in (MEASURED, WANTED)
        ],
        "totals": totals,
        "steps": [
            {"speculative_tokens": k, "steps": steps, "seconds": seconds, "requests": requests}
            for k, (steps, seconds, requests) in by_k(rows).items()
        ],
        "saved": None if saved is None else {**asdict(saved), "share": saved.share},
        "decisions": _decisions(seen, period),
        "events": _events(events, period),
    }


async def _courses(source: Questions, seen: Seen, of: str, period: Period) -> dict[tuple[str, str], list[float | None]]:
    """The lines of the plots, by quantity and kind of line."""

    def operators(metric: str) -> str:
        return queries.of_operator(metric, seen.namespace, seen.name)

    def rate(aliases: tuple[str, ...]) -> str:
        return questions.rate(aliases, of, period.window)

    def quantile(aliases: tuple[str, ...]) -> str:
        return f"histogram_quantile({seen.percentile / 100:g}, {questions.buckets(aliases, of, period.window)})"

    drafts = rate(names.NUM_DRAFTS)
    replicas = questions.engines(of)
    wanted = {
        ("tokens_tps", MEASURED): questions.tokens_per_second(of, period.window),
        ("speculative_tokens", WANTED): operators("outrider_speculative_tokens"),
        ("speculative_tokens", MEASURED): f"{rate(names.NUM_DRAFT_TOKENS)} / ({drafts} > 0)",
        ("acceptance_length", WANTED): operators("outrider_acceptance_length"),
        ("acceptance_length", MEASURED): f"1 + {rate(names.NUM_ACCEPTED_TOKENS)} / ({drafts} > 0)",
        ("tpot_s", MEASURED): quantile(names.TPOT),
        ("ttft_s", MEASURED): quantile(names.TTFT),
        ("in_flight", MEASURED): f"{questions.in_flight(of)} / {replicas}",
        ("in_flight", WANTED): operators("outrider_requests_per_replica"),
        ("replicas", MEASURED): replicas,
        ("replicas", WANTED): operators("outrider_desired_replicas"),
    }
    first_s = period.start_s + period.step_s
    answers = await asyncio.gather(
        *(source.over(query, first_s, period.end_s, period.step_s) for query in wanted.values())
    )
    return {line: on_grid(rows, period) for line, rows in zip(wanted, answers, strict=True)}


async def _totals(source: Questions, seen: Seen, of: str, period: Period) -> dict[str, Any]:
    """Sums over the period, and the steps by batch and K under ``rows``."""
    counters = {
        "output_tokens": names.GENERATION_TOKENS,
        "prompt_tokens": names.PROMPT_TOKENS,
        "drafts": names.NUM_DRAFTS,
        "drafted_tokens": names.NUM_DRAFT_TOKENS,
        "accepted_tokens": names.NUM_ACCEPTED_TOKENS,
    }
    changes = {
        "schedule_changes": "outrider_schedule_changes_total",
        "target_changes": "outrider_target_changes_total",
    }
    asked = [questions.grown(aliases, of, period.whole) for aliases in counters.values()]
    asked += [_increase(queries.of_operator(metric, seen.namespace, seen.name), period) for metric in changes.values()]
    asked += [questions.steps(one, of, period.whole) for one in (names.STEPS, names.STEP_SECONDS, names.STEP_REQUESTS)]
    asked += [questions.buckets(aliases, of, period.whole) for aliases in (names.TPOT, names.TTFT)]
    answers = await asyncio.gather(*(source.now(query) for query in asked))
    found: dict[str, Any] = {name: _only(rows) for name, rows in zip((*counters, *changes), answers, strict=False)}
    drafts, accepted = found["drafts"], found["accepted_tokens"]
    found["acceptance_length"] = 1 + accepted / drafts if drafts and accepted is not None else None
    found["rows"] = _rows(*answers[-5:-2])
    for name, objective_ms, rows in (
        ("tpot_met", seen.tpot_ms, answers[-2]),
        ("ttft_met", seen.ttft_ms, answers[-1]),
    ):
        histogram = questions.histograms(rows).get((seen.namespace, seen.name))
        known = histogram is not None and objective_ms is not None
        found[name] = histogram.share_at_most(objective_ms / 1e3) if known else None  # type: ignore[union-attr, operator]
    return found


def _increase(query: str, period: Period) -> str:
    """Of the operator's own counter, through restarts of the operator."""
    return f"sum(increase(({query})[{period.whole}:{ceil(period.step_s)}s]))"


def on_grid(rows: Sequence[Course], period: Period) -> list[float | None]:
    """The first series' samples, each at the end of its interval; None where there is none."""
    values: list[float | None] = [None] * period.points
    for time_s, value in rows[0].samples if rows else ():
        at = round((time_s - period.start_s) / period.step_s) - 1
        if 0 <= at < period.points:
            values[at] = value
    return values


def _only(rows: Sequence[Course]) -> float | None:
    return rows[0].samples[-1][1] if rows and rows[0].samples else None


def _rows(steps: Sequence[Course], seconds: Sequence[Course], requests: Sequence[Course]) -> list[StepCell]:
    """Decode-only steps by batch bucket and K."""
    found: dict[tuple[int, int], list[float]] = {}
    for column, rows in enumerate((steps, seconds, requests)):
        for row in rows:
            if row.labels.get("kind") == "decode" and row.samples:
                cell = (int(row.labels["batch"]), int(row.labels["speculative_tokens"]))
                found.setdefault(cell, [0.0, 0.0, 0.0])[column] = row.samples[-1][1]
    return [StepCell(batch, k, False, *sums) for (batch, k), sums in sorted(found.items()) if sums[0] > 0]


def _decisions(seen: Seen, period: Period) -> list[dict[str, Any]]:
    """Those that status keeps, oldest first, seconds from the start."""
    found = [(moment_s(change.time), change) for change in reversed(seen.history)]
    return [
        {
            "at_s": at_s - period.start_s,
            "kind": change.kind,
            "before": change.from_,
            "after": change.to,
            "reason": change.reason,
        }
        for at_s, change in found
        if period.start_s <= at_s <= period.end_s
    ]


def _events(events: Sequence[Mapping[str, Any]], period: Period) -> list[dict[str, Any]]:
    """Events of the service, oldest first."""
    found = []
    for one in events:
        time = one.get("eventTime") or one.get("lastTimestamp") or one.get("firstTimestamp")
        if time and period.start_s <= moment_s(time) <= period.end_s:
            found.append({
                "at_s": moment_s(time) - period.start_s,
                "type": one.get("type", ""),
                "reason": one.get("reason", ""),
                "message": one.get("message") or one.get("note", ""),
            })  # fmt: skip
    return sorted(found, key=lambda one: one["at_s"])
