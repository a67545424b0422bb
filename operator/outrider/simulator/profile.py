"""Step times of an engine, interpolated between measured rows.

Measured: step time by batch and K with an EAGLE drafter, in a CUDA graph and past the captured sizes; the same without
a drafter, at two context lengths; the prefill time of one prompt. Between rows all is linear. Everything else is an
assumption, listed here:

- a cached token costs what it costs without a drafter (the drafter's own layer of cache is left out);
- past the largest graph, batches below the first measured row take that row's time: launching kernels bounds them;
- K = 0 and 1 were not measured past the captured sizes: they take the time of K = 2 there;
- past the last row of a K, the line through its last three rows goes on, in a graph never above the time without one;
- K above 6: the difference between K = 5 and 6 once more for each token;
- a step with prefill takes the prefill time of all its tokens plus its drafting passes, or the decode time if longer;
  where a profile says what a prompt's token costs beside decoding (`Profile.prompt_s`), not less than both together,
  and where it says what such a step takes that is launched while another runs (`Profile.beside_tokens`), that;
- where a profile says what leaving the captured sizes costs (`Profile.jump_s`), batches below the first measured row
  there take the trend within the graphs and that much more, if it is less than the row's time.

A profile made of a published table of throughput has less: some K only, nothing past the captured sizes, no run without
a drafter. What it lacks is refused, never invented.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DEFAULT_PROFILE = "h100-llama8b-eagle"
H200_PROFILE = "h200-llama8b-eagle"
MOE_PROFILE = "qwen3-235b-a22b-sglang"
SHORT_PROMPT = 512  # tokens: the rows with longer prompts only serve to measure what context costs
TAIL_ROWS = 3  # rows behind the line that leaves the measured range: one row alone can be off by some 10 %


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds a step by batch size at one K, the cost of context taken out."""

    batches: tuple[float, ...]
    seconds: tuple[float, ...]

    def at(self, batches: Floats, *, flat_start: bool = False) -> Floats:
        """Linear between rows and along the trend beyond; with ``flat_start`` no less than the first row's time."""
        inside = np.interp(batches, self.batches, self.seconds)
        past = inside + self._slope(slice(-TAIL_ROWS, None)) * np.maximum(batches - self.batches[-1], 0.0)
        if flat_start:
            return past
        return past + self._slope(slice(0, 2)) * np.minimum(batches - self.batches[0], 0.0)

    @property
    def last_batch(self) -> float:
        """The largest measured batch."""
        return self.batches[-1]

    def _slope(self, part: slice) -> float:
        x, y = np.array(self.batches[part]), np.array(self.seconds[part])
        if len(x) < 2:
            return 0.0
        x = x - x.mean()
        return max(0.0, float(x @ y / (x @ x)))


@dataclass(frozen=True, slots=True)
class Profile:
    """What one model, drafter and card did when measured. Times are seconds."""

    name: str
    acceptance: tuple[float, ...]
    """Unconditional acceptance by position of the measured run, the default of requests that bring none."""
    in_graph: Mapping[int, Curve]
    """With the drafter, by K, steps that fit a CUDA graph."""
    beyond_graph: Mapping[int, Curve]
    """With the drafter, by K, steps larger than the largest graph; empty: they follow the trend of those in it."""
    no_drafter: Curve | None
    """None: no run without a drafter is known."""
    prefill_tokens: tuple[float, ...]
    prefill_seconds: tuple[float, ...]
    context_s: float
    """Seconds that one cached token of one request adds to a step."""
    dilation: float = 1.0
    """How many times slower than the measured card."""
    prompt_s: float = 0.0
    """Seconds that a prompt's token adds to the decode time of its step; 0 where it is hidden behind decoding."""
    jump_s: float = 0.0
    """Seconds that such a step takes longer when only its prompts make it larger than the largest graph."""
    beside_tokens: tuple[float, ...] = ()
    beside_seconds: tuple[float, ...] = ()
    """As `prefill_tokens` and `prefill_seconds`, of a step that is launched while the one before runs: a lone short
    prompt waits for its kernels to be launched, one beside decoding does not. Empty: they are the same."""

    @property
    def measured_k(self) -> tuple[int, ...]:
        """Every K with rows of its own, ascending: what an engine may use without a word of caution."""
        return tuple(sorted(self.in_graph))

    @property
    def draft_pass_s(self) -> float:
        """One drafting pass: what a K more costs at batch 1, where verifying one token more costs nothing."""
        one = np.array([1.0])
        first, last = min(k for k in self.in_graph if k), max(self.in_graph)
        return float(self.in_graph[last].at(one)[0] - self.in_graph[first].at(one)[0]) / (last - first)

    def step_time_s(self, batch: float, k: float, capture_size: int, context: float, *, drafter: bool = True) -> float:
        """Seconds of a decode step of ``batch`` requests that verify K drafts and draft K more.

        ``capture_size`` is the largest CUDA graph in tokens; ``context`` the mean number of cached tokens a request.
        """
        at = np.array([float(batch)])
        if not drafter:
            base = self._without_drafter(at)
        else:
            inside = batch * (k + 1) <= capture_size
            low = int(k)
            base = self._base(low, at, inside)
            if k > low:
                base = base + (k - low) * (self._base(low + 1, at, inside) - base)
        return float(base[0]) + self.context_s * batch * context

    def base_times_s(self, k: int, max_batch: int, capture_size: int, *, drafter: bool = True) -> list[float]:
        """`step_time_s` without context for batches 0, 1, …, ``max_batch`` (0: no decoding request, no time)."""
        batches = np.arange(1.0, max_batch + 1)
        if not drafter:
            return [0.0, *self._without_drafter(batches).tolist()]
        inside = batches * (k + 1) <= capture_size
        return [0.0, *np.where(inside, self._base(k, batches, True), self._base(k, batches, False)).tolist()]

    def prefill_time_s(self, tokens: float, *, beside: bool = False) -> float:
        """Seconds of a step with this many prompt tokens; past the longest measured prompt the last rate goes on.

        ``beside``: other requests decode, so the step is launched while the one before runs.
        """
        if beside and self.beside_tokens:
            return _along(self.beside_tokens, self.beside_seconds, tokens)
        return _along(self.prefill_tokens, self.prefill_seconds, tokens)

    def slowed(self, factor: float) -> Profile:
        """The same card, so many times slower: every time multiplied."""
        return replace(
            self,
            in_graph={k: _slowed(curve, factor) for k, curve in self.in_graph.items()},
            beyond_graph={k: _slowed(curve, factor) for k, curve in self.beyond_graph.items()},
            no_drafter=None if self.no_drafter is None else _slowed(self.no_drafter, factor),
            prefill_seconds=tuple(seconds * factor for seconds in self.prefill_seconds),
            context_s=self.context_s * factor,
            prompt_s=self.prompt_s * factor,
            jump_s=self.jump_s * factor,
            beside_seconds=tuple(seconds * factor for seconds in self.beside_seconds),
            dilation=self.dilation * factor,
        )

    def without_jump(self) -> Profile:
        """The same card if leaving the captured sizes cost nothing: larger steps follow the trend in a graph."""
        return replace(self, name=f"{self.name}-without-jump", beyond_graph={})

    def _without_drafter(self, batches: Floats) -> Floats:
        if self.no_drafter is None:
            raise ValueError(f"{self.name} has no run without a drafter")
        return self.no_drafter.at(batches)

    def _base(self, k: int, batches: Floats, inside: bool) -> Floats:
        top = max(self.in_graph)
        if k > top:
            last = self._base(top, batches, inside)
            base = np.asarray(last + (k - top) * np.maximum(last - self._base(top - 1, batches, inside), 0.0))
            return np.minimum(base, self._base(k, batches, False)) if inside else base
        if k not in self.in_graph:
            raise ValueError(f"{self.name} has no rows for K = {k}, only for {self.measured_k}")
        in_graph = self.in_graph[k].at(batches)
        if not self.beyond_graph:
            return in_graph
        smallest = min(self.beyond_graph)
        curve = self.beyond_graph[max(k, smallest)]
        beyond = curve.at(batches, flat_start=True)
        if self.jump_s:
            beyond = np.where(batches < curve.batches[0], np.minimum(beyond, in_graph + self.jump_s), beyond)
        if not inside:
            return beyond if k >= smallest else np.maximum(in_graph, beyond)
        return np.where(batches > self.in_graph[k].last_batch, np.minimum(in_graph, beyond), in_graph)


def _along(x: Sequence[float], y: Sequence[float], tokens: float) -> float:
    """Between rows, and past the last one at the rate of the last two."""
    if tokens <= x[0]:
        return y[0]
    at = min(bisect_left(x, tokens), len(x) - 1)
    return y[at - 1] + (tokens - x[at - 1]) * (y[at] - y[at - 1]) / (x[at] - x[at - 1])


def load_profile(name: str = DEFAULT_PROFILE) -> Profile:
    """A profile shipped with the package, by name: `DEFAULT_PROFILE`, `H200_PROFILE` or `MOE_PROFILE`."""
    return parse_profile(name, json.loads((files(__package__) / "data" / f"{name}.json").read_text()))


def read_profile(path: Path) -> Profile:
    """A profile from a file of the same form."""
    return parse_profile(path.stem, json.loads(path.read_text()))


def parse_profile(name: str, document: Mapping[str, Any]) -> Profile:
    """Sort the rows of a profile document into curves; of a published table, compute its step times first."""
    if "tokens_per_second" in document:
        return _published(name, document)
    bare = document.get("no_drafter", [])
    context_s = _context_cost(bare) if bare else document["context_us_per_1000_tokens"] / 1e9
    short = [row for row in bare if row["prompt"] == SHORT_PROMPT]
    beside = document.get("beside_decoding", {"prompt_us_per_token": 0.0, "jump_ms": 0.0, "prefill": []})
    return Profile(
        name=name,
        acceptance=tuple(document["acceptance"]),
        in_graph=_curves((row for row in document["rows"] if not row["beyond_capture"]), context_s),
        beyond_graph=_curves((row for row in document["rows"] if row["beyond_capture"]), context_s),
        no_drafter=_curves(short, context_s)[0] if bare else None,
        prefill_tokens=tuple(float(row["tokens"]) for row in document["prefill"]),
        prefill_seconds=tuple(row["ttft_ms"] / 1e3 for row in document["prefill"]),
        context_s=context_s,
        prompt_s=beside["prompt_us_per_token"] / 1e6,
        jump_s=beside["jump_ms"] / 1e3,
        beside_tokens=tuple(float(row["tokens"]) for row in beside["prefill"]),
        beside_seconds=tuple(row["ttft_ms"] / 1e3 for row in beside["prefill"]),
    )


def _published(name: str, document: Mapping[str, Any]) -> Profile:
    """A table of tokens a second by batch and K: a step takes batch * E(K) / rate, E by the assumed acceptance."""
    acceptance = tuple(document["acceptance"])
    curves = {}
    for row in document["tokens_per_second"]:
        k, batches = row["speculative_tokens"], row["batch"]
        tokens = 1.0 + sum(acceptance[:k])
        seconds = (batch * tokens / rate for batch, rate in zip(batches, row["rate"], strict=True))
        curves[k] = Curve(tuple(map(float, batches)), tuple(seconds))
    prefill = load_profile(document["prefill_from"])
    return replace(
        prefill, name=name, acceptance=acceptance, in_graph=curves, beyond_graph={}, no_drafter=None, context_s=0.0
    )


def row_time_s(row: Mapping[str, Any]) -> float:
    """The mean step of a row; of a noisy one what its throughput implies.

    The mean and not the median: simulated steps add up to tokens per second, and a median hides the slow ones.
    """
    return float(row["step_time_ms_from_throughput"] if row["noisy"] else row["step_time_ms_mean"]) / 1e3


def _curves(rows: Iterable[Mapping[str, Any]], context_s: float) -> dict[int, Curve]:
    points: dict[int, list[tuple[float, float]]] = {}
    for row in rows:
        seconds = row_time_s(row) - context_s * row["batch"] * row["context"]
        points.setdefault(row["speculative_tokens"], []).append((row["batch"], seconds))
    return {k: Curve(*zip(*sorted(found), strict=True)) for k, found in points.items()}


def _context_cost(rows: Sequence[Mapping[str, Any]]) -> float:
    """Least squares through the origin over batches measured at two context lengths."""
    shortest = {row["batch"]: row for row in rows if row["prompt"] == SHORT_PROMPT}
    cached, seconds = [], []
    for row in rows:
        if row["prompt"] > SHORT_PROMPT:
            other = shortest[row["batch"]]
            cached.append(row["batch"] * (row["context"] - other["context"]))
            seconds.append(row_time_s(row) - row_time_s(other))
    x, y = np.array(cached), np.array(seconds)
    return float(x @ y / (x @ x))


def _slowed(curve: Curve, factor: float) -> Curve:
    return Curve(curve.batches, tuple(seconds * factor for seconds in curve.seconds))
