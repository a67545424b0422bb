"""The law of a service: mean latency against arrival rate, by Little's law.

A request's latency L(B) grows with the requests B that share the engine, and in a steady state B = λ·L for the arrival
rate λ. Where L is linear, L = C1 + B·C2 (Kong et al. 2026, arXiv 2605.15051), this gives

    L = C1 / (1 - λ·C2)        stable for λ < 1/C2

with, for answers of g tokens, K drafts a step and E(K) tokens out of it,

    C1 = c1p + (g/E)(c1v + K·c1d)        C2 = c2p + (g/E)(c2v + K·c2d)

(p prefill, v verification, d drafting; `Demand`). Measured step times are not linear: they have a knee, a jump past the
captured graphs, and with a mixture of experts a part that saturates. `Arm` takes them as they are and solves the same
fixed point on the grid of batch sizes.

One property carries the whole design: the K that is best at a fixed rate is also the K that is best at the batch size
which that rate leads to, for any latencies that grow with the batch. A table of K by batch size needs no arrival rate.

All times are seconds, rates are requests a second, of one engine unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Demand:
    """The linear law of one K: C1 seconds that a request takes alone, C2 for each that shares the engine."""

    fixed_s: float
    shared_s: float

    def at_batch_s(self, batch: float) -> float:
        """Latency of each of so many requests."""
        return self.fixed_s + batch * self.shared_s

    def latency_s(self, rate_rps: float) -> float:
        """Mean latency at an arrival rate; infinite from saturation on."""
        free = 1.0 - rate_rps * self.shared_s
        return self.fixed_s / free if free > 0 else inf

    @property
    def saturation_rps(self) -> float:
        """Rate that one engine cannot serve in a steady state, 1/C2."""
        return 1.0 / self.shared_s if self.shared_s > 0 else inf

    def rate_within_rps(self, latency_s: float) -> float:
        """Highest rate with a mean latency within a limit, (1 - C1/L)/C2; 0 where one request alone misses it."""
        return max(0.0, 1.0 - self.fixed_s / latency_s) * self.saturation_rps

    def replicas(self, total_rps: float, latency_s: float) -> int | None:
        """Engines that a load needs, split evenly; None where no number of engines helps."""
        each = self.rate_within_rps(latency_s)
        return max(1, ceil(total_rps / each)) if each > 0 else None


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Seconds of one step by part: fixed a step and shared by each request, for prefill, verification and drafting."""

    fixed_prefill_s: float
    fixed_verify_s: float
    fixed_draft_s: float
    shared_prefill_s: float
    shared_verify_s: float
    shared_draft_s: float

    def demand(self, num_speculative_tokens: int, acceptance_length: float, output_tokens: float) -> Demand:
        """C1 and C2 for answers of so many tokens, E(K) = ``acceptance_length`` of them a step."""
        k, cycles = num_speculative_tokens, output_tokens / acceptance_length
        return Demand(
            self.fixed_prefill_s + cycles * (self.fixed_verify_s + k * self.fixed_draft_s),
            self.shared_prefill_s + cycles * (self.shared_verify_s + k * self.shared_draft_s),
        )


def speedup(demand: Demand, base: Demand, rate_rps: float) -> float:
    """How many times shorter latency is than in the base, below saturation of both."""
    return base.latency_s(rate_rps) / demand.latency_s(rate_rps)


def break_even_rps(demand: Demand, base: Demand) -> float | None:
    """Rate at which both have the same latency, r*/C2 of the base; None where they do not cross below saturation.

    r* = (1 - C1R)/(C2R - C1R) with C1R and C2R the ratios to the base (from Speedup = 1; a form printed in a review of
    Kong et al. fails that check).
    """
    fixed, shared = demand.fixed_s / base.fixed_s, demand.shared_s / base.shared_s
    if fixed == shared:
        return None
    share = (1.0 - fixed) / (shared - fixed)
    return share / base.shared_s if 0.0 < share < min(1.0, 1.0 / shared) else None


def switch_over_batch(smaller: Demand, larger: Demand) -> float | None:
    """Batch from which the smaller K has the lower latency; None where one is better at every batch.

    Prefill and answer lengths cancel in it where both arms share their prefill coefficients.
    """
    gain, cost = smaller.fixed_s - larger.fixed_s, larger.shared_s - smaller.shared_s
    return gain / cost if cost > 0 and gain > 0 else None


@dataclass(frozen=True, slots=True)
class Point:
    """An engine in a steady state."""

    rate_rps: float
    batch: float
    """Mean requests in the engine, λ·L."""
    latency_s: float
    ttft_s: float
    tpot_s: float
    """Means over requests."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to run an engine: a K, a table of K by batch size, or no drafter. Arrays by batch size from 1 on."""

    decode_s: Floats
    """T(B, K)/E(K): seconds of decoding per output token."""
    step_s: Floats
    """T(B, K): seconds of a decode-only step."""
    prefill_s: Floats
    """Seconds that a prompt adds to the step that runs it, less where several share one."""
    output_tokens: float
    """Mean tokens of an answer, more than 1."""

    @property
    def tpot_s(self) -> Floats:
        """Mean seconds per output token, T/E + (B - 1)·x/(g - 1).

        Each of the g - 1 tokens after the first one waits for its share of the prompts that arrive meanwhile, one for
        each other request in flight (`interference`).
        """
        others = np.arange(len(self.decode_s))
        return np.asarray(self.decode_s + others * self.prefill_s / (self.output_tokens - 1.0))

    @property
    def ttft_s(self) -> Floats:
        """Mean seconds to the first token without a queue: half a step of waiting where others decode, and the step
        that runs the prompt."""
        busy = np.minimum(1.0, np.arange(len(self.step_s)))
        return np.asarray((1.0 + 0.5 * busy) * self.step_s + self.prefill_s)

    @property
    def latency_s(self) -> Floats:
        """Mean seconds from arrival to the last token for a request that sees this batch, itself included."""
        return np.asarray(self.ttft_s + (self.output_tokens - 1.0) * self.tpot_s)

    @property
    def rates_rps(self) -> Floats:
        """Arrival rate that keeps B - 1 requests in the engine on average: who arrives sees them, and itself."""
        return np.asarray(np.arange(len(self.decode_s)) / self.latency_s)

    @property
    def saturation_rps(self) -> float:
        """Highest rate with a steady state within the largest batch."""
        return float(self.rates_rps.max())

    def at(self, rate_rps: float) -> Point | None:
        """The steady state at a rate, the one that is reached from an idle engine; None past saturation.

        Solves B = λ·L(1 + B): arrivals at random times see the mean number of the others.
        """
        latency_s = self.latency_s
        # Requests that are in the engine beyond what the rate keeps there; latency is linear between batch sizes.
        excess = np.arange(len(latency_s)) - rate_rps * latency_s
        reached = np.flatnonzero(excess >= 0.0)
        if rate_rps > 0 and not len(reached):
            return None
        batch = 0.0
        if rate_rps > 0:
            high = int(reached[0])
            batch = high - float(excess[high] / (excess[high] - excess[high - 1]))
        sizes = np.arange(len(latency_s))
        return Point(
            rate_rps=rate_rps,
            batch=batch,
            latency_s=float(np.interp(batch, sizes, latency_s)),
            ttft_s=float(np.interp(batch, sizes, self.ttft_s)),
            tpot_s=float(np.interp(batch, sizes, self.tpot_s)),
        )

    def rate_within_rps(self, tpot_objective_s: float, spread: tuple[float, float] = (1.0, 1.0)) -> float:
        """Highest rate whose TPOT is within an objective; 0 where one request alone misses it.

        ``spread`` are the factors of a percentile on decoding and on prefill (`interference.Spread`); 1 for the mean.
        """
        decode, prefill = spread
        tpot_s = decode * self.decode_s + prefill * (self.tpot_s - self.decode_s)
        missed = np.flatnonzero(tpot_s > tpot_objective_s)
        within = int(missed[0]) if len(missed) else len(tpot_s)
        return float(self.rates_rps[:within].max(initial=0.0))

    def replicas(
        self, total_rps: float, tpot_objective_s: float, spread: tuple[float, float] = (1.0, 1.0)
    ) -> int | None:
        """Engines that a load needs, split evenly; None where no number of engines helps."""
        each = self.rate_within_rps(tpot_objective_s, spread)
        return max(1, ceil(total_rps / each)) if each > 0 else None


def best_of(arms: Sequence[Arm]) -> Arm:
    """The arm of a perfect table: at each batch size whichever has the lowest latency; all of one answer length."""
    chosen = np.argmin([arm.latency_s for arm in arms], axis=0)

    def pick(column: str) -> Floats:
        return np.asarray(np.choose(chosen, [getattr(arm, column) for arm in arms]))

    return Arm(pick("decode_s"), pick("step_s"), pick("prefill_s"), arms[0].output_tokens)


def arms_break_even_rps(arm: Arm, base: Arm) -> float | None:
    """Lowest rate at which an arm is no better than the base, to 0.1 %; 0 where it never is better, None where it
    always is (up to the lower of both saturation rates)."""
    limit = min(arm.saturation_rps, base.saturation_rps)
    rates = np.linspace(0.0, limit, 257)
    worse = next((i for i, rate in enumerate(rates) if _gain(arm, base, float(rate)) <= 1.0), None)
    if worse is None:
        return None if arm.saturation_rps >= base.saturation_rps else limit
    if worse == 0:
        return 0.0
    low, high = float(rates[worse - 1]), float(rates[worse])
    while high - low > 1e-3 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if _gain(arm, base, middle) > 1.0 else (low, middle)
    return (low + high) / 2.0


def _gain(arm: Arm, base: Arm, rate_rps: float) -> float:
    """Latency of the base over that of the arm; a saturated arm gains nothing."""
    ours, theirs = arm.at(rate_rps), base.at(rate_rps)
    if ours is None:
        return 0.0
    return inf if theirs is None else theirs.latency_s / ours.latency_s
