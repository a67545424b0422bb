"""Replicas for someone who knows the load to come, and the true step times: a plan, made before the replay.

Requests in flight are foreseen from every request's own lengths; what a replica carries follows from the rows that the
engines run on, at the best K, with the prefill of the others. A replica is asked for a cold start before it is needed,
and one that would be needed again within a cold start stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil

import numpy as np
from numpy.typing import NDArray

from outrider.simulator.autoscaler import Plan
from outrider.simulator.profile import Profile
from outrider.simulator.request import Request, extended
from outrider.simulator.settings import EngineSettings

SLOT_S = 15.0
"""The autoscaler's period."""
AROUND_S = 120.0
"""Lengths and acceptance are means over the requests this near; what prefill adds follows from them."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Known:
    """The true law of one engine."""

    profile: Profile
    settings: EngineSettings
    values: Sequence[int]
    """K that the engine may run."""

    def tpots_s(self, acceptance: Sequence[float], prompt: float, output: float) -> Floats:
        """Mean seconds per output token by requests in flight, 1 and up, at the best K of each number.

        A replica with B in flight ends B of them in the time that one takes, so that each token of one waits for
        B / output prompts' prefill as well.
        """
        sizes = np.arange(1, self.settings.max_num_seqs + 1)
        curve = extended(acceptance, max(self.values))
        lengths = [1.0, *(1.0 + total for total in accumulate(curve))]
        context_s = self.profile.context_s * (prompt + output / 2.0) * sizes
        decode_s = np.min(
            [
                (np.array(self.profile.base_times_s(k, len(sizes), self.settings.capture_size)[1:]) + context_s)
                / lengths[k]
                for k in self.values
            ],
            axis=0,
        )
        return np.asarray(decode_s + sizes * self.profile.prefill_time_s(prompt) / max(output, 1.0))

    def carried(self, acceptance: Sequence[float], prompt: float, output: float, tpot_s: float) -> tuple[int, float]:
        """The most in flight within a mean TPOT, at least 1, and the TPOT there."""
        times = self.tpots_s(acceptance, prompt, output)
        within = times <= tpot_s
        most = len(times) if within.all() else max(1, int(np.argmin(within)))
        return most, float(times[most - 1])


def plan(
    requests: Sequence[Request],
    known: Known,
    acceptance: Callable[[float], Sequence[float]],
    tpot_s: float,
    share: float,
    cold_start_s: float,
    bounds: tuple[int, int],
) -> Plan:
    """Replicas over time, each filled to a ``share`` of what it carries.

    ``acceptance`` is that of the requests arriving at a moment; ``bounds`` are the fewest and the most replicas.
    """
    arrivals = np.array([one.arrival_s for one in requests])
    slots = int(arrivals[-1] // SLOT_S) + 1 if len(arrivals) else 1
    work = np.zeros(slots + 1)
    carried = _by_slot(requests, arrivals, known, acceptance, tpot_s, slots)
    for one in requests:
        most, token_s = carried[int(one.arrival_s // SLOT_S)]
        life_s = known.profile.prefill_time_s(one.prompt_tokens) + one.output_tokens * token_s
        _spread(work, one.arrival_s / SLOT_S, life_s / SLOT_S, 1.0 / (share * most))
    needed = np.ceil(work[:slots] - 1e-9)
    ahead = ceil(cold_start_s / SLOT_S) + 1
    steps = []
    for slot in range(slots):
        replicas = int(needed[slot : slot + ahead + 1].max())
        steps.append((slot * SLOT_S, min(max(replicas, bounds[0]), bounds[1])))
    return Plan(steps, SLOT_S)


def _by_slot(
    requests: Sequence[Request],
    arrivals: Floats,
    known: Known,
    acceptance: Callable[[float], Sequence[float]],
    tpot_s: float,
    slots: int,
) -> list[tuple[int, float]]:
    """By slot what a replica carries there, and the TPOT at that."""
    prompts = np.array([one.prompt_tokens for one in requests], dtype=float)
    outputs = np.array([one.output_tokens for one in requests], dtype=float)
    found: list[tuple[int, float]] = []
    for slot in range(slots):
        middle_s = (slot + 0.5) * SLOT_S
        first, last = np.searchsorted(arrivals, (middle_s - AROUND_S, middle_s + AROUND_S))
        if first == last:
            found.append(found[-1] if found else (1, tpot_s))
            continue
        prompt, output = float(prompts[first:last].mean()), float(outputs[first:last].mean())
        found.append(known.carried(acceptance(middle_s), prompt, output, tpot_s))
    return found


def _spread(work: Floats, start: float, length: float, weight: float) -> None:
    """Add a request's presence to the slots that it is in flight in, each by the part of the slot; times in slots."""
    end, slot = min(start + length, len(work) - 1.0), int(start)
    while slot < end:
        work[slot] += weight * (min(end, slot + 1.0) - max(start, float(slot)))
        slot += 1
