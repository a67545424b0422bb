"""What a window's decode steps took, what they had been predicted to take, and what no drafter would have made of them.

For reports alone: no decision rests on it. The prediction is that of the model as it was before the window, so that the
two can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outrider.core.latency import MIN_STEPS, LatencyModel
from outrider.core.observation import Observation


@dataclass(frozen=True, slots=True)
class StepAccount:
    """Of the decode-only steps of a window; means over steps, in seconds."""

    step_s: float
    """As measured."""
    predicted_s: float
    """As the model before the window has it, at the same batch sizes and K."""
    speedup: float | None
    """Token goodput over what the model expects of the same engine without its drafter at the same batch sizes: under 1
    speculation costs more than it gives. None where an engine has no drafter."""


def account(model: LatencyModel, window: Observation, *, drafter: bool) -> StepAccount | None:
    """Compare a window with the model from before it; None where it has too few decode-only steps.

    With E measured tokens a request and step, n steps yield what n·E steps of one token do, so that the speedup is
    Σ n·E·T₀(B) / Σ seconds. The arm without a drafter is never run to find out: T₀ is the fitted law without the
    drafter's passes, measured on an H100 to lie 5-10 % under K = 0 with it.
    """
    cells = [cell for cell in window.cells if not cell.mixed and cell.steps >= MIN_STEPS]
    if not cells:
        return None
    steps = np.array([cell.steps for cell in cells])
    batch = np.array([cell.mean_batch for cell in cells])
    k = np.array([float(cell.num_speculative_tokens) for cell in cells])
    seconds = sum(cell.seconds for cell in cells)
    speedup = None
    if drafter:
        length = 1.0 + sum(window.accepted_per_pos) / sum(cell.requests for cell in window.cells)
        speedup = float(steps @ model.no_drafter_step_time_s(batch)) * length / seconds
    predicted_s = float(steps @ model.at_points(batch, k, model.context))
    return StepAccount(seconds / float(steps.sum()), predicted_s / float(steps.sum()), speedup)
