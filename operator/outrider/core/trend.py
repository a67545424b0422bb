"""Slow decline of acceptance: the first half hour after the start against the last hour.

A drift that takes hours passes below any alarm for sudden changes, for the estimate follows it. It is told, never acted
upon.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from outrider.core.drift import MIN_DRAFTS
from outrider.core.survival import Counts, Estimate, length

BASELINE_S = 1800.0
"""Time with drafts that makes the baseline: long enough to average over the requests of the first minutes."""
HALF_LIFE_S = 1800.0
"""Age at which a count of the present weighs half."""
DECLINE = 0.05
"""Share of the acceptance length that has to be lost to be told, the size of a step of K in goodput."""
RECOVERY = 0.03
"""Once told, it stays until less than this share is missing: the noise of the slow counts is far smaller than the gap
between the two."""


@dataclass(frozen=True, slots=True)
class Trend:
    """Tokens a step after the start and now, for the same number of draft tokens."""

    baseline: Estimate
    now: Estimate
    num_speculative_tokens: int
    declining: bool

    @property
    def change(self) -> float:
        """Relative change of the acceptance length; negative for a decline."""
        return self.now.value / self.baseline.value - 1.0


@dataclass(frozen=True, slots=True)
class SlowCounts:
    """What a trend is read from."""

    baseline: Counts = field(default_factory=Counts)
    baseline_s: float = 0.0
    """Seconds with drafts in the baseline; it is complete at `BASELINE_S`."""
    recent: Counts = field(default_factory=Counts)
    declining: bool = False

    def trend(self, design_effect: float) -> Trend | None:
        """None until the baseline is complete and both sides rest on drafts."""
        depth = self._depth
        if self.baseline_s < BASELINE_S or depth == 0:
            return None
        before, now = (length(counts, depth, design_effect) for counts in (self.baseline, self.recent))
        return Trend(before, now, depth, self.declining)

    @property
    def _depth(self) -> int:
        """Leading positions of which both know something."""
        enough = (min(pair) >= MIN_DRAFTS for pair in zip(self.baseline.drafted, self.recent.drafted, strict=False))
        depth = 0
        for known in enough:
            if not known:
                break
            depth += 1
        return depth


def learn(slow: SlowCounts, window: Counts, elapsed_s: float, design_effect: float) -> SlowCounts:
    """Add a window that came ``elapsed_s`` after the last."""
    recent = slow.recent.plus(window, keep=0.5 ** (elapsed_s / HALF_LIFE_S))
    if slow.baseline_s < BASELINE_S:
        if window.drafts <= 0.0:
            return replace(slow, recent=recent)
        baseline = slow.baseline.plus(window)
        return replace(slow, baseline=baseline, baseline_s=slow.baseline_s + elapsed_s, recent=recent)
    learned = replace(slow, recent=recent)
    trend = learned.trend(design_effect)
    if trend is None:
        return learned
    return replace(learned, declining=trend.change <= -(RECOVERY if slow.declining else DECLINE))
