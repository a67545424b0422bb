"""How many requests in flight one replica may carry within its objectives.

The answer is the target of KEDA's in-flight trigger. The time per output token of B requests in flight is what decoding
takes and what the prefill of the others adds, at the percentile that users asked for (`outrider.core.interference`).
Falling acceptance raises it, so it can only lower the target: replicas rise before the objective breaks, and never fall
because drafts got worse.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from outrider.core.words import count

MAX_KV_CACHE_USAGE = 0.9
"""Above this share of KV cache engines preempt requests and recompute them, and every prediction fails."""
TOLERANCE = 0.1
"""The HPA moves only when load per replica is off its target by more than a tenth: the target leaves that much room."""
EXTRAPOLATION = 0.12
"""Predicted time is raised by this share for each doubling of the batch beyond the largest one measured: on a measured
H100 profile, a fit to one batch of 32 reads up to 35 % too low three doublings further on."""
DEFAULT_REQUESTS_PER_REPLICA = 32
"""The target before anything was measured; an eighth of vLLM's default ``max_num_seqs``, so that it errs towards a
replica too many."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Requests in flight that one replica may carry, and the limit that was met first."""

    requests_per_replica: int
    limited_by: str
    """``TPOT``, ``KVCache``, ``BatchSize``, or ``Default`` before anything was measured."""
    reason: str

    def replicas_for(self, in_flight: float) -> int:
        """Replicas that this load needs, at least 1."""
        return max(1, ceil(in_flight / self.requests_per_replica))


UNKNOWN = Capacity(DEFAULT_REQUESTS_PER_REPLICA, "Default", "nothing measured yet")


def capacity(
    tpot_s: NDArray[np.float64],
    *,
    tpot_objective_s: float | None,
    measured_batch: float,
    kv_cache_tokens: float | None,
    tokens_per_request: float | None,
) -> Capacity:
    """The largest load per replica within its limits.

    Args:
        tpot_s: predicted seconds per output token by requests in flight under the schedule, with the prefill of the
            others, at the percentile that users asked for.
        tpot_objective_s: the objective, for the percentile that users asked for; None without one.
        measured_batch: the largest batch with measured step times; beyond it the prediction is an extrapolation.
        kv_cache_tokens: tokens that one engine's KV cache holds, if known.
        tokens_per_request: mean tokens of KV cache that a running request holds, if known.
    """
    limits = [(len(tpot_s), "BatchSize", f"the engine runs at most {count(len(tpot_s), 'request')} at once")]
    if tpot_objective_s is not None:
        sizes = np.arange(1, len(tpot_s) + 1)
        doublings = np.log2(np.maximum(1.0, sizes / measured_batch))
        cautious = tpot_s * (1.0 + EXTRAPOLATION * doublings)
        limits.append(_tpot_limit(cautious, tpot_objective_s))
    if kv_cache_tokens and tokens_per_request:
        fits = int(min(len(tpot_s), MAX_KV_CACHE_USAGE * kv_cache_tokens / tokens_per_request))
        limits.append(
            (
                fits,
                "KVCache",
                f"{tokens_per_request:.0f} tokens a request fill the KV cache at {count(fits, 'request')}",
            )
        )
    most, limited_by, reason = min(limits, key=lambda limit: limit[0])
    return Capacity(max(1, int(most * (1.0 - TOLERANCE))), limited_by, reason)


def _tpot_limit(tpot_s: NDArray[np.float64], objective_s: float) -> tuple[int, str, str]:
    within = tpot_s <= objective_s
    most = len(tpot_s) if within.all() else int(np.argmin(within))
    allowed = f"the {objective_s * 1e3:.0f} ms allowed"
    if most == 0:
        return 1, "TPOT", f"even with one request in flight a token takes {tpot_s[0] * 1e3:.0f} ms of {allowed}"
    return (
        most,
        "TPOT",
        f"with {count(most, 'request')} in flight a token takes {tpot_s[most - 1] * 1e3:.0f} ms of {allowed}",
    )
