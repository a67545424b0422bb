"""How far drafts are accepted, position by position.

S_j is the probability that at least the first j draft tokens are accepted; a step of K speculative tokens then yields
E(K) = 1 + S_1 + … + S_K tokens a request (the bonus token is the 1). S_j is estimated from drafts that *proposed* j
tokens. The pooled ratio of accepted to drafted tokens is never used as an acceptance probability: on published EAGLE
data it understates E(7) by half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

HALF_LIFE_S = 60.0
"""Age at which a count weighs half: four control periods, so that a slow change of traffic is followed within a few
minutes."""
DESIGN_EFFECT = 4.0
"""Drafts of one request resemble each other, so n drafts tell less than n independent ones would; the variance is this
many times the binomial one. A stand-in until it is measured between windows."""
MIN_DRAFTS = 200.0
"""Fewer drafted tokens at the first position are no evidence (95 % interval within 7 points without the design
effect)."""
DRIFT_Z = 4.0
"""A window this many standard errors from the estimate, twice running, is a change and not noise: by chance about once
in a hundred million windows, since both must fall on the same side."""
PRIOR_SURVIVAL = 0.7
"""Conditional acceptance assumed for a position of which nothing at all is known, the starting value of published
controllers."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its standard error, in the same unit."""

    value: float
    error: float


@dataclass(frozen=True, slots=True)
class AcceptanceState:
    """Discounted counts by position, and how many windows running have disagreed with them on one side."""

    drafted: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()
    suspicion: int = 0
    """Positive: windows above the estimate; negative: below."""

    @property
    def drafts(self) -> float:
        """Discounted number of drafts, the weight of the evidence."""
        return self.drafted[0] if self.drafted else 0.0


def update(
    state: AcceptanceState, drafted: Sequence[float], accepted: Sequence[float], elapsed_s: float
) -> tuple[AcceptanceState, bool]:
    """Add a window's counts after ``elapsed_s``; the flag tells that acceptance jumped and older counts were
    dropped."""
    side = _side(state, drafted, accepted)
    suspicion = 0 if side == 0 else (state.suspicion + side if state.suspicion * side >= 0 else side)
    if abs(suspicion) >= 2:
        return AcceptanceState(tuple(drafted), tuple(accepted)), True
    keep = 0.5 ** (max(0.0, elapsed_s) / HALF_LIFE_S)
    depth = max(len(state.drafted), len(drafted))
    return AcceptanceState(
        tuple(keep * _get(state.drafted, j) + _get(drafted, j) for j in range(depth)),
        tuple(keep * _get(state.accepted, j) + _get(accepted, j) for j in range(depth)),
        suspicion,
    ), False


def survival(state: AcceptanceState, depth: int) -> tuple[Estimate, ...]:
    """S_1 … S_depth, non-increasing; Jeffreys' estimate of each position's proportion with the design effect in the
    error.

    A position without evidence continues with the conditional acceptance of the one before it, which is neither
    optimistic nor pessimistic (drafters decay with depth, mixed traffic does the opposite), and carries the whole value
    as its error.
    """
    estimates: list[Estimate] = []
    conditional = PRIOR_SURVIVAL
    for j in range(depth):
        before = estimates[-1].value if estimates else 1.0
        n = _get(state.drafted, j)
        if n < 1.0:
            value = before * conditional
            estimates.append(Estimate(value, value))
            continue
        value = min(before, (_get(state.accepted, j) + 0.5) / (n + 1.0))
        conditional = value / before if before > 0 else 0.0
        estimates.append(Estimate(value, sqrt(DESIGN_EFFECT * value * (1.0 - value) / (n + 1.0))))
    return tuple(estimates)


def acceptance_length(state: AcceptanceState, num_speculative_tokens: int) -> Estimate:
    """E(K), tokens a request and step, from 1 to K + 1.

    The errors of nested positions are positively correlated; adding them up bounds the error of the sum from above.
    """
    terms = survival(state, num_speculative_tokens)
    return Estimate(1.0 + sum(term.value for term in terms), sum(term.error for term in terms))


def _side(state: AcceptanceState, drafted: Sequence[float], accepted: Sequence[float]) -> int:
    """Whether the first position of a window lies above (1), below (-1) or within what the state leads one to expect
    (0)."""
    n, before = _get(drafted, 0), state.drafts
    if n < MIN_DRAFTS / 4 or before < MIN_DRAFTS:
        return 0
    p = (_get(state.accepted, 0) + 0.5) / (before + 1.0)
    error = sqrt(DESIGN_EFFECT * p * (1.0 - p) * (1.0 / n + 1.0 / before))
    z = (_get(accepted, 0) / n - p) / error
    return 0 if abs(z) < DRIFT_Z else (1 if z > 0 else -1)


def _get(values: Sequence[float], index: int) -> float:
    return values[index] if index < len(values) else 0.0
