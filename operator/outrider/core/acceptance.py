"""How far drafts are accepted, position by position, and whether that changes.

Survival (`outrider.core.survival`) is estimated from drafts that *proposed* a position, with counts that fade. The
pooled ratio of accepted to drafted tokens is never used as an acceptance probability: on published EAGLE data it
understates E(7) by half.

Three things may go wrong, and they are told apart: acceptance steps to another value (`outrider.core.drift`), every
draft is rejected while the engine works, or acceptance sinks over hours (`outrider.core.trend`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from outrider.core import drift, trend
from outrider.core.drift import MIN_DRAFTS, Drift
from outrider.core.survival import PRIOR_SURVIVAL, Z95, Counts, Estimate, Interval, curve, length, lengths
from outrider.core.trend import SlowCounts, Trend

__all__ = [
    "MIN_DRAFTS",
    "PRIOR_SURVIVAL",
    "AcceptanceState",
    "Alarm",
    "Estimate",
    "Interval",
    "acceptance_length",
    "acceptance_lengths",
    "intervals",
    "survival",
    "update",
]

Alarm = Literal["Drift", "Collapse"]

HALF_LIFE_S = 60.0
"""Age at which a count weighs half: four control periods, so that a slow change of traffic is followed within a few
minutes."""
REJECTED_SHARE = 0.005
"""A window in which no larger share of drafts had a token accepted counts as rejected: a drafter that fits at all, even
one that looks tokens up in random text, does better."""
COLLAPSE_WINDOWS = 2
"""Rejected windows running that make a collapse. Of `MIN_DRAFTS` drafts with the prior design effect, an acceptance of
one in ten leaves none in one of two hundred windows, and twice running in one of forty thousand."""


@dataclass(frozen=True, slots=True)
class AcceptanceState:
    """Discounted counts by position, and what has been noticed about them."""

    drafted: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()
    drift: Drift = field(default_factory=Drift)
    jumped: bool = False
    """The last update found that acceptance had changed, and dropped older counts."""
    rejected_windows: int = 0
    """Windows running in which drafts were made and none accepted; windows without drafts change nothing."""
    slow: SlowCounts = field(default_factory=SlowCounts)

    @property
    def counts(self) -> Counts:
        """The evidence that estimates rest on."""
        return Counts(self.drafted, self.accepted)

    @property
    def drafts(self) -> float:
        """Discounted number of drafts, the weight of the evidence."""
        return self.counts.drafts

    @property
    def design_effect(self) -> float:
        """By how much counts scatter more than those of independent drafts."""
        return self.drift.design_effect

    @property
    def suspicion(self) -> int:
        """1 when acceptance seems to have risen of late, -1 when it seems to have fallen, else 0."""
        return self.drift.suspicion

    @property
    def collapsed(self) -> bool:
        """Every draft is rejected while work goes on."""
        return self.rejected_windows >= COLLAPSE_WINDOWS

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """What calls for action after the last update."""
        raised: list[Alarm] = ["Drift"] if self.jumped else []
        return (*raised, "Collapse") if self.collapsed else tuple(raised)

    @property
    def trend(self) -> Trend | None:
        """After the start against now; None in the first half hour."""
        return self.slow.trend(self.design_effect)


def update(
    state: AcceptanceState, drafted: Sequence[float], accepted: Sequence[float], elapsed_s: float
) -> tuple[AcceptanceState, bool]:
    """Add a window's counts after ``elapsed_s``; the flag tells that acceptance jumped and older counts were
    dropped."""
    window, elapsed_s = Counts(tuple(drafted), tuple(accepted)), max(0.0, elapsed_s)
    noticed, jumped = drift.judge(state.drift, state.counts, window)
    if state.collapsed and window.drafts >= MIN_DRAFTS and _rejected_windows(state, window) == 0:
        # Drafts are accepted again: the few counts of the collapse prove no jump, but nothing of them holds any more.
        noticed, jumped = replace(noticed, above=0.0, below=0.0), True
    counts = window if jumped else state.counts.plus(window, keep=0.5 ** (elapsed_s / HALF_LIFE_S))
    return AcceptanceState(
        counts.drafted,
        counts.accepted,
        noticed,
        jumped,
        _rejected_windows(state, window),
        trend.learn(state.slow, window, elapsed_s, noticed.design_effect),
    ), jumped


def survival(state: AcceptanceState, depth: int) -> tuple[Estimate, ...]:
    """S_1 … S_depth, non-increasing, with standard errors that contain the design effect.

    A position without evidence continues with the conditional acceptance of the one before it, and its error says so.
    """
    effect = state.design_effect
    return tuple(position.estimate(effect) for position in curve(state.counts, depth, effect))


def intervals(state: AcceptanceState, depth: int, z: float = Z95) -> tuple[Interval, ...]:
    """Of S_1 … S_depth, ``z`` standard errors wide on either side."""
    effect = state.design_effect
    return tuple(position.interval(effect, z) for position in curve(state.counts, depth, effect))


def acceptance_length(state: AcceptanceState, num_speculative_tokens: int) -> Estimate:
    """E(K), tokens a request and step, from 1 to K + 1."""
    return length(state.counts, num_speculative_tokens, state.design_effect)


def acceptance_lengths(state: AcceptanceState, most: int) -> list[Estimate]:
    """E(0) … E(most)."""
    return lengths(state.counts, most, state.design_effect)


def _rejected_windows(state: AcceptanceState, window: Counts) -> int:
    drafts, accepted = window.at(0)
    if accepted > REJECTED_SHARE * drafts:
        return 0
    return state.rejected_windows + (1 if drafts >= MIN_DRAFTS else 0)
