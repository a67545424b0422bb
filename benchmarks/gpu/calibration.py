"""A profile of the measured card, made of the rows of ``calibrate``: for the estimator's law and for the simulator.

Step times are the plugin's means over a window of held batches. Cached tokens are read off the share of KV blocks in
use; how many tokens that share is of is not in the rows and follows from how fast it grew, see `cache_tokens`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.gpu.engine import ACCEPTANCE
from benchmarks.gpu.rows import Results, Row
from outrider.core import measured_profile
from outrider.core.held_out import HeldOut, held_out
from outrider.core.measured_profile import MeasuredProfile
from outrider.core.step_time import GENERIC
from outrider.simulator.profile import Curve, Profile, load_profile
from outrider.simulator.workload import geometric

CEILING = 5
COMPUTE_BOUND = (512.0, 2048.0)
"""Prompts, tokens."""
TRAINED_TO, ASKED_FROM = 96.0, 128.0
"""Batch sizes of the question about load, as in `benchmarks.fit.measured`."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Steps of one batch and K."""

    prompt: int
    batch: int
    k: int
    context: float
    """Cached tokens of a request in the middle of the window."""
    steps: float
    seconds: float
    """Mean of a step."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Mean absolute relative errors of the step-time law on the cells, 0.05 = 5 %."""

    in_range: float
    held_out: HeldOut
    shipped: float
    """Of the profile that the project ships, interpolated for these cells: another boot, on other cards."""


def cells(results: Results) -> list[Cell]:
    """Every measured cell; those without a decode step are left out."""
    total = cache_tokens(results)
    found = []
    for row in results.cells:
        if row["steps"]:
            one = row["steps"][0]
            grown = one["steps"] * tokens_a_step(row["k"])
            context = row["kv_usage"] * total / row["level"] - grown / 2.0
            found.append(Cell(row["prompt"], row["level"], row["k"], context, one["steps"], one["ms"] / 1e3))
    return found


def cache_tokens(results: Results) -> float:
    """Tokens that the KV cache holds: least squares of the tokens generated between two rows of one held batch, at the
    later row's rate of steps, on the growth of the share in use."""
    shares, tokens = [], []
    for before, after in pairwise(results.cells):
        if after["steps"] and before["prompt"] == after["prompt"] and before["level"] == after["level"]:
            steps = (after["at"] - before["at"]) / (after["steps"][0]["ms"] / 1e3)
            shares.append(after["kv_usage"] - before["kv_usage"])
            tokens.append(after["level"] * steps * tokens_a_step(after["k"]))
    x, y = np.array(shares), np.array(tokens)
    return float(x @ y / (x @ x))


def tokens_a_step(k: int) -> float:
    """E(K) under the acceptance that the engine was started with."""
    return 1.0 + sum(geometric(ACCEPTANCE, k))


def document(results: Results, capture_size: int) -> dict[str, Any]:
    """The rows as `measured_profile.read` takes them."""
    return {
        "acceptance": list(geometric(ACCEPTANCE, CEILING)),
        "rows": [
            {
                "batch": one.batch, "speculative_tokens": one.k, "context": one.context, "noisy": False,
                "capture_size": capture_size, "step_time_ms_median": 1e3 * one.seconds,
            }
            for one in cells(results)
        ],
    }  # fmt: skip


def fit(results: Results, capture_size: int) -> Fit:
    """Errors of the law on what it was fitted to, and on one inner batch, one K and all high loads left out."""
    profile: MeasuredProfile = measured_profile.read(document(results, capture_size))
    law = profile.model().law
    weights, prior = np.ones_like(profile.times_s), GENERIC.for_engine(capture_size, None)
    return Fit(
        float(np.abs(law.step_time_s(profile.points) / profile.times_s - 1.0).mean()),
        held_out(profile.points, profile.times_s, weights, prior, limit=TRAINED_TO, above=ASKED_FROM),
        _shipped(cells(results), capture_size),
    )


def profile(results: Results, capture_size: int) -> Profile:
    """For the simulator. There is no run without a drafter, so it refuses such engines."""
    found = cells(results)
    context_s = context_cost_s(found)
    shortest = min(one.prompt for one in found)
    short = [one for one in found if one.prompt == shortest]
    inside = [one for one in short if one.batch * (one.k + 1) <= capture_size]
    curves = _curves(inside, context_s)
    beyond = _curves([one for one in short if one not in inside], context_s)
    draft_s = Profile("", (), curves, {}, None, (), (), context_s).draft_pass_s
    prefill = {float(row["prompt"]): _prefill_s(row, draft_s) for row in results.prefill}
    beside = _beside(prefill, short)
    return Profile(
        name="gpu-calibration",
        acceptance=geometric(ACCEPTANCE, CEILING),
        in_graph=curves,
        beyond_graph=beyond,
        no_drafter=None,
        prefill_tokens=tuple(prefill),
        prefill_seconds=tuple(prefill.values()),
        context_s=context_s,
        prompt_s=_prompt_s(prefill),
        jump_s=_jump_s(curves, beyond),
        beside_tokens=tuple(beside),
        beside_seconds=tuple(beside.values()),
    )


def context_cost_s(found: Iterable[Cell]) -> float:
    """Seconds that a cached token adds to a step: the same batch and K at two contexts, least squares."""
    by_prompt: dict[int, dict[tuple[int, int], Cell]] = {}
    for one in found:
        by_prompt.setdefault(one.prompt, {})[one.batch, one.k] = one
    short, long = by_prompt[min(by_prompt)], by_prompt[max(by_prompt)]
    pairs = [(short[key], long[key]) for key in long if key in short]
    x = np.array([far.batch * (far.context - near.context) for near, far in pairs])
    y = np.array([far.seconds - near.seconds for near, far in pairs])
    return float(x @ y / (x @ x))


def front_s(results: Results) -> float:
    """Seconds of a lone request's TTFT that are not its step: the way through the server, there and back."""
    return float(np.mean([row["mean_ms"] - row["steps"][0]["ms"] for row in results.prefill])) / 1e3


def _shipped(found: Sequence[Cell], capture_size: int) -> float:
    card = load_profile()
    times_s = np.array([card.step_time_s(one.batch, one.k, capture_size, one.context) for one in found])
    return float(np.abs(times_s / np.array([one.seconds for one in found]) - 1.0).mean())


def _prefill_s(row: Row, draft_s: float) -> float:
    """The step of a prompt alone, its drafting passes taken out: the simulator adds those of the K in force."""
    step = row["steps"][0]
    return float(step["ms"] / 1e3 - step["k"] * draft_s)


def _prompt_s(prefill: Mapping[float, float]) -> float:
    """Seconds a prompt's token where computing bounds a step: in shorter ones reading the weights does, which decoding
    needs too; in longer ones attention within the prompt adds to it."""
    short, long = COMPUTE_BOUND
    return (prefill[long] - prefill[short]) / (long - short)


def _beside(prefill: Mapping[float, float], found: Sequence[Cell]) -> dict[float, float]:
    """Seconds by tokens of a step launched while another runs: from reading the weights, the step of one request
    without drafts, straight to the first prompt that computing bounds. Lone prompts shorter than that wait for their
    launch: 128 tokens took an H200 as long as 512."""
    weights_s = next(one.seconds for one in found if (one.batch, one.k) == (1, 0))
    bound = {tokens: seconds for tokens, seconds in prefill.items() if tokens >= COMPUTE_BOUND[0]}
    return {0.0: weights_s, **bound}


def _jump_s(inside: Mapping[int, Curve], beyond: Mapping[int, Curve]) -> float:
    """Seconds by which the first row past the captured sizes lies above the trend within them, median over K: the row
    of one K can be off."""
    first = {k: np.array(curve.batches[:1]) for k, curve in beyond.items() if k in inside}
    jumps = [beyond[k].at(batch) - inside[k].at(batch) for k, batch in first.items()]
    return max(0.0, float(np.median(jumps))) if jumps else 0.0


def _curves(found: Iterable[Cell], context_s: float) -> Mapping[int, Curve]:
    by_k: dict[int, list[tuple[float, float]]] = {}
    for one in found:
        base_s = one.seconds - context_s * one.batch * one.context
        by_k.setdefault(one.k, []).append((float(one.batch), base_s))
    return {k: Curve(*zip(*sorted(points), strict=True)) for k, points in sorted(by_k.items())}
