"""From counts by position to the chance that a draft gets that far, with its error.

S_j is the probability that at least the first j draft tokens are accepted; a step of K speculative tokens yields
E(K) = 1 + S_1 + … + S_K tokens a request. Positions are nested: a draft accepted to the third token was accepted to the
second. So their errors go together, and cov(S_i, S_j) = S_j (1 - S_i) / n for i <= j, with n the drafts that proposed
i tokens (of which those that proposed j are a part).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import hypot, sqrt

PRIOR_SURVIVAL = 0.7
"""Conditional acceptance assumed for a position of which nothing at all is known, the starting value of published
controllers."""
UNSEEN_SPREAD = 0.27
"""Relative error of carrying a conditional acceptance on to the next position. It may go both ways: the steepest
published drafter falls to 0.76 of it (S = 0.92, 0.68, 0.38, so h = 0.74, 0.56), a mixture of two kinds of traffic (0.3
and 0.95) rises to 1.27 of it."""
Z95 = 1.96
"""Standard errors on either side of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its standard error, in the same unit."""

    value: float
    error: float


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds of a probability, 0 to 1."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Counts:
    """By position, the first at index 0: drafts that proposed so many tokens, and those accepted so far; discounted
    counts need not be whole."""

    drafted: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()

    @property
    def drafts(self) -> float:
        """All drafts."""
        return self.at(0)[0]

    def at(self, index: int) -> tuple[float, float]:
        """Drafted and accepted at a position; zero beyond the last."""
        return _get(self.drafted, index), _get(self.accepted, index)

    def plus(self, other: Counts, keep: float = 1.0) -> Counts:
        """These counts, weighed by ``keep``, and others."""
        depth = max(len(self.drafted), len(other.drafted))
        return Counts(
            tuple(keep * _get(self.drafted, j) + _get(other.drafted, j) for j in range(depth)),
            tuple(keep * _get(self.accepted, j) + _get(other.accepted, j) for j in range(depth)),
        )


@dataclass(frozen=True, slots=True)
class Position:
    """S_j: its value, the drafts behind it, and the part of its error that was carried over from what is known of other
    positions."""

    value: float
    drafted: float
    carried: float

    def counted_variance(self, design_effect: float) -> float:
        """Variance from the finite number of drafts."""
        return design_effect * self.value * (1.0 - self.value) * self.drafted / (self.drafted + 1.0) ** 2

    def estimate(self, design_effect: float) -> Estimate:
        """Value and standard error."""
        return Estimate(self.value, hypot(sqrt(self.counted_variance(design_effect)), self.carried))

    def interval(self, design_effect: float, z: float = Z95) -> Interval:
        """Wilson's interval with the drafts divided by the design effect, widened by the error carried over."""
        n, p = (self.drafted + 1.0) / design_effect, self.value
        centre = (p + z * z / (2.0 * n)) / (1.0 + z * z / n)
        half = z * sqrt(p * (1.0 - p) / n + z * z / (4.0 * n * n)) / (1.0 + z * z / n)
        half = hypot(half, z * self.carried)
        return Interval(max(0.0, centre - half), min(1.0, centre + half))


def curve(counts: Counts, depth: int, design_effect: float) -> Iterator[Position]:
    """S_1 … S_depth, non-increasing.

    Before its first draft a position is taken to continue with the conditional acceptance of the one before it, which
    is neither optimistic nor pessimistic (drafters decay with depth, mixed traffic does the opposite). That expectation
    weighs as much as one draft, and its error fades with it: no jump where evidence begins.
    """
    before = Estimate(1.0, 0.0)
    conditional, spread = PRIOR_SURVIVAL, 1.0
    for index in range(depth):
        drafted, accepted = counts.at(index)
        expected, unknown = before.value * conditional, 1.0 / (drafted + 1.0)
        value = min(before.value, (accepted + expected) * unknown)
        doubt = min(expected, before.error * conditional + expected * spread)
        position = Position(value, drafted, unknown * doubt)
        yield position
        conditional = value / before.value if before.value > 0.0 else 0.0
        spread += (1.0 - unknown) * (UNSEEN_SPREAD - spread)
        before = position.estimate(design_effect)


def length(counts: Counts, depth: int, design_effect: float) -> Estimate:
    """E(depth), tokens a request and step, 1 to depth + 1, with the error of nested positions.

    Errors carried over all go back to one conditional acceptance, so they add up; the sum of all errors is a bound in
    any case.
    """
    return lengths(counts, depth, design_effect)[-1]


def lengths(counts: Counts, depth: int, design_effect: float) -> list[Estimate]:
    """E(0) … E(depth)."""
    value, variance, carried, bound = 1.0, 0.0, 0.0, 0.0
    shallower = 0.0  # sum over i < j of (1 - S_i) / (n_i + 1)
    found = [Estimate(1.0, 0.0)]
    for position in curve(counts, depth, design_effect):
        share = position.drafted / (position.drafted + 1.0)
        own = (1.0 - position.value) / (position.drafted + 1.0)
        value += position.value
        variance += design_effect * position.value * share * (own + 2.0 * shallower)
        carried += position.carried
        bound += position.estimate(design_effect).error
        shallower += own
        found.append(Estimate(value, min(sqrt(variance) + carried, bound)))
    return found


def _get(values: Sequence[float], index: int) -> float:
    return values[index] if index < len(values) else 0.0
