"""Whether a window of drafts is still of the kind seen before: a two-sided CUSUM, and the noise that it must expect.

The residual of a window is the number of tokens accepted beyond what the counts so far lead one to expect, over all
positions at once. Its variance under independent drafts is known from the nesting of positions; by how much the real
one is larger (drafts of one request resemble each other, and the mixture of requests varies) is measured from window to
window: the design effect, a ratio of variances.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

from outrider.core.survival import Counts, curve

MIN_DRAFTS = 200.0
"""Fewer drafted tokens at a position are no evidence (95 % interval within 7 points without the design effect)."""
PRIOR_DESIGN_EFFECT = 4.0
"""Before it was measured: some tens of drafts a request, correlated by a tenth."""
MAX_DESIGN_EFFECT = 400.0
"""Acceptance lengths that scatter by 0.15 from window to window at thirty thousand drafts a window; anything beyond is
not noise."""
PRIOR_WINDOWS = 10.0
"""Windows that the prior weighs."""
KEEP = 0.99
"""Weight of the past in the measured noise, by window: it follows within half an hour of windows of 15 s."""
OUTLIER = 9.0
"""A squared residual counts at most this many times the expected one, so that a change is not taken for noise."""

ALLOWANCE = 0.75
"""CUSUM's slack, standard deviations a window: half of the smallest shift to be found. One half is usual for
independent windows; mixtures of requests wander for minutes, and would then raise an alarm every hour."""
THRESHOLD = 6.0
"""CUSUM's limit, in standard deviations. Chosen with the slack by simulation (`tests.unit.core.traffic`): a step of 0.1
or more is found in two to four windows, steady traffic raises an alarm at most once in hours."""
CLIP = 4.0
"""A single window counts at most so many standard deviations: less than the limit, so one odd window is no change."""
SUSPECT = 3.0
"""From here on a change is suspected: after one window of `CLIP`, and no longer when the next one is ordinary."""
FLOOR = 0.02
"""Standard deviation of acceptance that is no news, at every position together, however many drafts tell of it:
discounting follows it anyway, and no decision turns on it."""


@dataclass(frozen=True, slots=True)
class Drift:
    """The two sums of the CUSUM, and the measured noise."""

    above: float = 0.0
    below: float = 0.0
    squares: float = 0.0
    """Discounted sum of squared residuals, in units of the variance of independent drafts."""
    windows: float = 0.0
    """Discounted number of windows in it."""

    @property
    def design_effect(self) -> float:
        """Variance between windows over that of independent drafts, at least 1."""
        measured = (PRIOR_DESIGN_EFFECT * PRIOR_WINDOWS + self.squares) / (PRIOR_WINDOWS + self.windows)
        return min(MAX_DESIGN_EFFECT, max(1.0, measured))

    @property
    def suspicion(self) -> int:
        """1 when acceptance seems to have risen, -1 when it seems to have fallen, else 0."""
        if max(self.above, self.below) < SUSPECT:
            return 0
        return 1 if self.above >= self.below else -1


def judge(drift: Drift, known: Counts, window: Counts) -> tuple[Drift, bool]:
    """Take a window in, before it is added to the known counts; the flag tells that acceptance has changed.

    After an alarm both sums begin again at zero; the measured noise stays. So they do after a window with too few
    drafts: a suspicion that nothing can confirm or lift, as when speculation was turned off, must not last.
    """
    residual, variance, tokens = _residual(known, window)
    if tokens <= 0.0:
        return replace(drift, above=0.0, below=0.0), False
    effect = drift.design_effect
    noise = sqrt(effect * variance + (FLOOR * tokens) ** 2)
    z = max(-CLIP, min(CLIP, residual / noise))
    above, below = max(0.0, drift.above + z - ALLOWANCE), max(0.0, drift.below - z - ALLOWANCE)
    changed = max(above, below) > THRESHOLD
    return Drift(
        0.0 if changed else above,
        0.0 if changed else below,
        KEEP * drift.squares + min(residual * residual / variance, OUTLIER * effect),
        KEEP * drift.windows + 1.0,
    ), changed


def _residual(known: Counts, window: Counts) -> tuple[float, float, float]:
    """Tokens accepted beyond expectation, the variance of that number for independent drafts, and the tokens drafted.

    With a_j of d_j drafts accepted at position j, and S_j known from n_j drafts: the residual is the sum of
    a_j - S_j d_j, and its variance has one part from the window and one from the known counts.
    """
    residual = variance = tokens = 0.0
    if window.drafts < MIN_DRAFTS / 4.0:
        return residual, variance, tokens
    of_window = of_known = 0.0  # sums over i < j of (1 - S_i), and of d_i (1 - S_i) / n_i
    for index, position in enumerate(curve(known, len(window.drafted), 1.0)):
        drafted, accepted = window.at(index)
        if position.drafted < MIN_DRAFTS or drafted <= 0.0:
            break
        s, weight = position.value, drafted / position.drafted
        residual += accepted - s * drafted
        variance += s * drafted * (1.0 - s + 2.0 * of_window)
        variance += s * drafted * (weight * (1.0 - s) + 2.0 * of_known)
        of_window += 1.0 - s
        of_known += weight * (1.0 - s)
        tokens += drafted
    return residual, max(1.0, variance), tokens  # where nearly all or none are accepted, one token is no news
