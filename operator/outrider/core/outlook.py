"""What a measured profile lets expect of a service: the law of `law` for each K, without a drafter and with the best
table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.core.law import Arm, arms_break_even_rps, best_of
from outrider.core.measured_profile import MeasuredProfile
from outrider.core.step_time import points_of

NO_DRAFTER, BEST = "no drafter", "best table"


@dataclass(frozen=True, slots=True)
class Expected:
    """One arm with its summary; rates are requests a second of one engine."""

    name: str
    num_speculative_tokens: int | None
    """None without a drafter, and for the best table."""
    arm: Arm
    break_even_rps: float | None
    """Where the arm stops being faster than the engine without a drafter; None: never, 0: it never is."""


def outlook(
    profile: MeasuredProfile,
    values: Sequence[int],
    *,
    prompt_tokens: float,
    output_tokens: float,
    max_batch: int,
) -> list[Expected]:
    """The arms to compare: no drafter, each K of ``values``, and the best of these K at each batch size.

    A step with a prompt takes the measured prefill time of all its tokens and its drafting passes, or the decode time
    if that is longer: profiles hold no steps of both kinds of work.
    """
    model = profile.model()
    context = prompt_tokens + output_tokens / 2.0
    batches = np.arange(1.0, max_batch + 1)
    pass_s, cached_s = float(model.law.coefficients[1]), float(model.law.coefficients[5])

    def arm(k: int, *, drafter: bool) -> Arm:
        points = points_of(batches, k, context, drafter=drafter)
        step_s = model.at(points)
        prompt_s = _prefill_s(profile, prompt_tokens + points.tokens)
        mixed_s = prompt_s + points.passes * pass_s + cached_s * batches * context
        return Arm(step_s / profile.acceptance_length(k), step_s, np.maximum(0.0, mixed_s - step_s), output_tokens)

    base = arm(0, drafter=False)
    by_k = {k: arm(k, drafter=True) for k in values}
    return [
        Expected(NO_DRAFTER, None, base, None),
        *(Expected(f"K {k}", k, one, arms_break_even_rps(one, base)) for k, one in by_k.items()),
        Expected(BEST, None, best := best_of(list(by_k.values())), arms_break_even_rps(best, base)),
    ]


def _prefill_s(profile: MeasuredProfile, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds of a step with so many tokens of prompts and of decoding requests; past the longest measured prompt its
    last rate goes on."""
    known, seconds = np.array(profile.prefill_tokens), np.array(profile.prefill_s)
    slope = (seconds[-1] - seconds[-2]) / (known[-1] - known[-2])
    return np.asarray(np.interp(tokens, known, seconds) + slope * np.maximum(tokens - known[-1], 0.0))
