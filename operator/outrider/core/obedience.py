"""Whether engines run the schedule that they acknowledged, as far as their metrics tell."""

from __future__ import annotations

from collections.abc import Mapping

from outrider.core.observation import Observation
from outrider.core.schedule import Schedule

SETTLED_S = 30.0
"""As old as the newest sample of an engine may be: before that it may stem from before the acknowledgement."""
MIN_STEPS = 20.0
"""Decode steps that are no accident: drafts that come out short are counted by the K of their step all the same."""


def disobedient(
    window: Observation, told: Mapping[str, tuple[int, float]], generation: int, schedule: Schedule
) -> dict[str, str]:
    """Pods that go on as before, each with the end of a sentence; ``told`` has generation and time of what they
    acknowledged last, by name.

    One whose metrics hold an earlier generation does so for certain. Steps are counted for the service as a whole: if
    no K of the schedule is among them, none of its engines runs it. An engine without our metrics is believed.
    """
    settled_s = min(window.since_s, window.until_s - SETTLED_S)
    judged = {pod for pod, (held, at_s) in told.items() if held == generation and at_s <= settled_s}
    found = {
        engine.pod: f"its metrics hold {engine.schedule_generation}"
        for engine in window.engines
        if engine.pod in judged and engine.schedule_generation is not None and engine.schedule_generation < generation
    }
    if judged >= {engine.pod for engine in window.engines}:
        allowed = {k for _, _, k in schedule.as_lists()}
        steps = {cell.num_speculative_tokens: cell.steps for cell in window.cells if not cell.mixed}
        if sum(steps.values()) >= MIN_STEPS and not allowed & steps.keys():
            seen = ", ".join(map(str, sorted(steps)))
            found |= dict.fromkeys(sorted(judged - found.keys()), f"no step has had a K of it, but {seen}")
    return found
