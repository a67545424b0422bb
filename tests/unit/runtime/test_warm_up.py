"""What a warm-up runs, in which order."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from outrider_runtime.warm_up import PROMPTS, TOKENS, batches, warm_up


class Engine:
    """Writes down batches by K, and whether the requests of a batch were there at once."""

    def __init__(self) -> None:
        self.k: int | None = None
        self.runs: list[tuple[int | None, int]] = []
        self.requests: list[tuple[list[int], int]] = []
        self._running = 0

    async def set_k(self, k: int) -> None:
        assert self._running == 0, "K changes between batches"
        self.k = k

    async def generate(self, prompt: list[int], tokens: int) -> None:
        self.requests.append((prompt, tokens))
        self._running += 1
        largest = self._running
        await asyncio.sleep(0)  # the others of the batch begin
        if largest == self._running:
            self.runs.append((self.k, largest))
        await asyncio.sleep(0)
        self._running -= 1


async def run(
    values: tuple[int, ...], max_num_seqs: int = 4, max_model_len: int = 4096, vocabulary: int = 1000
) -> Engine:
    engine = Engine()
    await warm_up(
        values,
        engine.generate,
        engine.set_k,
        max_num_seqs=max_num_seqs,
        max_model_len=max_model_len,
        vocabulary=vocabulary,
    )
    return engine


@pytest.mark.parametrize(
    ("max_num_seqs", "expected"),
    [
        pytest.param(1, [1], id="one"),
        pytest.param(4, [1, 4], id="one of the usual"),
        pytest.param(48, [1, 4, 16, 48], id="the largest of the engine's own"),
        pytest.param(1024, [1, 4, 16, 64, 256, 1024], id="larger than usual"),
    ],
)
def test_batch_sizes_end_with_the_largest_that_the_engine_takes(max_num_seqs: int, expected: list[int]) -> None:
    assert batches(max_num_seqs) == expected


async def test_every_k_runs_at_every_batch_size_the_largest_first() -> None:
    engine = await run((0, 3, 1), max_num_seqs=16)
    assert engine.runs == [(k, batch) for k in (3, 1, 0) for batch in (1, 4, 16)]


async def test_a_batch_mixes_prompts_of_all_lengths() -> None:
    engine = await run((1,), max_num_seqs=3)
    assert Counter(len(prompt) for prompt, _ in engine.requests[1:]) == dict.fromkeys(PROMPTS, 1)
    assert {tokens for _, tokens in engine.requests} == {TOKENS}


@pytest.mark.parametrize("max_model_len", [2, 13, 100, 911])
async def test_no_request_is_longer_than_the_model_takes(max_model_len: int) -> None:
    engine = await run((1,), max_model_len=max_model_len)
    assert all(prompt and tokens > 0 for prompt, tokens in engine.requests)
    assert max(len(prompt) + tokens for prompt, tokens in engine.requests) <= max_model_len


async def test_prompts_are_of_tokens_that_the_model_has_and_differ() -> None:
    """Equal ones would be found in the prefix cache, and not computed."""
    engine = await run((1, 3), vocabulary=50)
    assert {token for prompt, _ in engine.requests for token in prompt} == set(range(50))
    assert len({tuple(prompt) for prompt, _ in engine.requests}) == len(engine.requests)


async def test_a_failing_engine_ends_the_warm_up() -> None:
    async def generate(prompt: list[int], tokens: int) -> None:
        raise RuntimeError("the engine is dead")

    with pytest.raises(RuntimeError, match="dead"):
        await warm_up((1,), generate, Engine().set_k, max_num_seqs=4, max_model_len=4096, vocabulary=1000)
