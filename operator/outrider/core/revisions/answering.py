"""What became of the requests of a window: from what was observed of a boot's engines to `Answers`."""

from __future__ import annotations

from outrider.core.histogram import Histogram
from outrider.core.observation import Observation
from outrider.core.revisions.evidence import NOTHING, Answers


def answers_of(observation: Observation, tpot_s: float | None, ttft_s: float | None) -> Answers:
    """Requests that ended in the window, and how many of them within the objectives; None where there is none.

    Shares within an objective are interpolated in the bucket of the histogram that holds it.
    """
    ended = observation.ended
    tpot_within, tpot_of = _within(observation.tpot, tpot_s)
    ttft_within, ttft_of = _within(observation.ttft, ttft_s)
    found = Answers(
        ended=ended.total,
        errors=ended.failed,
        empty=ended.short,
        cut=ended.cut,
        repeating=ended.repeating,
        tokens=ended.tokens,
        tpot_within=tpot_within,
        tpot_of=tpot_of,
        ttft_within=ttft_within,
        ttft_of=ttft_of,
    )
    return NOTHING if found == NOTHING else found


def _within(histogram: Histogram, bound_s: float | None) -> tuple[float, float]:
    share = None if bound_s is None else histogram.share_at_most(bound_s)
    return (0.0, 0.0) if share is None else (share * histogram.count, histogram.count)
