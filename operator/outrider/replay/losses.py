"""Where each policy loses: its good tokens by interval against the best policy of that interval.

Pure: documents of `summary.summarise` in, numbers and sentences out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from outrider.replay.words import clock, milliseconds

NOTICEABLE = 0.02
"""A smaller part of the best policy's good tokens is no loss: single requests fall to either side of an objective."""
SLOWER = 0.05
"""Part by which the median TPOT may be above the fastest policy's and still be called as good."""

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring intervals, the last one not included."""

    first: int
    last: int


def behind_best(policies: Sequence[Document]) -> dict[str, list[float]]:
    """By policy: how many good tokens a second less than the best policy of each interval, 0 or more."""
    series = {one["name"]: one["timeline"]["goodput_tps"] for one in policies}
    best = [max(values) for values in zip(*series.values(), strict=True)]
    return {
        name: [round(most - value, 1) for most, value in zip(best, values, strict=True)]
        for name, values in series.items()
    }


def losses(policies: Sequence[Document], edges_s: Sequence[float]) -> list[dict[str, Any]]:
    """Per policy: what it lost in all, the stretch in which it lost most, and both in a sentence.

    ``edges_s`` are the bounds of the intervals, one more than there are intervals.
    """
    behind = behind_best(policies)
    seconds = [after - before for before, after in pairwise(edges_s)]
    best = [max(one["timeline"]["goodput_tps"][at] for one in policies) for at in range(len(seconds))]
    in_all = sum(rate * length for rate, length in zip(best, seconds, strict=True))
    rows = []
    for policy in policies:
        lost = [rate * length for rate, length in zip(behind[policy["name"]], seconds, strict=True)]
        span = _worst(
            [part > NOTICEABLE * rate * length for part, rate, length in zip(lost, best, seconds, strict=True)], lost
        )
        share = min(1.0, sum(lost) / in_all) if in_all else 0.0  # what is lost is rounded, and may exceed what there is
        row = {
            "name": policy["name"],
            "lost_tokens": round(sum(lost)),
            "lost_share": round(share, 4),
            "worst": None if span is None else _described(policy, policies, span, seconds, edges_s),
            "slowness": _slowness(policy, policies, edges_s),
        }
        rows.append(row | {"sentence": _sentence(row)})
    return rows


def _worst(noticed: Sequence[bool], lost: Sequence[float]) -> Span | None:
    """The stretch of noticeable intervals that cost most in all; None without one."""
    spans, start = [], None
    for at, is_loss in enumerate([*noticed, False]):
        if is_loss and start is None:
            start = at
        elif not is_loss and start is not None:
            spans.append(Span(start, at))
            start = None
    return max(spans, key=lambda span: sum(lost[span.first : span.last]), default=None)


def _described(
    policy: Document, policies: Sequence[Document], span: Span, seconds: Sequence[float], edges_s: Sequence[float]
) -> dict[str, Any]:
    """The stretch, who did best in it, and what both did there."""
    length_s = edges_s[span.last] - edges_s[span.first]

    def rate(one: Document) -> float:
        values = one["timeline"]["goodput_tps"]
        return float(sum(values[at] * seconds[at] for at in range(span.first, span.last)) / length_s)

    best = max(policies, key=rate)
    return {
        "from_s": edges_s[span.first],
        "to_s": edges_s[span.last],
        "goodput_tps": round(rate(policy), 1),
        "best": best["name"],
        "best_goodput_tps": round(rate(best), 1),
        "here": _conditions(policy, span),
        "there": _conditions(best, span),
    }


def _conditions(policy: Document, span: Span) -> dict[str, float | None]:
    timeline = policy["timeline"]
    return {
        name: _mean(timeline[name][span.first : span.last])
        for name in ("speculative_tokens", "batch", "waiting", "replicas", "tpot_p95_s", "ttft_p95_s")
    }


def _slowness(policy: Document, policies: Sequence[Document], edges_s: Sequence[float]) -> dict[str, Any] | None:
    """How many times longer a token took than with the fastest policy of each interval, by medians; None without any.

    Good tokens do not show this: while every policy meets the objectives, they are the same for all.
    """
    rows = []
    for at, mine in enumerate(policy["timeline"]["tpot_p50_s"]):
        others = [(one["timeline"]["tpot_p50_s"][at], one["name"]) for one in policies]
        known = [(value, name) for value, name in others if value is not None]
        if mine is not None and known:
            rows.append((mine / min(known)[0], at, mine, *min(known)))
    if not rows:
        return None
    ratio, at, mine, fastest_s, fastest = max(rows)
    return {
        "mean_ratio": round(sum(row[0] for row in rows) / len(rows), 3),
        "most": {
            "from_s": edges_s[at], "to_s": edges_s[at + 1], "ratio": round(ratio, 3), "tpot_p50_s": mine,
            "fastest": fastest, "fastest_tpot_p50_s": fastest_s,
        },
    }  # fmt: skip


def _sentence(row: Mapping[str, Any]) -> str:
    return f"{_lost(row)}; {_slow(row['slowness'])}"


def _slow(slowness: Mapping[str, Any] | None) -> str:
    if slowness is None:
        return "no answer had a time per token"
    if slowness["mean_ratio"] < 1.0 + SLOWER:
        return "median TPOT as good as any"
    most = slowness["most"]
    return (
        f"median TPOT {slowness['mean_ratio']:.2f} times the fastest policy's, most at {clock(most['from_s'])}"
        f" ({milliseconds(most['tpot_p50_s'])}, {most['fastest']} {milliseconds(most['fastest_tpot_p50_s'])})"
    )


def _lost(row: Mapping[str, Any]) -> str:
    worst = row["worst"]
    if worst is None:
        return f"never more than {100 * NOTICEABLE:.0f} % behind the best policy of an interval"
    if worst["best"] == row["name"]:
        return (
            f"best over its worst stretch too ({clock(worst['from_s'])} to {clock(worst['to_s'])}): no other policy"
            " leads throughout"
        )
    missing = worst["best_goodput_tps"] - worst["goodput_tps"]
    share = f" ({100 * missing / worst['best_goodput_tps']:.0f} %)" if worst["best_goodput_tps"] else ""
    return (
        f"{clock(worst['from_s'])} to {clock(worst['to_s'])}: {missing:,.0f} good tokens a second{share} behind"
        f" {worst['best']}; {_course(worst['here'])}, {worst['best']} {_course(worst['there'])}"
    )


def _course(conditions: Mapping[str, float | None]) -> str:
    """What a policy did in a stretch, in a few words."""
    k, batch, tpot_s = conditions["speculative_tokens"], conditions["batch"], conditions["tpot_p95_s"]
    words = [] if k is None else [f"K {k:.1f}"]
    replicas = conditions["replicas"]
    words += [] if replicas is None or replicas == round(replicas) else [f"{replicas:.1f} replicas"]
    words += [] if batch is None else [f"{batch:.0f} running a replica"]
    words += [f"{conditions['waiting']:.0f} waiting"] if (conditions["waiting"] or 0.0) >= 1.0 else []
    words += [] if tpot_s is None else [f"TPOT p95 {milliseconds(tpot_s)}"]
    return "with " + ", ".join(words) if words else "with nothing to do"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 5) if known else None
