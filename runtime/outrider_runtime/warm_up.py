"""Run every K at several batch sizes and prompt lengths before a pod counts as ready, so that no user's request meets a
kernel that was never compiled or a graph that was never replayed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

BATCHES = (1, 4, 16, 64, 256)
PROMPTS = (16, 200, 900)
"""Prompt lengths in tokens, mixed within a batch: short, usual and long."""
TOKENS = 12
"""Output tokens of each request: several steps at the largest K."""

Generate = Callable[[list[int], int], Coroutine[Any, Any, None]]
"""Answers a prompt of token ids with so many tokens."""
SetK = Callable[[int], Awaitable[None]]


async def warm_up(
    values: Sequence[int], generate: Generate, set_k: SetK, *, max_num_seqs: int, max_model_len: int, vocabulary: int
) -> None:
    """Run all of it, the largest K first: if time runs out, what is most likely to be slow has run."""
    rng = random.Random(0)
    longest = max(1, max_model_len - TOKENS)
    for k in sorted(values, reverse=True):
        await set_k(k)
        for batch in batches(max_num_seqs):
            prompts = [
                [rng.randrange(vocabulary) for _ in range(min(longest, PROMPTS[number % len(PROMPTS)]))]
                for number in range(batch)
            ]
            # One that fails ends the others: their steps would count as traffic later.
            try:
                async with asyncio.TaskGroup() as group:
                    for prompt in prompts:
                        group.create_task(generate(prompt, min(TOKENS, max_model_len - len(prompt))))
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from errors


def batches(max_num_seqs: int) -> list[int]:
    """Batch sizes to run, the largest that the engine takes among them."""
    return [*(size for size in BATCHES if size < max_num_seqs), max_num_seqs]
