"""Who runs in a step: the queue, prompts in prefill, and the KV blocks that all of them share.

Decoding requests go first; prompts take the rest of the step's tokens, in the order of arrival; when blocks run out the
youngest request is preempted and computed again later.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from outrider.simulator.batch import Active, DecodeBatch
from outrider.simulator.settings import BLOCK_SIZE, EngineSettings


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a prompt that one step computes."""

    active: Active
    tokens: int


class Scheduler:
    """The requests of an engine that do not decode yet, and the room that is left for them.

    ``width`` is everywhere the number of drafts that each decoding request brings into the step.
    """

    def __init__(self, settings: EngineSettings, batch: DecodeBatch) -> None:
        self.waiting: deque[Active] = deque()
        self.prefilling: list[Active] = []
        self.num_preemptions = 0
        """Since the start."""
        self._settings = settings
        self._batch = batch
        self._ceiling = settings.max_speculative_tokens
        self._blocks = settings.num_gpu_blocks
        self.late = False
        """Whether requests wait that came too late for the step that was just put together."""
        self._unknown = 0
        """How many of those at the end of the queue came while the present step ran."""
        self._most_running = min(settings.max_num_seqs, settings.max_num_batched_tokens // (self._ceiling + 1))

    @property
    def num_running(self) -> int:
        """Requests in prefill or decoding."""
        return len(self._batch.requests) + len(self.prefilling)

    def came(self, active: Active, *, busy: bool) -> None:
        """To the end of the queue; ``busy``: a step runs, so that with scheduling ahead the next one is fixed."""
        self.waiting.append(active)
        self._unknown += busy and self._settings.schedules_ahead

    def blocks_for(self, tokens: int) -> int:
        """KV blocks of one request with so many tokens, a first token's and the lookahead's slots included."""
        return -(-(tokens + 1 + self._ceiling) // BLOCK_SIZE)

    def blocks_in_use(self, width: int) -> int:
        """KV blocks held."""
        return self._reserved() + self._batch.blocks(1 + width + self._ceiling)

    def make_room(self, width: int, now_s: float) -> bool:
        """Preempt the youngest requests until every decoding one has blocks for this step; whether any had to go."""
        preempted = False
        while self.num_running > 1 and self._most_blocks(width) > self._blocks:
            if self.blocks_in_use(width) <= self._blocks:
                break
            batch = self._batch
            self._preempt(self.prefilling.pop() if self.prefilling else batch.remove([len(batch) - 1])[0], now_s)
            preempted = True
        return preempted

    def steps_with_room(self, width: int) -> int:
        """Decode steps from now on in which certainly nobody must be preempted; 0 or less where that is not certain."""
        free_slots = (self._blocks - self._most_blocks(width)) * BLOCK_SIZE
        return free_slots // (len(self._batch.requests) * (width + 1))

    def prefill_chunks(self, width: int, now_s: float, *, admit: bool) -> tuple[Chunk, ...]:
        """Share the tokens that decoding leaves: first to prompts already begun, then to the head of the queue."""
        unknown = self._unknown if self.num_running else 0
        self._unknown, self.late = 0, unknown > 0
        budget = self._settings.max_num_batched_tokens - len(self._batch.requests) * (width + 1)
        chunks = []
        for active in self.prefilling:
            if budget > 0:
                chunks.append(Chunk(active, min(active.to_prefill - active.prefilled, budget)))
                budget -= chunks[-1].tokens
        if not (admit and self.waiting):
            return tuple(chunks)
        free = self._blocks - self.blocks_in_use(width)
        while len(self.waiting) > unknown and budget > 0 and self.num_running < self._most_running:
            active = self.waiting[0]
            active.reserved_blocks = self.blocks_for(active.to_prefill)
            free -= active.reserved_blocks
            if free < 0:
                active.reserved_blocks = 0
                break
            self.prefilling.append(self.waiting.popleft())
            if active.scheduled_s is None:
                active.scheduled_s = now_s
            chunks.append(Chunk(active, min(active.to_prefill, budget)))
            budget -= chunks[-1].tokens
        return tuple(chunks)

    def _preempt(self, active: Active, now_s: float) -> None:
        """Back to the head of the queue; its cache is lost and must be computed again."""
        active.to_prefill = active.request.prompt_tokens + active.generated
        active.prefilled = 0
        active.reserved_blocks = 0
        active.num_preemptions += 1
        active.last_token_s = now_s
        self.num_preemptions += 1
        self.waiting.appendleft(active)

    def _most_blocks(self, width: int) -> int:
        """A number of blocks that is never below those in use, at no cost."""
        size = len(self._batch.requests)
        slots = self._batch.context_sum + size * (1 + width + self._ceiling)
        return self._reserved() + slots // BLOCK_SIZE + size

    def _reserved(self) -> int:
        return sum(active.reserved_blocks for active in self.prefilling) if self.prefilling else 0
