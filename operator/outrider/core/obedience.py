"""Whether engines run the schedule that they acknowledged, as far as their metrics tell."""

from __future__ import annotations

from collections.abc import Mapping

from outrider.core.observation import EngineWindow, Observation
from outrider.core.schedule import Schedule
from outrider.core.series import MAX_SKEW_S

MIN_STEPS = 20.0
"""Decode steps that are no accident: drafts that come out short are counted by the K of their step all the same."""


def judge(
    window: Observation, told: Mapping[str, tuple[int, float]], generation: int, schedule: Schedule
) -> dict[str, str]:
    """Pods that go on as before, each with the end of a sentence, and pods that follow, with none; ``told`` has
    generation and time of what they acknowledged last, by name.

    Each is judged by its own samples, and only where all of them were taken after it acknowledged: times of samples
    are of the store's clock, which may be `MAX_SKEW_S` ahead of ours. One whose metrics hold an earlier generation
    goes on as before for certain, and so does one none of whose steps has a K of the schedule. That another follows is
    known of its steps alone: of an engine at rest, or without our metrics, nothing is.
    """
    allowed = {k for _, _, k in schedule.as_lists()}
    found: dict[str, str] = {}
    for engine in window.engines:
        held, at_s = told.get(engine.pod, (None, 0.0))
        if held == generation and engine.since_s >= at_s + MAX_SKEW_S:
            why = _why(engine, generation, allowed)
            if why is not None:
                found[engine.pod] = found.get(engine.pod) or why
    return found


def _why(engine: EngineWindow, generation: int, allowed: set[int]) -> str | None:
    """Why it goes on as before; nothing if it follows, None if there is no telling."""
    held, steps = engine.schedule_generation, engine.steps
    if held is not None and held < generation:
        return f"its metrics hold {held}"
    if sum(steps.values()) < MIN_STEPS:
        return None
    return "" if allowed & steps.keys() else f"no step has had a K of it, but {', '.join(map(str, sorted(steps)))}"
