"""The work queue, in virtual time: nothing is lost, nothing runs twice at once, and what fails is tried ever more
rarely."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from outrider.reconcile.queue import MAX_DELAY_S, WorkQueue

from .virtual_time import in_virtual_time


class Work:
    """Takes ``takes_s`` for a key, gives the next of ``answers`` (None when they are used up), and keeps a record."""

    def __init__(self, answers: Sequence[float | None] = (), takes_s: float = 0.0) -> None:
        self.answers, self.takes_s = list(answers), takes_s
        self.runs: list[tuple[str, float]] = []
        """Key and second at which each run began."""
        self.running: set[str] = set()
        self.most_at_once = 0

    async def __call__(self, key: str) -> float | None:
        assert key not in self.running, f"two workers on {key}"
        self.running.add(key)
        self.most_at_once = max(self.most_at_once, len(self.running))
        self.runs.append((key, asyncio.get_running_loop().time()))
        await asyncio.sleep(self.takes_s)
        self.running.discard(key)
        return self.answers.pop(0) if self.answers else None

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self.runs]

    @property
    def times(self) -> list[float]:
        return [round(time_s, 3) for _, time_s in self.runs]


@asynccontextmanager
async def running(work: Work, workers: int = 4) -> AsyncIterator[WorkQueue[str]]:
    """A queue whose workers run until the block ends."""
    queue = WorkQueue(work, workers)
    task = asyncio.create_task(queue.run())
    try:
        yield queue
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def pass_s(seconds: float) -> None:
    """Let virtual seconds pass, and what is due at their end happen."""
    await asyncio.sleep(seconds + 1e-6)


@in_virtual_time
async def test_a_key_added_twice_before_its_turn_is_worked_on_once() -> None:
    async with running(work := Work()) as queue:
        queue.add("chat")
        queue.add("chat")
        await pass_s(1)
    assert work.keys == ["chat"]


@in_virtual_time
async def test_a_key_added_while_its_work_runs_is_run_once_more_afterwards() -> None:
    async with running(work := Work(takes_s=5.0)) as queue:
        queue.add("chat")
        await pass_s(1)
        for _ in range(3):
            queue.add("chat")
        await pass_s(20)
    assert work.times == [0.0, 5.0]


@in_virtual_time
async def test_different_keys_run_side_by_side_up_to_the_number_of_workers() -> None:
    async with running(work := Work(takes_s=1.0), workers=2) as queue:
        for key in ("a", "b", "c"):
            queue.add(key)
        await pass_s(5)
    assert work.most_at_once == 2
    assert work.times == [0.0, 0.0, 1.0]


@in_virtual_time
async def test_no_two_workers_ever_run_one_key() -> None:
    async with running(work := Work(takes_s=0.7)) as queue:
        for _ in range(50):
            queue.add("chat")
            queue.add("code")
            await pass_s(0.1)
        await pass_s(5)
    assert work.most_at_once == 2  # `Work` itself refuses a second run of one key


@in_virtual_time
async def test_retries_grow_from_a_second_to_two_minutes() -> None:
    async with running(work := Work(answers=[1.0] * 12)) as queue:
        queue.add("chat")
        await pass_s(3000)
    gaps = [round(after - before) for before, after in zip(work.times, work.times[1:], strict=False)]
    assert gaps == [1, 2, 4, 8, 16, 32, 64, 120, 120, 120, 120, 120]


@in_virtual_time
async def test_a_wish_for_a_later_retry_is_granted_but_never_beyond_the_longest() -> None:
    async with running(work := Work(answers=[60.0, 500.0])) as queue:
        queue.add("chat")
        await pass_s(1000)
    assert work.times == [0.0, 60.0, 60.0 + MAX_DELAY_S]


@in_virtual_time
async def test_a_success_lets_retries_begin_from_a_second_again() -> None:
    async with running(work := Work(answers=[1.0, 1.0, None, 1.0])) as queue:
        queue.add("chat")
        await pass_s(10)
        queue.add("chat")
        await pass_s(10)
    assert work.times == [0.0, 1.0, 3.0, 10.0, 11.0]


@in_virtual_time
async def test_a_change_does_not_wait_for_the_retry_and_takes_its_place() -> None:
    async with running(work := Work(answers=[60.0])) as queue:
        queue.add("chat")
        await pass_s(10)
        queue.add("chat")
        await pass_s(200)
    assert work.times == [0.0, 10.0]


@in_virtual_time
async def test_a_reminder_does_not_disturb_a_retry_that_is_planned() -> None:
    async with running(work := Work(answers=[60.0])) as queue:
        queue.remind("chat")
        for _ in range(10):
            await pass_s(5)
            queue.remind("chat")
        assert work.times == [0.0]
        await pass_s(200)
        queue.remind("chat")
        await pass_s(1)
    assert work.times[:2] == [0.0, 60.0]
    assert len(work.times) == 3


@in_virtual_time
async def test_what_is_new_goes_before_what_is_to_be_looked_at_again() -> None:
    work = Work(takes_s=1.0)
    async with running(work, workers=1) as queue:
        for key in ("running", "one", "two", "three"):
            queue.remind(key)
        await pass_s(0.5)
        queue.add("changed")
        queue.add("three")
        queue.remind("changed")
        await pass_s(10.0)
    assert work.keys == ["running", "changed", "three", "one", "two"]


@in_virtual_time
async def test_a_forgotten_key_is_not_retried() -> None:
    async with running(work := Work(answers=[5.0])) as queue:
        queue.add("chat")
        await pass_s(1)
        queue.forget("chat")
        await pass_s(500)
    assert work.times == [0.0]


@in_virtual_time
async def test_a_forgotten_key_may_come_back() -> None:
    async with running(work := Work(answers=[5.0, 1.0])) as queue:
        queue.add("chat")
        await pass_s(1)
        queue.forget("chat")
        queue.add("chat")
        await pass_s(10)
    assert work.times == [0.0, 1.0, 2.0]


@in_virtual_time
async def test_weeks_of_failures_are_survived() -> None:
    """2 to the power of the number of failures must not leave the range of numbers."""
    async with running(work := Work(answers=[1.0] * 1100)) as queue:
        queue.add("chat")
        await pass_s(1200 * MAX_DELAY_S)
        assert len(work.runs) == 1101
        queue.add("code")
        await pass_s(1)
    assert work.keys[-1] == "code"


@in_virtual_time
async def test_work_that_raises_ends_the_queue_instead_of_losing_a_worker_in_silence() -> None:
    async def broken(key: str) -> float | None:
        raise RuntimeError("a fault of ours")

    queue = WorkQueue(broken)
    queue.add("chat")
    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        await queue.run()


@in_virtual_time
async def test_ending_the_queue_cancels_its_retries() -> None:
    async with running(work := Work(answers=[5.0])) as queue:
        queue.add("chat")
        await pass_s(1)
    await pass_s(100)
    assert work.times == [0.0]
