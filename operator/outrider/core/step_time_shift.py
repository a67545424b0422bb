"""The alarm when steps no longer take what they took: a noisy neighbour, a restart on another card, a new version.

A two-sided CUSUM on the logarithm of measured over predicted step time, standardised window by window. With the slack
and limit below, Siegmund's approximation gives one false alarm on a side in some 940 windows (4 h at 15 s) and finds a
shift of one standard deviation in about 10 windows, of three in 2 to 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt

SLACK = 0.5
"""Half the shift to be found, in standard deviations of a window."""
LIMIT = 5.0
"""Sum at which the alarm is raised, in standard deviations."""
MAX_STEP = 4.0
"""A window counts at most this much, so that a single stall is no shift."""
MIN_DEVIATION = 0.03
"""Of a window's mean step time, relative: repeated windows on one card differ by 2-4 %, and a smaller shift is not
worth forgetting anything for."""
DEVIATION_GAIN = 0.02
"""Weight of a window in the learnt standard deviation."""


@dataclass(frozen=True, slots=True)
class StepTimeShift:
    """Steps take ``ratio`` times as long as they did."""

    ratio: float
    windows: int
    """Since when, as far as can be told."""

    def __str__(self) -> str:
        return f"steps take {self.ratio:.2f} times as long as before, for {self.windows} windows by now"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two sums, with what has come in since it was last zero."""

    sum: float = 0.0
    windows: int = 0
    excess: float = 0.0
    """Of the windows that were past the slack."""
    total: float = 0.0
    """Of the logarithms of measured over predicted, each times its excess: windows before the shift hardly count."""

    def after(self, step: float, residual: float) -> Side:
        """With one more window; ``step`` is its excess over the slack."""
        if self.sum + step <= 0.0:
            return Side()
        weight = max(0.0, step)
        return Side(self.sum + step, self.windows + 1, self.excess + weight, self.total + weight * residual)


@dataclass(frozen=True, slots=True)
class Watch:
    """Both sums and the deviation that they are measured in."""

    slower: Side = Side()
    faster: Side = Side()
    deviation: float = MIN_DEVIATION


def look(watch: Watch, measured_over_predicted: float) -> tuple[Watch, StepTimeShift | None]:
    """Take in one window; the alarm resets both sums."""
    residual = log(measured_over_predicted)
    scaled = max(-MAX_STEP, min(MAX_STEP, residual / watch.deviation))
    slower = watch.slower.after(scaled - SLACK, residual)
    faster = watch.faster.after(-scaled - SLACK, residual)
    # A shift must not widen the yardstick that is to find it: windows count up to two deviations.
    seen = min(abs(residual), 2.0 * watch.deviation)
    deviation = max(MIN_DEVIATION, sqrt((1.0 - DEVIATION_GAIN) * watch.deviation**2 + DEVIATION_GAIN * seen**2))
    side = max(slower, faster, key=lambda one: one.sum)
    if side.sum < LIMIT:
        return Watch(slower, faster, deviation), None
    return Watch(deviation=deviation), StepTimeShift(exp(side.total / side.excess), side.windows)
