"""Times that the controller remembers and that are still to come, since the clock was ahead when they were noted.

Every wait counts from such a time. Left as they are, one hour by which a clock is set back would be an hour without
decisions, and a node that once lived in another year would end them for good: the memory document outlives it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from outrider.core.bursts import Bursts
from outrider.core.state import ControllerState, Probe, Trial
from outrider.core.verification import MAX_BAR_S

MOMENTS = (
    "learned_until_s", "drafts_seen_s", "jumped_s", "schedule_changed_s", "probed_s", "target_changed_s",
    "target_fell_s",
)  # fmt: skip
Noted = TypeVar("Noted", Trial, Probe)


def nothing_ahead(state: ControllerState, now_s: float) -> ControllerState:
    """The state, in which whatever is said to happen after ``now_s`` happened now; waits begin once more."""
    ahead = {name: now_s for name in MOMENTS if (getattr(state, name) or now_s) > now_s}
    if ahead:
        state = replace(state, **ahead)  # type: ignore[arg-type]
    return replace(
        state,
        trial=_begun(state.trial, now_s),
        probe=_begun(state.probe, now_s),
        bars=tuple(replace(bar, until_s=min(bar.until_s, now_s + MAX_BAR_S)) for bar in state.bars),
        bursts=_open(state.bursts, now_s),
    )


def _begun(noted: Noted | None, now_s: float) -> Noted | None:
    return noted if noted is None or noted.at_s <= now_s else replace(noted, at_s=now_s)


def _open(bursts: Bursts, now_s: float) -> Bursts:
    return bursts if bursts.since_s is None or bursts.since_s <= now_s else replace(bursts, since_s=now_s)
