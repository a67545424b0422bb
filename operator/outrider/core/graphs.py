"""Which K an engine gets CUDA graphs for, and of which sizes: chosen so that target and drafter always replay the same
batch.

vLLM 0.33 (V2 runner) captures a decode graph for each query length, K + 1, at each capture size rounded up to a
multiple of that length, and files the graphs under their number of tokens. A step of n tokens looks at the nearest
group at or above n, and there only for a graph of its own query length. Where the group holds none, the target runs
piecewise, padded to the nearest capture size; the drafter then looks its graph up under that *padded* number and may
find one, captured for more requests than the batch has. It replays it on attention metadata that was written for the
real batch, and FlashAttention 3 lays that metadata out by batch size: on an H100 such steps took 1 to 14 s, and once an
engine died of an illegal memory access. With vLLM's own sizes and K from 0 to 6 a quarter of the steps are of that
kind.

The cure is arithmetic. If every capture size is a multiple of the least common multiple of all K + 1, rounding changes
nothing, every group holds every query length, and the case cannot arise. The price is padding, so the K are chosen for
a small common multiple.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from math import lcm

CAPTURE_LIMIT = 512
"""Largest capture size in tokens, vLLM's own; above it a step is bound by arithmetic and graphs gain little."""
MAX_STEP = 24
"""Largest common multiple among chosen K: a lone request is padded to at most so many tokens, which costs a GPU nothing
that a step notices while weights are read anyway."""
MAX_FIXED_STEP = 64
"""Largest common multiple that a schedule of the user's own may need: eight sizes up to the limit."""
MIN_SPACING = 8
"""Tokens between neighbouring sizes, as in vLLM's own list: each size is a graph for each K, so start-up time and
memory."""


def step_of(values: Iterable[int]) -> int:
    """The least common multiple of all query lengths K + 1."""
    return lcm(*(k + 1 for k in values))


def choose_speculative_tokens(ceiling: int) -> tuple[int, ...]:
    """The K that an engine with this ceiling (1 to 16) is given graphs for, ascending, with 0 and the ceiling among
    them.

    The largest set whose common multiple stays within `MAX_STEP`; of equals, one that holds 1, then the smaller
    multiple. The bound gives way to twice the ceiling's own length, so that 1 has a place beside every ceiling.
    """
    own = ceiling + 1
    best: tuple[int, ...] = (0, ceiling)
    best_rank = (0, False)
    for step in range(own, max(MAX_STEP, 2 * own) + 1, own):
        values = tuple(k for k in range(ceiling + 1) if step % (k + 1) == 0)
        rank = (len(values), 1 in values)
        if rank > best_rank:  # a later step has a larger multiple, so an equal rank does not win
            best, best_rank = values, rank
    return best


def capture_sizes(values: Sequence[int], limit: int = CAPTURE_LIMIT) -> tuple[int, ...]:
    """Sizes in tokens, ascending multiples of the common multiple; the last is the first that reaches ``limit``.

    Below `MIN_SPACING` each multiple counts, since there padding is felt most; above it they are spaced at least so far
    apart, and twice as far above half the limit. Ending below the limit would leave the largest batches of K 1 without
    a graph: 256 requests of vLLM's default take 512 tokens.
    """
    step = step_of(values)
    spacing = step * -(-MIN_SPACING // step)
    sizes = list(range(step, MIN_SPACING, step)) or [step]
    while sizes[-1] < limit:
        gap = spacing if sizes[-1] < CAPTURE_LIMIT // 2 else 2 * spacing
        sizes.append(sizes[-1] // spacing * spacing + gap)
    return tuple(sizes)


def capture_limit(values: Sequence[int], max_num_seqs: int) -> int:
    """Tokens up to which graphs are worth having: twice the largest verification step, within `CAPTURE_LIMIT`."""
    return min(CAPTURE_LIMIT, 2 * max_num_seqs * (max(values) + 1))


def unsafe_batches(values: Iterable[int], sizes: Sequence[int], max_num_seqs: int) -> list[tuple[int, int]]:
    """Every (K, requests) whose step would make target and drafter replay graphs of different batch sizes; empty means
    safe."""
    values, sizes = sorted(set(values)), sorted(sizes)
    lengths: dict[int, set[int]] = {}
    for size in sizes:
        for k in values:
            tokens = -(-size // (k + 1)) * (k + 1)
            if tokens <= sizes[-1] and tokens // (k + 1) <= max_num_seqs:
                lengths.setdefault(tokens, set()).add(k + 1)
    groups = sorted(lengths)

    def graph(tokens: int, length: int) -> int | None:
        """Tokens of the full graph that a step is served by, or None."""
        position = bisect_left(groups, tokens)
        found = position < len(groups) and length in lengths[groups[position]]
        return groups[position] if found else None

    def padded(tokens: int) -> int:
        """Tokens of a piecewise step; past the largest size there is no padding."""
        position = bisect_left(sizes, tokens)
        return sizes[position] if position < len(sizes) else tokens

    unsafe = []
    for k in values:
        for requests in range(1, max_num_seqs + 1):
            tokens = requests * (k + 1)
            # Where the target has a full graph, the drafter is sent to the same group and so to the same one.
            if graph(tokens, k + 1) is None and graph(padded(tokens), k + 1) is not None:
                unsafe.append((k, requests))
    return unsafe
