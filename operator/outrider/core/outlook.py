"""What a measured profile lets expect of a service: the law of `law` for each K, without a drafter and with the best
table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import poisson

from outrider.core.law import Arm, arms_break_even_rps, best_of
from outrider.core.measured_profile import MeasuredProfile
from outrider.core.step_time import points_of

NO_DRAFTER, BEST = "no drafter", "best table"
MAX_PROMPTS = 12
"""Most prompts considered in one step."""
ROUNDS = 6
"""Of the fixed point between the rate and what a prompt adds; the last one changes latency by under 1 %."""


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

    A step with prompts takes the measured prefill time of all its tokens and its drafting passes, or the decode time if
    that is longer: profiles hold no steps of both kinds of work.
    """
    model = profile.model()
    context = prompt_tokens + output_tokens / 2.0
    batches = np.arange(1.0, max_batch + 1)
    pass_s, cached_s = float(model.law.coefficients[1]), float(model.law.coefficients[5])

    def arm(k: int, *, drafter: bool) -> Arm:
        points = points_of(batches, k, context, drafter=drafter)
        step_s = model.at(points)
        other_s = points.passes * pass_s + cached_s * batches * context
        extra_s = np.stack(
            [
                np.maximum(0.0, _prefill_s(profile, prompts * prompt_tokens + points.tokens) + other_s - step_s)
                for prompts in range(1, MAX_PROMPTS + 1)
            ]
        )
        decode_s = step_s / profile.acceptance_length(k)
        found = Arm(decode_s, step_s, extra_s[0], output_tokens)
        for _ in range(ROUNDS):
            found = replace(found, prefill_s=_shared_s(found, extra_s))
        return found

    base = arm(0, drafter=False)
    by_k = {k: arm(k, drafter=True) for k in values}
    return [
        Expected(NO_DRAFTER, None, base, None),
        *(Expected(f"K {k}", k, one, arms_break_even_rps(one, base)) for k, one in by_k.items()),
        Expected(BEST, None, best := best_of(list(by_k.values())), arms_break_even_rps(best, base)),
    ]


def _shared_s(arm: Arm, extra_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds that a prompt adds by batch size, when as many arrive in a step as the rate of that batch brings.

    ``extra_s`` holds what 1, 2, … prompts add to one step, shape ``(prompts, batches)``. Near saturation most steps run
    prompts, and two in one step cost less than twice one: their tokens share the reading of the weights.
    """
    rates = np.maximum(arm.rates_rps, 1e-9)
    # In a step of mean length S arrive a = λ·S prompts; S = T + a·x.
    arriving = rates * arm.step_s / np.maximum(1.0 - rates * arm.prefill_s, 0.05)
    arriving = np.minimum(arriving, MAX_PROMPTS / 2.0)
    prompts = np.arange(1, len(extra_s) + 1)[:, None]
    shares = poisson.pmf(prompts, arriving)
    return np.asarray((shares * extra_s).sum(axis=0) / (shares * prompts).sum(axis=0))


def _prefill_s(profile: MeasuredProfile, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds of a step with so many tokens of prompts and of decoding requests; past the longest measured prompt its
    last rate goes on."""
    known, seconds = np.array(profile.prefill_tokens), np.array(profile.prefill_s)
    slope = (seconds[-1] - seconds[-2]) / (known[-1] - known[-2])
    return np.asarray(np.interp(tokens, known, seconds) + slope * np.maximum(tokens - known[-1], 0.0))
