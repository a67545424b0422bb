"""Requests and their arrival times: from a recorded trace, or drawn.

Arrival times start at 0; a `Request` keeps its lengths wherever it is replayed.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np

from outrider.simulator.request import Request, extended

MICROSECONDS = 26  # characters of a trace's time stamp that Python can read; the seventh decimal is cut

Curve = tuple[float, ...]
"""Unconditional acceptance by draft position, each 0 to 1, not increasing."""


def geometric(acceptance: float, positions: int) -> Curve:
    """The curve of one conditional acceptance at every position: a, a², a³, …"""
    return tuple(acceptance ** (position + 1) for position in range(positions))


KINDS: Mapping[str, Curve] = {
    "chat": (0.825, 0.640, 0.476, 0.339, 0.234),
    "code": geometric(0.855, 5),
    "summarise": geometric(0.725, 5),
}
"""Kinds of text. Chat is a published curve by position (a five-position MTP drafter); its E(5) = 3.5 is what EAGLE
reaches on ShareGPT (arXiv 2601.11580). For the others only that paper's acceptance lengths are published (InstructCoder
4.2, CNN/DM 3.1): one ratio each, chosen to give that length at K = 5, which is an assumption."""


@dataclass(frozen=True, slots=True)
class Phase:
    """From a moment on, requests that arrive carry this acceptance."""

    from_s: float
    acceptance: Curve


@dataclass(frozen=True, slots=True)
class Mix:
    """From a moment on, requests that arrive are of these kinds of text."""

    from_s: float
    shares: Mapping[str, float]
    """Weight by the name of a kind; they need not add up to 1."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One line of a trace."""

    time_s: float
    prompt_tokens: int
    output_tokens: int


def conversation_trace() -> Path:
    """The chat trace shipped with the package: Azure 2023, one hour, mean 5.5 requests a second."""
    return Path(str(files(__package__) / "data" / "traces" / "azure_llm_2023_conv.csv"))


def read_trace(path: Path) -> list[Arrival]:
    """A trace in the form of Azure 2023 or of Mooncake (told apart by the header), the first arrival at 0."""
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        columns = set(rows.fieldnames or ())
        if {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= columns:
            arrivals = [
                Arrival(_time_s(row["TIMESTAMP"]), int(row["ContextTokens"]), int(row["GeneratedTokens"]))
                for row in rows
            ]
        elif {"timestamp_ms", "input_length", "output_length"} <= columns:
            arrivals = [
                Arrival(int(row["timestamp_ms"]) / 1e3, int(row["input_length"]), int(row["output_length"]))
                for row in rows
            ]
        else:
            raise ValueError(f"{path.name}: neither an Azure 2023 nor a Mooncake trace; its columns are {columns}")
    start_s = arrivals[0].time_s if arrivals else 0.0
    return [replace(arrival, time_s=arrival.time_s - start_s) for arrival in arrivals]


def replay(
    trace: Sequence[Arrival], *, duration_s: float, rate_factor: float = 1.0, offset_s: float = 0.0
) -> Iterator[Request]:
    """``duration_s`` seconds of a trace from ``offset_s`` (of the trace's time) on, so many times denser."""
    for number, arrival in enumerate(trace):
        time_s = (arrival.time_s - offset_s) / rate_factor
        if 0 <= time_s < duration_s:
            yield Request(f"r{number}", time_s, max(1, arrival.prompt_tokens), max(1, arrival.output_tokens))


def poisson(
    rate_rps: float, duration_s: float, *, prompt_tokens: int, output_tokens: int, seed: int = 0
) -> Iterator[Request]:
    """Independent arrivals of one size at a mean rate."""
    rng, time_s, number = np.random.default_rng(seed), 0.0, 0
    while (time_s := time_s + float(rng.exponential(1.0 / rate_rps))) < duration_s:
        yield Request(f"p{number}", time_s, prompt_tokens, output_tokens)
        number += 1


def constant_rate(rate_rps: float, duration_s: float, *, prompt_tokens: int, output_tokens: int) -> Iterator[Request]:
    """Evenly spaced arrivals of one size, the first at 0."""
    for number in range(round(rate_rps * duration_s)):
        yield Request(f"c{number}", number / rate_rps, prompt_tokens, output_tokens)


def closed_loop(concurrency: int, *, prompt_tokens: int, output_tokens: int) -> Iterator[Request]:
    """All at once: a fixed set of long requests, as the profile was measured with."""
    for number in range(concurrency):
        yield Request(f"l{number}", 0.0, prompt_tokens, output_tokens)


def with_phases(requests: Iterable[Request], phases: Sequence[Phase]) -> Iterator[Request]:
    """Give each request the acceptance of the phase that it arrives in; before the first phase it keeps its own."""
    starts = [phase.from_s for phase in phases]
    for request in requests:
        index = bisect_right(starts, request.arrival_s) - 1
        yield request if index < 0 else replace(request, acceptance=phases[index].acceptance)


def with_mix(
    requests: Iterable[Request], mixes: Sequence[Mix], *, seed: int = 0, kinds: Mapping[str, Curve] | None = None
) -> Iterator[Request]:
    """Draw the kind of each request by the mix that it arrives in, and give it that kind's acceptance.

    ``kinds`` are acceptance curves by name, `KINDS` by default. Before the first mix a request keeps its own.
    """
    curves = KINDS if kinds is None else kinds
    rng = np.random.default_rng([seed, 2])  # apart from the other draws of a seed
    starts = [mix.from_s for mix in mixes]
    names = [list(mix.shares) for mix in mixes]
    bounds = [np.cumsum(list(mix.shares.values())) for mix in mixes]
    for request in requests:
        index, draw = bisect_right(starts, request.arrival_s) - 1, rng.random()
        if index < 0:
            yield request
            continue
        kind = names[index][int(np.searchsorted(bounds[index], draw * bounds[index][-1], side="right"))]
        yield replace(request, acceptance=curves[kind])


def pooled(shares: Mapping[str, float], positions: int, kinds: Mapping[str, Curve] | None = None) -> Curve:
    """The one curve under which answers of equal length take as many steps as those of a mix, at every K.

    A kind with a short E(K) stays longer in the batch, so E of the mix is the harmonic mean of its kinds' E.
    """
    curves, total = KINDS if kinds is None else kinds, sum(shares.values())
    lengths = [1.0]
    for k in range(1, positions + 1):
        steps = sum(share / (1.0 + sum(extended(curves[kind], k))) for kind, share in shares.items())
        lengths.append(total / steps)
    return tuple(after - before for before, after in pairwise(lengths))


def fitted(requests: Iterable[Request], max_model_len: int) -> Iterator[Request]:
    """Shorten what would not fit the model: the prompt first, so that the answer stays whole where possible."""
    for request in requests:
        if request.prompt_tokens + request.output_tokens <= max_model_len:
            yield request
            continue
        output = min(request.output_tokens, max_model_len - 1)
        yield replace(request, prompt_tokens=min(request.prompt_tokens, max_model_len - output), output_tokens=output)


def _time_s(stamp: str) -> float:
    return datetime.fromisoformat(stamp[:MICROSECONDS]).timestamp()
