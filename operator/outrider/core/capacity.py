"""How many requests in flight one replica may carry within its objectives.

The answer is the target of KEDA's in-flight trigger. The time per output token of B requests in flight is what decoding
takes and what the prefill of the others adds, at the percentile that users asked for (`outrider.core.interference`);
the time to the first token is what the service itself measured (`outrider.core.first_token`). Falling acceptance raises
the one and leaves the other, so it can only lower the target: replicas rise before the objective breaks, and never fall
because drafts got worse.

Below the largest load is the one to ask for: replicas take minutes, and load rises meanwhile (`outrider.core.bursts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from outrider.core.first_token import FirstToken
from outrider.core.words import count

Floats = NDArray[np.float64]
Limit = tuple[int, str, str]
"""Requests in flight, the name of what limits them, and a sentence."""

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
IN_FLIGHT_PER_LOAD = 2.0
"""Requests in flight rise by this power of the load: B = λ·L(B), so d ln B / d ln λ = 1/(1 - λL'), which goes from 1 in
an empty engine to L(B)/L(0) on a linear law, about 3 at usual objectives."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Requests in flight that one replica may carry, and the limit that was met first."""

    requests_per_replica: int
    limited_by: str
    """``TPOT``, ``TTFT``, ``KVCache``, ``BatchSize``, or ``Default`` before anything was measured."""
    reason: str

    def replicas_for(self, in_flight: float) -> int:
        """Replicas that this load needs, at least 1."""
        return max(1, ceil(in_flight / self.requests_per_replica))


UNKNOWN = Capacity(DEFAULT_REQUESTS_PER_REPLICA, "Default", "nothing measured yet")


def capacity(
    tpot_s: Floats,
    *,
    tpot_objective_s: float | None,
    measured_batch: float,
    kv_cache_tokens: float | None,
    tokens_per_request: float | None,
    ttft_objective_s: float | None = None,
    first_token: FirstToken = FirstToken(),  # noqa: B008 -- frozen
    rise: float = 1.0,
) -> Capacity:
    """The load to ask of a replica: the largest one within its limits, less the room for bursts and a tenth.

    Args:
        tpot_s: predicted seconds per output token by requests in flight under the schedule, with the prefill of the
            others, at the percentile that users asked for.
        tpot_objective_s: the objective, for the percentile that users asked for; None without one.
        measured_batch: the largest batch with measured step times; beyond it the prediction is an extrapolation.
        kv_cache_tokens: tokens that one engine's KV cache holds, if known.
        tokens_per_request: mean tokens of KV cache that a running request holds, if known.
        ttft_objective_s: the objective of the time to the first token, for the same percentile; None without one.
        first_token: what is known of the time to the first token; unknown it limits nothing, and the reason says so.
        rise: factor by which load may rise while a replica comes, 1 or more.
    """
    limits = [(len(tpot_s), "BatchSize", f"the engine runs at most {count(len(tpot_s), 'request')} at once")]
    if tpot_objective_s is not None:
        limits.append(_tpot_limit(_cautious(tpot_s, measured_batch), tpot_objective_s))
    if ttft_objective_s is not None and first_token.known:
        limits.append(_ttft_limit(first_token, ttft_objective_s, len(tpot_s)))
    if kv_cache_tokens and tokens_per_request:
        limits.append(_kv_cache_limit(kv_cache_tokens, tokens_per_request, len(tpot_s)))
    most, limited_by, reason = min(limits, key=lambda limit: limit[0])
    usual = most / rise**IN_FLIGHT_PER_LOAD
    if rise > 1.0:
        reason += f"; room for a load that rises by {rise - 1.0:.0%} while a replica starts leaves {max(1, int(usual))}"
    if ttft_objective_s is not None and not first_token.known:
        reason += "; no limit by TTFT: too few first tokens were seen"
    return Capacity(max(1, int(usual * (1.0 - TOLERANCE))), limited_by, reason)


def least_replicas(load_tps: float, tpot_s: Floats, target: int, *, measured_batch: float) -> int:
    """The fewest replicas that bear a load with no more than the target in flight on each, at least 1.

    Requests in flight do not say so: shared by fewer replicas each takes longer, and more of them are in flight. Tokens
    a second stay, and B requests in flight yield B/TPOT(B) of them.

    Args:
        load_tps: tokens generated a second, all replicas together.
        tpot_s: predicted mean seconds per output token by requests in flight, with the prefill of the others.
        target: requests in flight per replica, 1 or more.
        measured_batch: as in `capacity`.
    """
    sizes = np.arange(1, len(tpot_s) + 1)
    yields = sizes / _cautious(tpot_s, measured_batch)
    return max(1, ceil(load_tps / float(yields[:target].max())))


def _cautious(tpot_s: Floats, measured_batch: float) -> Floats:
    sizes = np.arange(1, len(tpot_s) + 1)
    doublings = np.log2(np.maximum(1.0, sizes / measured_batch))
    return np.asarray(tpot_s * (1.0 + EXTRAPOLATION * doublings))


def _tpot_limit(tpot_s: Floats, objective_s: float) -> Limit:
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


def _ttft_limit(first_token: FirstToken, objective_s: float, max_batch_size: int) -> Limit:
    reached, time_s = first_token.limit(objective_s)
    most = max(1, int(min(max_batch_size, reached)))
    return (
        most,
        "TTFT",
        f"with {count(most, 'request')} in flight the first token takes the {objective_s * 1e3:.0f} ms allowed"
        f" ({time_s * 1e3:.0f} ms at the present load)",
    )


def _kv_cache_limit(kv_cache_tokens: float, tokens_per_request: float, max_batch_size: int) -> Limit:
    fits = int(min(max_batch_size, MAX_KV_CACHE_USAGE * kv_cache_tokens / tokens_per_request))
    return fits, "KVCache", f"{tokens_per_request:.0f} tokens a request fill the KV cache at {count(fits, 'request')}"
